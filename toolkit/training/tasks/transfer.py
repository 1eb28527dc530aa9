"""Transfer: a model trained elsewhere, judged on other tasks, machines or formats.

The model is adapted with 0, 16 or 64 records of each judged task (or of its machine's other tasks).
Records given for adaptation are never judged, so that all numbers have the same judged candidates.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import numpy as np

from toolkit.datasets import Dataset
from toolkit.errors import DatasetError, RecipeError
from toolkit.progress import SILENT, Progress
from toolkit.results import Result
from toolkit.training.arrays import Ints
from toolkit.training.evaluate.metrics import (
    JudgedTask,
    TaskMetrics,
    ThroughputMetrics,
    difference,
    summarize,
    task_metrics,
)
from toolkit.training.members.ensemble import Ensemble
from toolkit.training.table.gather import gather, networks_of
from toolkit.training.table.table import Table, draw_key
from toolkit.training.tasks.adaptation import Adapted
from toolkit.training.tasks.throughput import ThroughputModel

LEFT = 30
"""A task is judged if this many good candidates are left besides those given for adaptation."""

MOST_JUDGED = 2000
"""At most this many candidates of a task are judged, drawn with the seed."""

Judged = dict[int, list[JudgedTask]]
"""Tasks by the number of records that were given."""


@dataclass(frozen=True, repr=False, kw_only=True)
class TransferResult(Result):
    """A model before and after adaptation, by the number of records given (as text).

    ``adapted`` has its metrics, ``from_scratch`` those of a model of the given records alone;
    ``gain`` and ``ahead_of_scratch`` are paired differences from no record, and from scratch.
    ``trained_on`` and ``judged_on`` are formats with targets, and with machines;
    ``n_leaked_tasks`` is the number of tasks left out because every member saw them.
    """

    kind: str = "transfer"
    of: str
    records: list[int]
    draws: int
    n_leaked_tasks: int
    trained_on: list[str]
    judged_on: list[str]
    n_test_tasks: int
    adapted: dict[str, ThroughputMetrics]
    from_scratch: dict[str, ThroughputMetrics]
    gain: dict[str, dict[str, Any]]
    ahead_of_scratch: dict[str, dict[str, Any]]
    seconds: float


def evaluate_transfer(
    model: ThroughputModel,
    dataset: Dataset,
    *,
    records: Sequence[int] = (0, 16, 64),
    of: Literal["task", "machine"] = "task",
    draws: int = 3,
    seed: int = 0,
    task_ids: Iterable[str] | None = None,
    progress: Progress = SILENT,
) -> TransferResult:
    """Judge a model before and after adaptation, each task by a member that never saw it.

    ``records`` are numbers of good candidates given, drawn at random (smaller draws are parts of
    larger ones). They come from the judged task itself or, with ``of = "machine"``, from all tasks
    of other workloads on its machine and target. A task's metrics are means over ``draws``.

    Raises ``DatasetError`` when no task has enough candidates.
    """
    started = time.perf_counter()
    numbers = sorted(set(records))
    if not numbers or numbers[0] < 0 or draws < 1:
        raise RecipeError("give numbers of records that are 0 or more, and at least one draw")
    recipe = model.recipe
    table, _ = gather(
        dataset, recipe.extractor, task_ids, most=recipe.data.table_rows, progress=progress
    )
    table = table.aligned(model.columns)
    tasks = dataset.tasks()
    networks, families = networks_of(dataset, table.task_ids), table.families()
    adapted: Judged = {}
    scratch: Judged = {}
    leaked = 0
    with progress.step("adapting", total=len(table.task_ids)) as step:
        for number, task_id in enumerate(table.task_ids):
            step.advance(note=tasks[task_id].workload[:30])
            own = np.flatnonzero((table.task == number) & table.good)
            if len(own) < numbers[-1] + LEFT:
                continue
            member, all_saw_it = model.choose_member(tasks[task_id])
            leaked += all_saw_it
            if all_saw_it:
                continue
            source = own if of == "task" else _elsewhere(table, number)
            best = float(table.latency_s[own].min())
            for base, into in ((member.ensemble, adapted), (None, scratch)):
                for n, metrics in _judge(table, own, source, numbers, draws, seed, base).items():
                    if n or base is not None:
                        judged = JudgedTask(
                            task_id,
                            len(own),
                            best,
                            metrics,
                            networks=networks[number],
                            family=families[number],
                        )
                        into.setdefault(n, []).append(judged)
    if not adapted:
        raise DatasetError(
            f"no task has {numbers[-1] + LEFT} good candidates and a member that never saw it",
            where=dataset.path,
            cure="give smaller numbers of records, or more logs",
        )
    trained = model.manifest["tasks"].values()
    judged_on = zip(table.task_ids, table.machines, strict=True)
    return TransferResult(
        of=of,
        records=numbers,
        draws=draws,
        n_leaked_tasks=leaked,
        trained_on=sorted({f"{task['format']}, {task['target']}" for task in trained}),
        judged_on=sorted({f"{tasks[t].format}, {machine}" for t, machine in judged_on}),
        n_test_tasks=len(adapted[min(adapted)]),
        adapted={str(n): summarize(adapted[n], seed=seed) for n in numbers if n in adapted},
        from_scratch={str(n): summarize(scratch[n], seed=seed) for n in numbers if n in scratch},
        gain={
            str(n): difference(adapted[n], adapted[0], seed) for n in adapted if n and 0 in adapted
        },
        ahead_of_scratch={str(n): difference(adapted[n], scratch[n], seed) for n in scratch},
        seconds=time.perf_counter() - started,
    )


def _judge(
    table: Table,
    own: Ints,
    source: Ints,
    numbers: Sequence[int],
    draws: int,
    seed: int,
    base: Ensemble | None,
) -> dict[int, TaskMetrics]:
    """Return one task's mean metrics over draws, by the number of records of a source."""
    metrics: dict[int, list[TaskMetrics]] = {n: [] for n in numbers}
    key = draw_key(table.workloads[table.task[own[0]]])
    for draw in range(draws):
        rng = np.random.default_rng([seed, draw, key])
        order = rng.permutation(own)
        judged = np.sort(order[numbers[-1] :][:MOST_JUDGED])
        drawn = order if source is own else rng.permutation(source)
        for n in numbers:
            if n <= len(drawn):
                given = drawn[:n]
                value, group = -np.log(table.latency_s[given]), table.task[given]
                model = Adapted(base, table.features[given], value, group, seed=draw)
                score = model.predict(table.features[judged])
                found = task_metrics(table.latency_s[judged], score)
                # An adapted model predicts up to a constant: it has no meaningful RMSE.
                metrics[n].append(replace(found, rmse=float("nan")) if n else found)
    return {n: _mean(values) for n, values in metrics.items() if values}


def _elsewhere(table: Table, number: int) -> Ints:
    """Good candidates of other workloads' tasks on a task's machine and target."""
    machine, workload = np.array(table.machines), np.array(table.workloads)
    other = (machine == machine[number]) & (workload != workload[number])
    return np.flatnonzero(other[table.task] & table.good)


def _mean(values: Sequence[TaskMetrics]) -> TaskMetrics:
    means = {}
    for field in fields(TaskMetrics):
        known = np.array([getattr(value, field.name) for value in values])
        known = known[np.isfinite(known)]
        means[field.name] = float(known.mean()) if len(known) else float("nan")
    return TaskMetrics(**means)
