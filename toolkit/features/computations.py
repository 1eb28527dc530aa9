"""What a task computes, from the features of one of its recorded candidates."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import polars as pl

from toolkit import show
from toolkit.datasets import Dataset
from toolkit.datasets.tables import decision_matrix
from toolkit.errors import ToolkitError
from toolkit.features import best_extractor_for
from toolkit.features.base import CandidateGroup
from toolkit.features.task.operation import FAMILIES, ROLES
from toolkit.results import Result


@dataclass(frozen=True, repr=False)
class Computation(Result):
    """A task's largest operator, in terms that mean the same in every format.

    ``extents`` are by role (``features.task.operation``), without those of 1. ``flops`` is a number
    of operations: a multiplication and an addition are two. ``element_bytes`` is the size of an
    input's element, 4 if the log does not give it.
    """

    family: str
    extents: dict[str, int]
    stride: int
    flops: float
    element_bytes: float


def told_computation(computes: Mapping[str, Any]) -> str:
    """Name a computation in a few words."""
    sizes = " ".join(f"{role}={extent}" for role, extent in computes["extents"].items())
    stride = computes["stride"]
    told = f"{computes['family']} {sizes}" + (f" stride={stride}" if stride > 1 else "")
    bits = 8 * computes["element_bytes"]
    return told if bits == 32 else f"{told} {bits:g} bit"


def with_computations(
    dataset: Dataset,
    tasks: Sequence[Mapping[str, Any]],
    peaks: Mapping[str | None, float] | None = None,
) -> list[dict[str, Any]]:
    """Return rows of tasks with ``computes`` and the best candidate's ``gflop_per_s`` added.

    ``tasks`` are rows with ``task_id``, ``machine`` and ``best_s``. ``peaks`` are peak GFLOP/s by
    machine (``None``: the only machine); ``of_peak`` is ``gflop_per_s`` over the peak. Unknown
    values are ``None``. Raises ``ToolkitError`` for a peak of an unknown machine, or for a peak
    without a name if there are several machines.
    """
    peaks = peaks or {}
    _check_peaks(peaks, {task["machine"] for task in tasks})
    known = computations(dataset)
    rows = []
    for task in tasks:
        found, best_s = known.get(task["task_id"]), task["best_s"]
        peak = peaks.get(task["machine"], peaks.get(None))
        rate = None if found is None or best_s is None else found.flops / best_s * 1e-9
        computes = None if found is None else found.to_json()
        share = None if rate is None or peak is None else rate / peak
        rows.append({**task, "computes": computes, "gflop_per_s": rate, "of_peak": share})
    return rows


def _check_peaks(peaks: Mapping[str | None, float], machines: set[str | None]) -> None:
    names = sorted(name for name in machines if name)
    if None in peaks and len(machines) > 1:
        raise ToolkitError(
            f"--peak names no machine, and the dataset holds {len(machines)}",
            cure=f"name the machine: --peak '{names[0]}={peaks[None]:g}'",
        )
    unknown = [name for name in peaks if name is not None and name not in machines]
    if machines and unknown:
        raise ToolkitError(
            f"--peak names {unknown[0]!r}, which is no machine of this dataset",
            cure=f"the dataset's machines: {', '.join(names) or 'one without a name'}",
        )


def in_several_formats(tasks: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return tasks of different formats with the same computation together, the fastest first.

    ``tasks`` are as ``with_computations`` gives them; each has its ``format``.
    """
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for task in tasks:
        if task["computes"] is not None:
            groups.setdefault(told_computation(task["computes"]), []).append(task)
    return [
        task
        for group in groups.values()
        if len({task["format"] for task in group}) > 1
        for task in sorted(group, key=lambda task: task["best_s"] or math.inf)
    ]


@dataclass(frozen=True, repr=False)
class FormatsCompared(Result):
    """Two formats compared on the computations that both hold, by the best task of each.

    For one machine and one kind of target: a machine may have a processor and a GPU.
    ``ratio`` is the median of ``first``'s best latency over ``second``'s; ``faster`` counts the
    computations in which ``first`` has the lower one.
    """

    machine: str | None
    target_kind: str
    first: str
    second: str
    computations: int
    faster: int
    ratio: float


def formats_compared(twins: Iterable[Mapping[str, Any]]) -> list[FormatsCompared]:
    """Compare formats pair by pair, within one machine and kind of target.

    ``twins`` are as ``in_several_formats`` gives them; each has its ``target_kind``.
    Tasks without a latency are left out.
    """
    best: dict[tuple[str | None, str, str], dict[str, float]] = {}
    for task in twins:
        if task["best_s"] is not None:
            place = task["machine"], task["target_kind"], told_computation(task["computes"])
            own = best.setdefault(place, {})
            own[task["format"]] = min(own.get(task["format"], math.inf), task["best_s"])
    ratios: dict[tuple[str | None, str, str, str], list[float]] = {}
    for (machine, kind, _), own in best.items():
        for first, second in combinations(sorted(own), 2):
            ratios.setdefault((machine, kind, first, second), []).append(own[first] / own[second])
    return [
        FormatsCompared(*key, len(of), sum(ratio < 1 for ratio in of), float(np.median(of)))
        for key, of in ratios.items()
    ]


def told_comparison(compared: Mapping[str, Any]) -> str:
    """Say which format was faster, on how many computations."""
    where = f"On {compared['machine']}, f" if compared["machine"] else "F"
    return (
        f"{where}or {compared['target_kind']}, {compared['first']} is faster than "
        f"{compared['second']} in {compared['faster']:,} of "
        f"{show.plural(compared['computations'], 'computation')} that both have (best task of "
        f"each); the latency of {compared['first']} is {show.ratio(compared['ratio'])} times as "
        "high in the median."
    )


def computations(dataset: Dataset) -> dict[str, Computation]:
    """Return what each task computes, by its id; tasks whose features do not say it are absent."""
    tasks, sketches = dataset.tasks(), dataset.sketches()
    columns = ["sketch_id", "decisions", "schedule"]
    rows = (
        dataset.records(["task_id", *columns, "latency_s"])
        .sort("latency_s", nulls_last=True, maintain_order=True)
        .group_by("task_id", maintain_order=True)
        .agg(pl.col(columns).first())
        .collect()
    )
    found: dict[str, Computation] = {}
    for row in rows.iter_slices(1):
        task, sketch = tasks[row["task_id"][0]], sketches[row["sketch_id"][0]]
        decisions = decision_matrix(row["decisions"], sketch.width)
        group = CandidateGroup(task, sketch, decisions, row["schedule"].to_list())
        try:
            block = best_extractor_for(task).extract(group)
        except ToolkitError:
            continue
        columns_of = dict(zip(block.columns, block.values[0].astype(float).tolist(), strict=True))
        flops = columns_of.get("flops", np.nan)
        if not np.isfinite(flops):
            continue
        extents = {role: int(columns_of[f"op_{role}"]) for role in ROLES}
        told = {role: extent for role, extent in extents.items() if extent > 1}
        # Without extents, its kind or layout is one that features do not know.
        if told:
            family, stride = FAMILIES[int(columns_of["op_family"])], int(columns_of["op_stride"])
            size = columns_of.get("op_element_bytes", 4.0)
            found[task.task_id] = Computation(family, told, stride, flops, size)
    return found
