"""Which decisions matter: main effects on log latency, by one-way analysis of variance.

Logs are not balanced experiments: a search records more fast candidates, and decisions depend on
each other. A main effect shows a correlation in the log, not a cause.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from toolkit.datasets.analysis.result import KnobEffect, SketchKnob
from toolkit.datasets.tables import decision_matrix
from toolkit.records import Knob, Sketch, Task

FEWEST = 32
"""With fewer good candidates of a sketch, its decisions are not judged."""

PER_LEVEL = 5
"""Least number of candidates per level, on average."""

LISTED = 5

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]


class OneWay(NamedTuple):
    """Result of a one-way analysis of variance.

    ``effect`` is omega squared, ``best`` the number of the best level. ``gain`` compares the best
    level's shrunk mean with the median one (a share of latency).
    """

    effect: float
    best: int
    gain: float


def one_way(codes: IntArray, levels: int, y: FloatArray) -> OneWay | None:
    """Analyse log latencies ``y`` (``(n,)``) by levels ``codes`` (``(n,)``, 0 to levels - 1).

    ``None`` if nothing can be explained: one level, no variance, or as many levels as rows.
    """
    n = len(y)
    total = float(np.sum((y - y.mean()) ** 2))
    if levels < 2 or n <= levels or total <= 0.0:
        return None
    counts = np.bincount(codes, minlength=levels).astype(np.float64)
    means = np.bincount(codes, weights=y, minlength=levels) / counts
    grand = float(y.mean())
    between = float(np.sum(counts * (means - grand) ** 2))
    error = max(total - between, 0.0) / (n - levels)
    effect = max((between - (levels - 1) * error) / (total + error), 0.0)
    size = (n - float(np.sum(counts**2)) / n) / (levels - 1)
    true = max((between / (levels - 1) - error) / size, 0.0)
    kept = true / (true + error / counts) if true > 0 else np.zeros(levels)
    shrunk = grand + kept * (means - grand)
    best = int(np.argmin(shrunk))
    return OneWay(effect, best, float(1.0 - np.exp(shrunk[best] - np.median(shrunk))))


def knob_effects(sketch: Sketch, decisions: IntArray, y: FloatArray) -> list[KnobEffect]:
    """Effects of a sketch's knobs on log latency, largest first.

    Parameters
    ----------
    decisions
        ``(n, width)``, one row per candidate.
    y
        ``(n,)``: log latency.
    """
    found = []
    for knob in sketch.knobs:
        whole = decisions[:, knob.free]
        effect = _effect(knob, whole, y, None)
        if effect is None and whole.shape[1] > 1:
            first = knob.free.start - knob.offset
            parts = (_effect(knob, whole[:, [i]], y, first + i) for i in range(whole.shape[1]))
            known = [part for part in parts if part is not None]
            effect = max(known, key=lambda part: part.effect, default=None)
        if effect is not None:
            found.append(effect)
    return sorted(found, key=_largest_first)


def _effect(knob: Knob, values: IntArray, y: FloatArray, part: int | None) -> KnobEffect | None:
    if values.shape[1] == 1:  # np.unique of numbers is several times faster than of rows
        flat, codes = np.unique(values[:, 0], return_inverse=True)
        levels = flat[:, None]
    else:
        levels, codes = np.unique(values, axis=0, return_inverse=True)
    if len(levels) * PER_LEVEL > len(y):
        return None
    result = one_way(codes.reshape(-1), len(levels), y)
    if result is None:
        return None
    words = dict(knob.labels)
    names = [words.get(value, str(value)) for value in levels[result.best].tolist()]
    if part is None and knob.kind == "tile" and knob.width > len(names):
        names.insert(0, "·")  # the outermost factor, which is not chosen
    return KnobEffect(
        knob=knob.name,
        kind=knob.kind,
        part=part,
        levels=len(levels),
        candidates=len(y),
        effect=result.effect,
        best_level=" × ".join(names),
        gain=result.gain,
    )


def task_effects(
    candidates: pl.DataFrame, sketches: Mapping[str, Sketch]
) -> Iterator[tuple[str, str, list[KnobEffect]]]:
    """Yield (task, sketch, effects) for each task and sketch with enough candidates.

    ``candidates`` has one row per good candidate: task_id, sketch_id, decisions, value (seconds).
    The effect of the choice of a sketch has the sketch ``""``.
    """
    for rows in candidates.partition_by("task_id", maintain_order=True):
        if len(rows) < FEWEST:
            continue
        task_id = rows["task_id"][0]
        names, codes = np.unique(rows["sketch_id"].to_numpy(), return_inverse=True)
        words = tuple(enumerate(name[:8] for name in names.tolist()))
        choice = Knob("sketch", "categorical", 0, 1, labels=words)
        effect = _effect(choice, codes.reshape(-1, 1), np.log(rows["value"].to_numpy()), None)
        if effect is not None:
            yield task_id, "", [effect]
        for part in rows.partition_by("sketch_id", maintain_order=True):
            sketch = sketches[part["sketch_id"][0]]
            if len(part) < FEWEST:
                continue
            decisions = decision_matrix(part["decisions"], sketch.width)
            effects = knob_effects(sketch, decisions, np.log(part["value"].to_numpy()))
            if effects:
                yield task_id, sketch.sketch_id, effects


def strongest(effects: Mapping[str, list[KnobEffect]]) -> tuple[KnobEffect, ...]:
    """Return a task's strongest decisions: those of the sketch with most candidates, and
    ``sketch``. ``effects`` is by sketch."""
    of_sketches = [found for sketch_id, found in effects.items() if sketch_id]
    main = max(of_sketches, key=lambda found: found[0].candidates, default=[])
    return tuple(sorted([*effects.get("", []), *main], key=_largest_first)[:LISTED])


def _largest_first(effect: KnobEffect) -> tuple[float, str]:
    return -effect.effect, effect.knob


def sketch_knobs(
    effects: Iterable[tuple[str, str, list[KnobEffect]]], tasks: Mapping[str, Task]
) -> tuple[SketchKnob, ...]:
    """Summarise over the tasks of each sketch: sketches with most tasks first, then by effect.

    Decisions judged in fewer than half of a sketch's tasks come after the others.
    """
    found: dict[tuple[str, str], list[KnobEffect]] = {}
    tops: Counter[tuple[str, str]] = Counter()
    workloads: dict[str, list[str]] = {}
    for task_id, sketch_id, own in effects:
        if not sketch_id:
            continue
        # Names given by 'toolkit collect' have a task's own numbers after the colon.
        workloads.setdefault(sketch_id, []).append(tasks[task_id].workload.partition(":")[0])
        tops[sketch_id, own[0].knob] += 1
        for effect in own:
            found.setdefault((sketch_id, effect.knob), []).append(effect)
    rows = [
        SketchKnob(
            sketch_id=sketch_id,
            workload=max(sorted(set(workloads[sketch_id])), key=workloads[sketch_id].count),
            knob=name,
            kind=own[0].kind,
            tasks=len(own),
            top_in=tops[sketch_id, name],
            effect=float(np.median([effect.effect for effect in own])),
            gain=float(np.median([effect.gain for effect in own])),
        )
        for (sketch_id, name), own in found.items()
    ]

    def order(row: SketchKnob) -> tuple[int, str, bool, float, str]:
        number = len(workloads[row.sketch_id])
        return -number, row.sketch_id, 2 * row.tasks < number, -row.effect, row.knob

    return tuple(sorted(rows, key=order))
