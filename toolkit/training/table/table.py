"""Training data: candidates of many tasks as one matrix, sampled where there are too many."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from toolkit.features.base import CandidateGroup, FeatureBlock
from toolkit.logs.formats import format_named
from toolkit.records import Task, canonical_json, content_id

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class MeasuredGroup:
    """Candidates of one task and sketch with what was measured of them.

    ``latency_s`` is the median over the good occasions, NaN where there was none;
    ``candidate_ids`` are in the order of the group's rows.
    """

    group: CandidateGroup
    latency_s: Floats
    candidate_ids: Sequence[str]


@dataclass(frozen=True)
class Table:
    """Candidates of many tasks; rows of a task lie together, tasks in ascending number.

    Attributes
    ----------
    columns, features
        Names and float32 ``(n, d)`` values; NaN where a quantity does not exist.
    task_ids
        By task number.
    task
        Task number of each row.
    workloads
        By task number: what a task computes, whatever the machine (``workload_key``).
    machines
        By task number: where it was measured, target included.
    latency_s
        Seconds, NaN for candidates that never ran.
    """

    columns: tuple[str, ...]
    features: NDArray[np.float32]
    task_ids: tuple[str, ...]
    task: NDArray[np.int64]
    workloads: tuple[str, ...]
    machines: tuple[str, ...]
    latency_s: Floats
    candidate_ids: NDArray[np.str_]

    def __len__(self) -> int:
        return len(self.task)

    @property
    def good(self) -> NDArray[np.bool_]:
        """Whether a candidate ran."""
        return np.isfinite(self.latency_s)

    def good_counts(self) -> NDArray[np.int64]:
        """Number of candidates that ran, by task number."""
        return np.bincount(self.task[self.good], minlength=len(self.task_ids)).astype(np.int64)

    def log_speed(self) -> Floats:
        """Log of the task's best latency over the candidate's: 0 is the best; NaN: did not run."""
        best = np.full(len(self.task_ids), np.inf)
        good = self.good
        np.minimum.at(best, self.task[good], self.latency_s[good])
        return np.asarray(np.log(best[self.task] / self.latency_s))

    def aligned(self, columns: Sequence[str]) -> NDArray[np.float32]:
        """Features in a model's columns and order; NaN where this table has none of a name."""
        return align(FeatureBlock(self.columns, self.features), columns)

    def take(self, rows: NDArray[np.int64]) -> Table:
        """Keep some rows, in ascending order; tasks keep their numbers."""
        return Table(
            self.columns,
            self.features[rows],
            self.task_ids,
            self.task[rows],
            self.workloads,
            self.machines,
            self.latency_s[rows],
            self.candidate_ids[rows],
        )


def workload_key(task: Task) -> str:
    """Identity of what a task computes, whatever target, machine and schedule."""
    parts = [task.format, task.workload, task.arguments]
    if format_named(task.format).bare_workloads:
        # A bare key means different shapes in different networks: extents tell them apart.
        parts.append(list(task.extents) if not task.arguments else [])
    return content_id("workload", canonical_json(parts))


def task_order(task: Task) -> tuple[str, str, str]:
    """Sort key of tasks: what they compute and for which target, then their id.

    The id depends on the machine's name, and with it whatever is drawn in the order of ids: the
    same log under another name would train another model.
    """
    return workload_key(task), task.target, task.task_id


def draw_key(workload: str) -> int:
    """Seed of what is drawn of a task: the same whatever its machine is called."""
    return int(content_id("draw", workload)[:8], 16)


def machine_key(task: Task) -> str:
    """Name of the machine where it is known, and the target."""
    return f"{task.machine or 'unknown machine'} · {task.target}"


def align(block: FeatureBlock, columns: Sequence[str]) -> NDArray[np.float32]:
    """Bring a block's columns into a given order; absent ones are NaN, others are left out."""
    place = {name: i for i, name in enumerate(block.columns)}
    chosen = [place.get(name, -1) for name in columns]
    result = np.full((len(block.values), len(columns)), np.nan, dtype=np.float32)
    have = [i for i, c in enumerate(chosen) if c >= 0]
    result[:, have] = block.values[:, [chosen[i] for i in have]]
    return result


def build_table(groups: Iterable[tuple[MeasuredGroup, FeatureBlock]]) -> Table:
    """Stack groups with their features; tasks are numbered in the order of ``task_order``."""
    found = list(groups)
    keys = {part[0].group.task.task_id: task_order(part[0].group.task) for part in found}
    parts = sorted(found, key=lambda part: keys[part[0].group.task.task_id])
    columns = tuple(sorted({name for _, block in parts for name in block.columns}))
    tasks: dict[str, Task] = {}
    numbers: list[NDArray[np.int64]] = []
    for measured, _ in parts:
        task = measured.group.task
        tasks.setdefault(task.task_id, task)
        numbers.append(np.full(len(measured.group), len(tasks) - 1, dtype=np.int64))
    features = np.empty((sum(map(len, numbers)), len(columns)), dtype=np.float32)
    start = 0
    for _, block in parts:
        features[start : start + len(block.values)] = align(block, columns)
        start += len(block.values)
    return Table(
        columns=columns,
        features=features,
        task_ids=tuple(tasks),
        task=np.concatenate([np.zeros(0, dtype=np.int64), *numbers]),
        workloads=tuple(workload_key(task) for task in tasks.values()),
        machines=tuple(machine_key(task) for task in tasks.values()),
        latency_s=np.concatenate([np.zeros(0), *(m.latency_s for m, _ in parts)]),
        candidate_ids=np.concatenate(
            [np.zeros(0, dtype=np.str_), *(np.asarray(m.candidate_ids) for m, _ in parts)]
        ),
    )


def sample_rows(
    table: Table, rows: NDArray[np.int64], per_task: int, total: int, seed: int
) -> tuple[NDArray[np.int64], Floats]:
    """Choose training rows: of each task at most ``per_task``, of all at most ``total``.

    A task that has more keeps its fastest fifth of the quota and a random sample of the others,
    each of which then weighs as much as the rows it stands for. The draw of one task depends on
    what it computes alone. Returns ascending row numbers and their weights (1 where nothing was
    left out).
    """
    n_tasks = max(len(np.unique(table.task[rows])), 1)
    quota = max(10, min(per_task, total // n_tasks))
    chosen: list[NDArray[np.int64]] = []
    weights: list[Floats] = []
    for number in np.unique(table.task[rows]):
        own = rows[table.task[rows] == number]
        if len(own) <= quota:
            chosen.append(own)
            weights.append(np.ones(len(own)))
            continue
        fastest = quota // 5
        order = np.argsort(table.latency_s[own], kind="stable")
        rest = order[fastest:]
        rng = np.random.default_rng([seed, draw_key(table.workloads[number])])
        drawn = rng.choice(rest, quota - fastest, replace=False)
        picked = np.concatenate([order[:fastest], drawn])
        weight = np.ones(len(picked))
        weight[fastest:] = len(rest) / len(drawn)
        ascending = np.argsort(own[picked])
        chosen.append(own[picked][ascending])
        weights.append(weight[ascending])
    if not chosen:
        return np.zeros(0, dtype=np.int64), np.zeros(0)
    return np.concatenate(chosen), np.concatenate(weights)
