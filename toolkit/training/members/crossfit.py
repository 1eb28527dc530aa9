"""Cross-fitted members: for every task there is one that never saw it, and one saw all."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from toolkit.errors import DatasetError, LeakError
from toolkit.progress import SILENT, Progress
from toolkit.records import Task
from toolkit.training.members.ensemble import Ensemble, fit_ensemble
from toolkit.training.members.shortlist import mean_opinion, preference
from toolkit.training.models.one_thread import one_blas_thread
from toolkit.training.recipes.recipe import Recipe
from toolkit.training.table.folds import assign_folds
from toolkit.training.table.table import Table, workload_key

Floats = NDArray[np.float64]

ALL = "all"


@dataclass(frozen=True)
class Member:
    """One fitted predictor and what it was trained on.

    ``ensemble`` is an ``Ensemble``, or what a mutation model has instead of one.
    ``workloads`` are the workloads of its training tasks (``workload_key``); empty where a split
    by machine allows the same workload on another machine.
    """

    name: str
    ensemble: Any
    training_task_ids: frozenset[str]
    workloads: frozenset[str]

    def saw(self, task: Task) -> bool:
        """Whether the task, or its workload elsewhere, was trained on."""
        return task.task_id in self.training_task_ids or workload_key(task) in self.workloads


def pick_member(members: Mapping[str, Member], task: Task) -> Member:
    """Return the member that knows most but never saw the task.

    Raises
    ------
    LeakError
        When every member saw it.
    """
    unseen = [member for member in members.values() if not member.saw(task)]
    if not unseen:
        raise LeakError(
            f"every member of the model was trained on task {task.task_id} or its workload",
            cure="train with a split that leaves this task out",
        )
    return max(unseen, key=lambda member: len(member.training_task_ids))


@dataclass(frozen=True)
class CrossFit:
    """Members by name, and what each fold's member predicts of the tasks it never saw.

    ``predictions`` has one value a row of the table, NaN where no member could judge it;
    ``preferences`` the order in which each task's candidates that ran would be measured
    (``shortlist.preference``). ``folds`` gives the fold of each task by number.
    """

    columns: tuple[str, ...]
    members: dict[str, Member]
    predictions: Floats
    preferences: Floats
    folds: NDArray[np.int64]


def available_threads() -> int:
    """Processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return os.cpu_count() or 1


def cross_fit(
    table: Table,
    recipe: Recipe,
    *,
    networks: tuple[tuple[str, ...], ...] = (),
    keep_all: bool = True,
    threads: int | None = None,
    fit: Callable[[NDArray[np.int64], int], Any] | None = None,
    usable: NDArray[np.bool_] | None = None,
    progress: Progress = SILENT,
) -> CrossFit:
    """Train one member a fold and, with ``keep_all``, one on every task.

    Members are fitted to candidates that ran, of tasks with enough of them; they predict all.
    ``fit`` makes something else of the training rows, with so many threads, than an ``Ensemble``
    (then nothing is predicted here); ``usable`` says which rows it may have where failed ones are
    wanted as well. Members are fitted side by side: threads that share one fit wait for each other
    at every level of every tree, which on small tables takes longer than the work.

    Raises
    ------
    DatasetError
        When fewer than two workloads have enough good candidates.
    """
    threads = threads or available_threads()
    usable = table.good if usable is None else usable
    counts = np.bincount(table.task[usable], minlength=len(table.task_ids))
    enough = counts >= recipe.data.min_records
    trainable = np.flatnonzero(usable & enough[table.task])
    if len({table.workloads[t] for t in np.unique(table.task[trainable])}) < 2:
        raise DatasetError(
            f"fewer than two workloads have {recipe.data.min_records} good candidates or more",
            cure="ingest more logs, or lower data.min_records in a recipe of your own",
        )
    folds = assign_folds(table, recipe.split, recipe.seed, networks)
    judged = enough & (counts > 0)
    numbers = [int(f) for f in np.unique(folds[judged])]
    predictions, preferences = np.full(len(table), np.nan), np.full(len(table), np.nan)
    members: dict[str, Member] = {}
    fold_of_row = folds[table.task]
    wanted = {f"fold-{n}": trainable[fold_of_row[trainable] != n] for n in numbers}
    if keep_all:
        wanted[ALL] = trainable
    wanted = {name: rows for name, rows in wanted.items() if len(rows)}
    workers = max(1, min(threads, len(wanted)))

    def make(rows: NDArray[np.int64]) -> Any:
        share = max(1, threads // workers)
        return fit(rows, share) if fit else fit_ensemble(table, rows, recipe, threads=share)

    made: dict[str, Any] = {}
    pool = ThreadPoolExecutor(workers)
    with progress.step("training", total=len(wanted)) as step, one_blas_thread():
        waiting = {pool.submit(make, rows): name for name, rows in wanted.items()}
        try:
            while waiting:
                # Not without end: a signal that another thread takes wakes nobody who waits.
                for done in wait(waiting, timeout=0.5, return_when=FIRST_COMPLETED).done:
                    name = waiting.pop(done)
                    made[name] = done.result()
                    step.advance(note=name)
        except BaseException as error:
            # A fit cannot be stopped: whoever interrupts it does not wait for its end.
            pool.shutdown(wait=not isinstance(error, KeyboardInterrupt), cancel_futures=True)
            raise
    pool.shutdown()
    for name, rows in wanted.items():
        members[name] = _member(name, table, rows, recipe, made[name])
        if fit is None and name != ALL:
            held_out = np.flatnonzero(fold_of_row == int(name.removeprefix("fold-")))
            predictions[held_out], preferences[held_out] = judged_rows(
                members[name].ensemble,
                table.features[held_out],
                np.where(table.good[held_out], table.task[held_out], -1),
            )
    return CrossFit(table.columns, members, predictions, preferences, folds)


def judged_rows(
    ensemble: Ensemble, features: NDArray[np.float32], task: NDArray[np.int64]
) -> tuple[Floats, Floats]:
    """Predictions of rows, and preferences (``shortlist``) within each task.

    ``task`` has the number of each row's task; rows with -1 stand in no order and are only
    predicted.
    """
    opinions = ensemble.opinions(features)
    predicted = mean_opinion(opinions, ensemble.weights)
    preferred = predicted.copy()
    for number in np.unique(task[task >= 0]):
        own = np.flatnonzero(task == number)
        preferred[own] = preference(opinions[:, own], ensemble.weights)
    return predicted, preferred


def _member(
    name: str, table: Table, rows: NDArray[np.int64], recipe: Recipe, ensemble: Any
) -> Member:
    tasks = np.unique(table.task[rows])
    across = recipe.split.by == "machine"
    return Member(
        name=name,
        ensemble=ensemble,
        training_task_ids=frozenset(table.task_ids[t] for t in tasks),
        workloads=frozenset(() if across else (table.workloads[t] for t in tasks)),
    )
