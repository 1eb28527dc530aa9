"""Cross-fitted members: one per fold, which never saw the fold's tasks, and one that saw all.

The tasks of a fold are left out together, so that a judged workload was never trained on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from toolkit.children import available_processors
from toolkit.cluster import Cluster
from toolkit.errors import DatasetError, LeakError
from toolkit.features.task.operation import FAMILIES
from toolkit.progress import SILENT, Progress
from toolkit.records import Task
from toolkit.training.arrays import Bools, Floats, Ints
from toolkit.training.members.ensemble import fit_ensemble
from toolkit.training.members.shortlist import mean_opinion, preference
from toolkit.training.models.base import one_blas_thread
from toolkit.training.recipes.recipe import Recipe, SplitOptions
from toolkit.training.table.table import UNKNOWN, Table, workload_key


def assign_folds(
    table: Table, options: SplitOptions, seed: int, networks: Sequence[tuple[str, ...]] = ()
) -> Ints:
    """Return the fold of each task, by task number.

    With ``by = "family"``, ``"network"`` or ``"machine"`` a fold is a family of operators, a
    network or a machine. A workload of several networks is in the fold of the first of them, and
    so in no training set of that fold. With ``by = "task"`` each family is spread evenly over the
    folds, so that a fold leaves out few tasks of a rare family. Except by machine, tasks of one
    workload share a fold. Folds depend on names, families and the seed, not on measurements.
    """
    if options.by == "machine":
        # The same workload on another machine may be trained on: this split judges the transfer
        # from machine to machine.
        return _number(table.machines)
    if options.by == "family":
        return _number(table.families())
    if options.by == "network":
        named = [names[0] if names else "" for names in networks] or [""] * len(table.task_ids)
        first: dict[str, str] = {}
        for workload, name in zip(table.workloads, named, strict=True):
            first[workload] = min(first.get(workload, name), name)
        return _number([first[workload] for workload in table.workloads])
    workloads = _number(table.workloads)
    count = len(set(table.workloads))
    wanted = options.folds
    if wanted == "auto":
        cheap = int(table.good.sum()) <= options.leave_one_out_rows
        wanted = count if count <= options.leave_one_out and cheap else 10
    order = np.random.default_rng(seed).permutation(count)
    places = {name: place for place, name in enumerate((UNKNOWN, *FAMILIES))}
    family = np.empty(count, dtype=np.int64)
    family[workloads] = [places[name] for name in table.families()]
    order = order[np.argsort(family[order], kind="stable")]
    fold_of = np.empty(count, dtype=np.int64)
    fold_of[order] = np.arange(count) % max(2, min(wanted, count))
    return fold_of[workloads]


def _number(names: Sequence[str]) -> Ints:
    return np.unique(names, return_inverse=True)[1]


ALL = "all"


@dataclass(frozen=True)
class Member:
    """One fitted predictor and what it was trained on.

    ``ensemble`` is an ``Ensemble`` or another predictor, such as ``MixedGains``.
    ``workloads`` are the workloads of its training tasks (``workload_key``); empty where a split
    by machine allows the same workload on another machine.
    """

    name: str
    ensemble: Any
    training_task_ids: frozenset[str]
    workloads: frozenset[str]

    def saw(self, task: Task) -> bool:
        """Whether it was trained on the task, or on another task of the same workload."""
        return task.task_id in self.training_task_ids or workload_key(task) in self.workloads


def pick_member(members: Mapping[str, Member], task: Task) -> Member:
    """Return the member that knows most but never saw the task.

    Raises ``LeakError`` when every member saw it.
    """
    unseen = [member for member in members.values() if not member.saw(task)]
    if not unseen:
        raise LeakError(
            f"every member of the model was trained on task {task.task_id} or its workload",
            cure="train with a split that leaves this task out",
        )
    return max(unseen, key=lambda member: len(member.training_task_ids))


Judges = list[tuple[Member, Ints]]
"""Members, and the rows of tasks that each never saw."""


@dataclass(frozen=True)
class CrossFit:
    """Members by name, and the fold of each task by number."""

    members: dict[str, Member]
    folds: Ints

    def judges(self, table: Table) -> Judges:
        """Return each fold's member with the rows that it left out."""
        fold_of_row = self.folds[table.task]
        return [
            (member, np.flatnonzero(fold_of_row == int(name.removeprefix("fold-"))))
            for name, member in self.members.items()
            if name != ALL
        ]

    def predictions(self, table: Table) -> Floats:
        """Return the predictions of each fold's member for that fold, NaN for rows without one."""
        return predict_unseen(table, self.judges(table))[0]


class Kept(Protocol):
    """Store of fits that survives an interrupted training."""

    def get(self, name: str) -> Any:
        """Return a member's fit; ``None`` where none is kept."""

    def put(self, name: str, fit: Any) -> None:
        """Keep a member's fit."""


def cross_fit(
    table: Table,
    recipe: Recipe,
    *,
    networks: tuple[tuple[str, ...], ...] = (),
    keep_all: bool = True,
    threads: int | Cluster | None = None,
    fit: Callable[[Ints, int], Any] | None = None,
    usable: Bools | None = None,
    kept: Kept | None = None,
    progress: Progress = SILENT,
) -> CrossFit:
    """Train one member per fold and, with ``keep_all``, one on every task.

    Members are fitted to candidates that ran, of tasks with enough of them. ``fit`` takes training
    rows and a number of threads, and returns a predictor other than ``Ensemble``. ``usable`` says
    which rows it may use, if failed ones are wanted too. Fits in ``kept`` are not repeated. Members
    are fitted in parallel, here or on a cluster: threads that share one fit wait for each other at
    every level of every tree, which takes longer than the work on small tables.

    Raises ``DatasetError`` when fewer than two workloads have enough good candidates.
    """
    usable = table.good if usable is None else usable
    enough = table.counts(usable) >= recipe.data.min_records
    trainable = np.flatnonzero(usable & enough[table.task])
    if len({table.workloads[t] for t in np.unique(table.task[trainable])}) < 2:
        raise DatasetError(
            f"fewer than two workloads have {recipe.data.min_records} or more good candidates",
            cure="ingest more logs, or lower data.min_records in your own recipe",
        )
    folds = assign_folds(table, recipe.split, recipe.seed, networks)
    if len(np.unique(folds[enough])) < 2:
        raise DatasetError(
            f"the split by {recipe.split.by} leaves out all tasks at once: nothing to train on",
            cure="use --split task",
        )
    fold_of_row = folds[table.task[trainable]]
    wanted = {f"fold-{n}": trainable[fold_of_row != n] for n in np.unique(folds[enough]).tolist()}
    if keep_all:
        wanted[ALL] = trainable
    # Only the table and the recipe go to another process.
    fit = fit or (lambda rows, share: fit_ensemble(table, rows, recipe, threads=share))
    made = {name: own for name in wanted if kept and (own := kept.get(name)) is not None}
    missing = {name: rows for name, rows in wanted.items() if name not in made}
    with progress.step("training", total=len(wanted)) as step:
        if made:
            step.advance(len(made), note="resumed")
        fits = (
            _fits_there(fit, missing, threads, kept)
            if isinstance(threads, Cluster)
            else _fits_here(fit, missing, threads or available_processors(), kept)
        )
        for name, found in fits:
            made[name] = found
            step.advance(note=name)
    across = recipe.split.by == "machine"
    members = {}
    for name, rows in wanted.items():
        tasks = np.unique(table.task[rows]).tolist()
        workloads = frozenset(() if across else (table.workloads[t] for t in tasks))
        ids = frozenset(table.task_ids[t] for t in tasks)
        members[name] = Member(name, made[name], ids, workloads)
    return CrossFit(members, folds)


def _fits_here(
    fit: Callable[[Ints, int], Any], wanted: Mapping[str, Ints], threads: int, kept: Kept | None
) -> Iterator[tuple[str, Any]]:
    """Fit members side by side in this process; each is kept as soon as it is fitted."""
    workers = max(1, min(threads, len(wanted)))
    share = max(1, threads // workers)

    def make(name: str, rows: Ints) -> Any:
        found = fit(rows, share)
        if kept:
            kept.put(name, found)
        return found

    pool = ThreadPoolExecutor(workers)
    with one_blas_thread():
        waiting = {pool.submit(make, name, rows): name for name, rows in wanted.items()}
        try:
            while waiting:
                # With a timeout: a signal that another thread receives does not end a wait.
                for done in wait(waiting, timeout=0.5, return_when=FIRST_COMPLETED).done:
                    yield waiting.pop(done), done.result()
        except BaseException as error:
            # A running fit cannot be stopped: after an interrupt, do not wait for its end.
            interrupted = isinstance(error, (KeyboardInterrupt, GeneratorExit))
            pool.shutdown(wait=not interrupted, cancel_futures=True)
            raise
    pool.shutdown()


def _fits_there(
    fit: Callable[[Ints, int], Any], wanted: Mapping[str, Ints], cluster: Cluster, kept: Kept | None
) -> Iterator[tuple[str, Any]]:
    """Fit members on a cluster, in one thread each; each is kept as it comes back."""
    for (name, _), found in cluster.results(_fit_one, fit, list(wanted.items())):
        if kept:
            kept.put(name, found)
        yield name, found


def _fit_one(fit: Callable[[Ints, int], Any], piece: tuple[str, Ints]) -> Any:
    with one_blas_thread():
        return fit(piece[1], 1)


def members_by_task(table: Table, judges: Judges) -> dict[str, Member]:
    """Return for each judged task, by its id, the member that never saw it."""
    return {
        table.task_ids[number]: member
        for member, rows in judges
        for number in np.unique(table.task[rows]).tolist()
    }


def predict_unseen(table: Table, judges: Judges) -> tuple[Floats, Floats]:
    """Return the members' predictions, and the order in which they would measure candidates.

    Both have one value per row of the table, NaN where no member judges: predictions, and
    preferences (``shortlist``) within each task. Candidates that did not run have no rank: their
    preference is the prediction.
    """
    predicted, preferred = np.full(len(table), np.nan), np.full(len(table), np.nan)
    for member, rows in judges:
        ensemble = member.ensemble
        opinions = ensemble.opinions(table.features[rows])
        predicted[rows] = preferred[rows] = mean_opinion(opinions, ensemble.weights)
        task, good = table.task[rows], table.good[rows]
        for number in np.unique(task[good]):
            own = np.flatnonzero(good & (task == number))
            preferred[rows[own]] = preference(opinions[:, own], ensemble.weights)
    return predicted, preferred
