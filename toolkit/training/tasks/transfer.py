"""Transfer: a model trained elsewhere, judged on other tasks, machines or formats.

With 0, 16 or 64 records of each judged task (or of its machine's other tasks) for adaptation.
What was given for adaptation is judged at no number, so that all numbers are judged alike.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from toolkit.datasets import Dataset
from toolkit.errors import DatasetError, LeakError, RecipeError
from toolkit.progress import SILENT, Progress
from toolkit.training.evaluate.bootstrap import difference_interval
from toolkit.training.evaluate.metrics import JudgedTask, TaskMetrics, summarize, task_metrics
from toolkit.training.members.crossfit import pick_member
from toolkit.training.recipes.recipe import Recipe
from toolkit.training.table.gather import gather, networks_of
from toolkit.training.table.table import Table, draw_key
from toolkit.training.tasks.adaptation import Adapted, AdaptOptions
from toolkit.training.tasks.throughput import ThroughputModel

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]

LEFT = 30
"""A task is judged when so many good candidates are left beside those given for adaptation."""

MOST_JUDGED = 2000
"""Of larger tasks so many candidates are judged, drawn with the seed."""

COMPARED = ("top1", "top5", "pairwise")


def evaluate_transfer(
    model: ThroughputModel,
    dataset: Dataset,
    *,
    records: Sequence[int] = (0, 16, 64),
    of: Literal["task", "machine"] = "task",
    options: AdaptOptions | None = None,
    draws: int = 3,
    seed: int = 0,
    task_ids: Iterable[str] | None = None,
    progress: Progress = SILENT,
) -> dict[str, Any]:
    """Judge a model before and after adaptation, each task by a member that never saw it.

    Parameters
    ----------
    records
        Numbers of good candidates given, drawn at random (the smaller draws are parts of the
        larger).
    of
        ``task``: of the judged task itself. ``machine``: of other workloads' tasks on the judged
        task's machine (and target), so many in all.
    draws
        How many draws a task's metrics are averaged over.

    Returns
    -------
    For each number the metrics with their intervals (``adapted``), those of a model of the given
    records alone (``from_scratch``), and the paired differences from no record (``gain``) and from
    scratch (``ahead_of_scratch``).

    Raises
    ------
    DatasetError
        When no task has enough candidates.
    """
    started = time.perf_counter()
    numbers = sorted(set(records))
    if not numbers or numbers[0] < 0 or draws < 1:
        raise RecipeError("numbers of records are 0 or more, and at least one draw is needed")
    recipe = Recipe.model_validate(model.manifest["recipe"])
    table, _ = gather(
        dataset, recipe.extractor, task_ids, most=recipe.data.table_rows, progress=progress
    )
    features = table.aligned(model.columns)
    tasks = dataset.tasks()
    networks = networks_of(dataset)
    found: dict[str, dict[int, list[JudgedTask]]] = {"adapted": {}, "from_scratch": {}}
    leaked = 0
    with progress.step("adapting", total=len(table.task_ids)) as step:
        for number, task_id in enumerate(table.task_ids):
            step.advance(note=tasks[task_id].workload[:30])
            own = np.flatnonzero((table.task == number) & table.good)
            if len(own) < numbers[-1] + LEFT:
                continue
            try:
                ensemble = pick_member(model.members, tasks[task_id]).ensemble
            except LeakError:
                leaked += 1
                continue
            for name, base in (("adapted", ensemble), ("from_scratch", None)):

                def make(given: Rows, base: Any = base, draw: int = 0) -> Adapted:
                    log_throughput = -np.log(table.latency_s[given])
                    group = table.task[given]
                    return Adapted(base, features[given], log_throughput, group, options, seed=draw)

                judged = _judge(table, features, number, own, numbers, of, draws, seed, make)
                for n, metrics in judged.items():
                    if n or base is not None:
                        found[name].setdefault(n, []).append(
                            JudgedTask(
                                task_id,
                                len(own),
                                float(table.latency_s[own].min()),
                                metrics,
                                networks.get(task_id, ()),
                            )
                        )
    if not found["adapted"]:
        raise DatasetError(
            f"no task has {numbers[-1] + LEFT} good candidates that an unseen member could judge",
            where=dataset.path,
            cure="give smaller numbers of records, or more logs",
        )
    return {
        "kind": "transfer",
        "of": of,
        "records": numbers,
        "draws": draws,
        "n_leaked_tasks": leaked,
        "trained_on": trained_on(model),
        "judged_on": sorted({f"{tasks[t].format}, {table.machines[i]}"
                             for i, t in enumerate(table.task_ids)}),
        **_summaries(found, numbers, seed),
        "seconds": time.perf_counter() - started,
    }  # fmt: skip


def _judge(
    table: Table,
    features: NDArray[np.float32],
    number: int,
    own: Rows,
    numbers: Sequence[int],
    of: str,
    draws: int,
    seed: int,
    make: Callable[..., Adapted],
) -> dict[int, TaskMetrics]:
    """Metrics of one task by number of records, averaged over draws."""
    metrics: dict[int, list[TaskMetrics]] = {n: [] for n in numbers}
    key = draw_key(table.workloads[number])
    for draw in range(draws):
        rng = np.random.default_rng([seed, draw, key])
        order = rng.permutation(own)
        judged = np.sort(order[numbers[-1] :][:MOST_JUDGED])
        source = order if of == "task" else rng.permutation(_elsewhere(table, number))
        for n in numbers:
            given = source[:n]
            if len(given) < n:
                continue
            score = make(given, draw=draw).predict(features[judged])
            metrics[n].append(task_metrics(table.latency_s[judged], score))
    return {n: _mean(values) for n, values in metrics.items() if values}


def _elsewhere(table: Table, number: int) -> Rows:
    """Good candidates of other workloads' tasks on a task's machine and target."""
    other = np.array(
        [
            machine == table.machines[number] and workload != table.workloads[number]
            for machine, workload in zip(table.machines, table.workloads, strict=True)
        ]
    )
    return np.flatnonzero(other[table.task] & table.good)


def _mean(values: Sequence[TaskMetrics]) -> TaskMetrics:
    names = [field.name for field in fields(TaskMetrics)]
    means = {}
    for name in names:
        known = np.array([getattr(value, name) for value in values])
        known = known[np.isfinite(known)]
        means[name] = float(known.mean()) if len(known) else float("nan")
    return TaskMetrics(**means)


def _summaries(
    found: dict[str, dict[int, list[JudgedTask]]], numbers: Sequence[int], seed: int
) -> dict[str, Any]:
    adapted, scratch = found["adapted"], found["from_scratch"]
    result: dict[str, Any] = {
        "n_test_tasks": len(adapted[min(adapted)]),
        "adapted": {str(n): summarize(adapted[n], seed=seed) for n in numbers if n in adapted},
        "from_scratch": {str(n): summarize(scratch[n], seed=seed) for n in numbers if n in scratch},
    }
    result["gain"] = {
        str(n): _difference(adapted[n], adapted[0], seed) for n in adapted if n and 0 in adapted
    }
    result["ahead_of_scratch"] = {
        str(n): _difference(adapted[n], scratch[n], seed) for n in scratch
    }
    return result


def _difference(a: Sequence[JudgedTask], b: Sequence[JudgedTask], seed: int) -> dict[str, Any]:
    """Paired differences a - b over the tasks that both judged."""
    others = {task.task_id: task.metrics for task in b}
    pairs = [(t.metrics, others[t.task_id]) for t in a if t.task_id in others]
    result: dict[str, Any] = {}
    for name in COMPARED:
        left, right = (np.array([getattr(pair[i], name) for pair in pairs]) for i in (0, 1))
        mean, low, high = difference_interval(left, right, seed=seed)
        result[name], result[f"{name}_interval"] = mean, [low, high]
    return result


def trained_on(model: ThroughputModel) -> list[str]:
    """Formats and targets of a model's training tasks."""
    return sorted({f"{t['format']}, {t['target']}" for t in model.manifest["tasks"].values()})
