"""Training data: candidates of many tasks as one matrix, sampled where there are too many."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from toolkit.errors import ToolkitError
from toolkit.features import best_extractor_for
from toolkit.features.base import CandidateGroup, FeatureBlock
from toolkit.features.loops.trace_nest import workload_blocks
from toolkit.features.task.operation import FAMILIES
from toolkit.logs.formats import format_named
from toolkit.records import Task, canonical_json, content_id
from toolkit.training.arrays import Bools, Floats, Ints, Matrix
from toolkit.training.recipes.recipe import DataOptions

UNKNOWN = "unknown"
"""Family of tasks whose features do not give one."""

FAMILY = "op_family"
"""Column of the family of operators."""


@dataclass(frozen=True)
class MeasuredGroup:
    """Candidates of one task and sketch with what was measured of them.

    ``latency_s`` is the median over the good occasions, NaN where there was none.
    """

    group: CandidateGroup
    latency_s: Floats


@dataclass(frozen=True)
class Table:
    """Candidates of many tasks; rows of a task lie together, tasks in ascending number.

    Attributes
    ----------
    columns, features
        Names and float32 ``(n, d)`` values; NaN where a quantity does not exist.
    task_ids, workloads, machines
        By task number: the id; the computation, whatever the machine (``workload_key``); the
        machine and target.
    task
        Task number of each row.
    latency_s
        Seconds, NaN for candidates that never ran.
    told_families
        Families of operators by task number, where no column holds them.
    """

    columns: tuple[str, ...]
    features: Matrix
    task_ids: tuple[str, ...]
    task: Ints
    workloads: tuple[str, ...]
    machines: tuple[str, ...]
    latency_s: Floats
    told_families: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.task)

    @property
    def good(self) -> Bools:
        """Whether a candidate ran."""
        return np.isfinite(self.latency_s)

    def good_counts(self) -> Ints:
        """Number of candidates that ran, by task number."""
        return self.counts(self.good)

    def counts(self, usable: Bools) -> Ints:
        """Number of usable candidates, by task number."""
        return np.bincount(self.task[usable], minlength=len(self.task_ids)).astype(np.int64)

    def families(self) -> tuple[str, ...]:
        """Family of operators by task number: the one that most candidates of its workload have.

        ``UNKNOWN`` where features do not give it.
        """
        if FAMILY not in self.columns:
            return self.told_families or (UNKNOWN,) * len(self.task_ids)
        names, workloads = np.unique(self.workloads, return_inverse=True)
        family = self.features[:, self.columns.index(FAMILY)]
        known = np.isfinite(family)
        pairs = workloads[self.task[known]] * len(FAMILIES) + family[known].astype(np.int64)
        size = len(names) * len(FAMILIES)
        held = np.bincount(pairs, minlength=size).reshape(-1, len(FAMILIES))
        most = np.where(held.any(axis=1), held.argmax(axis=1), len(FAMILIES))
        return tuple((*FAMILIES, UNKNOWN)[most[each]] for each in workloads)

    def judged_records(self, options: DataOptions) -> int:
        """Candidates that a task needs to be judged; fewer if no task has the wanted number."""
        enough = (self.good_counts() >= options.judged_records).any()
        # It is better to judge small tasks than none.
        return options.judged_records if enough else options.min_records

    def log_speed(self) -> Floats:
        """Log of the task's best latency over the candidate's: 0 is the best; NaN: did not run."""
        best = np.full(len(self.task_ids), np.inf)
        good = self.good
        np.minimum.at(best, self.task[good], self.latency_s[good])
        return np.asarray(np.log(best[self.task] / self.latency_s))

    def aligned(self, columns: Sequence[str]) -> Table:
        """Bring features into a model's columns and order; NaN for absent columns."""
        block = FeatureBlock(self.columns, self.features)
        return replace(self, columns=tuple(columns), features=align(block, columns))

    def take(self, rows: Ints) -> Table:
        """Keep some rows, in ascending order; tasks keep their numbers."""
        own = {name: getattr(self, name)[rows] for name in ("features", "task", "latency_s")}
        return replace(self, **own)


def workload_key(task: Task) -> str:
    """Return the identity of a task's computation, whatever the target, machine and schedule.

    For a MetaSchedule task, it is made of the loops of its reducing blocks (of all blocks if none
    reduces): a convolution with a bias and a ReLU counts as the same convolution.
    """
    if task.identity:
        return task.identity
    if blocks := workload_blocks(task):
        adding = [block for block in blocks if any(block.reductions)]
        loops = [[block.extents, block.reductions] for block in adding or blocks]
        return content_id("workload", task.format, canonical_json(loops))
    parts = [task.format, task.workload, task.arguments]
    if format_named(task.format).bare_workloads:
        # A bare key means different shapes in different networks: extents distinguish them.
        parts.append(list(task.extents) if not task.arguments else [])
    return content_id("workload", canonical_json(parts))


def task_order(task: Task) -> tuple[str, str, str]:
    """Sort key of tasks: what they compute and for which target, then their id.

    The id alone would not do: it depends on the machine's name, so that the same log under another
    machine name would train another model.
    """
    return workload_key(task), task.target, task.task_id


def draw_key(workload: str) -> int:
    """Return the seed for draws from a task; it does not depend on the machine's name."""
    return int(content_id("draw", workload)[:8], 16)


def align(block: FeatureBlock, columns: Sequence[str]) -> Matrix:
    """Bring a block's columns into a given order; absent ones are NaN, others are left out."""
    place = {name: i for i, name in enumerate(block.columns)}
    have = [i for i, name in enumerate(columns) if name in place]
    result = np.full((len(block.values), len(columns)), np.nan, dtype=np.float32)
    result[:, have] = block.values[:, [place[columns[i]] for i in have]]
    return result


def build_table(parts: Sequence[tuple[MeasuredGroup, FeatureBlock]]) -> Table:
    """Stack groups with their features, those of a task together; tasks are numbered in order."""
    columns = tuple(sorted({name for _, block in parts for name in block.columns}))
    tasks = {measured.group.task.task_id: measured.group.task for measured, _ in parts}
    number = {task_id: i for i, task_id in enumerate(tasks)}
    sizes = [len(measured.group) for measured, _ in parts]
    features = np.empty((sum(sizes), len(columns)), dtype=np.float32)
    start = 0
    for (_, block), size in zip(parts, sizes, strict=True):
        features[start : start + size] = align(block, columns)
        start += size
    return Table(
        columns=columns,
        features=features,
        task_ids=tuple(tasks),
        task=np.repeat([number[m.group.task.task_id] for m, _ in parts], sizes).astype(np.int64),
        workloads=tuple(workload_key(task) for task in tasks.values()),
        machines=tuple(f"{t.machine or 'unknown machine'} · {t.target}" for t in tasks.values()),
        latency_s=np.concatenate([np.zeros(0), *(m.latency_s for m, _ in parts)]),
        told_families=() if FAMILY in columns else _told_families(m for m, _ in parts),
    )


def _told_families(parts: Iterable[MeasuredGroup]) -> tuple[str, ...]:
    """Return the tasks' families, from the default features of one candidate per workload."""
    of_workload: dict[str, str] = {}
    of_task: dict[str, str] = {}
    for measured in parts:
        group = measured.group
        key = workload_key(group.task)
        if key not in of_workload:
            first = None if group.schedules is None else group.schedules[:1]
            one = replace(group, decisions=group.decisions[:1], schedules=first)
            try:
                block = best_extractor_for(group.task).extract(one)
            except ToolkitError:
                block = FeatureBlock((), np.zeros((1, 0), dtype=np.float32))
            told = align(block, [FAMILY])[0, 0]
            of_workload[key] = FAMILIES[int(told)] if np.isfinite(told) else UNKNOWN
        of_task[group.task.task_id] = of_workload[key]
    return tuple(of_task.values())


Choose = Callable[[Floats, int, list[int]], tuple[Ints, Floats]]
"""Latencies of candidates, how many to keep and a key → numbers of the kept and their weights."""


def fastest_and_drawn(latency_s: Floats, keep: int, key: list[int]) -> tuple[Ints, Floats]:
    """Choose ``keep`` candidates: a fifth are the fastest, the rest are drawn from the others.

    The fastest one is always among them; ``key`` seeds the draw. Returns ascending numbers and the
    weight of each, which is 1 for the fastest fifth.
    """
    fastest = max(1, keep // 5)
    order = np.argsort(latency_s, kind="stable")  # candidates that never ran come last
    rest = order[fastest:]
    drawn = np.random.default_rng(key).choice(rest, keep - fastest, replace=False)
    weight = np.ones(len(latency_s))
    weight[rest] = len(rest) / max(1, len(drawn))
    picked = np.sort(np.concatenate([order[:fastest], drawn]))
    return picked, weight[picked]


def drawn_alike(latency_s: Floats, keep: int, key: list[int]) -> tuple[Ints, Floats]:
    """Choose ``keep`` candidates at random, seeded by ``key``; each has weight 1."""
    drawn = np.random.default_rng(key).choice(len(latency_s), keep, replace=False)
    return np.sort(drawn), np.ones(keep)


def sample_rows(
    table: Table,
    rows: Ints,
    per_task: int,
    total: int,
    seed: int,
    choose: Choose = fastest_and_drawn,
) -> tuple[Ints, Floats]:
    """Choose training rows: at most ``per_task`` of each task, about ``total`` in all.

    A task with more rows keeps what ``choose`` takes: by default the fastest fifth of the quota (at
    least 10) and a random sample of the others, each weighted by the number of rows that it stands
    for. The draw of one task depends only on its computation and ``seed``. ``rows`` ascends.
    Returns ascending row numbers and their weights (1 where nothing was left out).
    """
    numbers, starts = np.unique(table.task[rows], return_index=True)
    quota = max(10, min(per_task, total // max(len(numbers), 1)))
    chosen, weights = [rows[:0]], [np.zeros(0)]
    for number, own in zip(numbers, np.split(rows, starts[1:]), strict=False):
        weight = np.ones(len(own))
        if len(own) > quota:
            key = [seed, draw_key(table.workloads[number])]
            picked, weight = choose(table.latency_s[own], quota, key)
            own = own[picked]
        chosen.append(own)
        weights.append(weight)
    return np.concatenate(chosen), np.concatenate(weights)
