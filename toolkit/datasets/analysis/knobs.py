"""Which decision matters: main effects on log latency, by one-way analysis of variance.

Logs are no balanced experiments: a search records more of what is fast, and decisions depend on
each other. A main effect says what goes with a decision in the record, not what causes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from toolkit.datasets.analysis.result import KnobEffect, SketchKnob
from toolkit.records import Knob, Sketch, Task

FEWEST = 32
"""Good candidates of a sketch below which nothing is said of its decisions."""

PER_LEVEL = 5
"""Candidates that a level must have on average."""

LISTED = 5

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class OneWay:
    """Result of a one-way analysis of variance.

    ``effect`` is omega squared, ``best`` the number of the best level, ``gain`` what its shrunk
    mean gains over that of the median level (a share of latency).
    """

    effect: float
    best: int
    gain: float


def one_way(codes: IntArray, levels: int, y: FloatArray) -> OneWay | None:
    """Analyse log latencies ``y`` (``(n,)``) by levels ``codes`` (``(n,)``, 0 to levels - 1).

    ``None`` where there is nothing to explain: one level, no variance, or as many levels as rows.
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


def _codes(matrix: IntArray) -> tuple[IntArray, IntArray]:
    """Number the distinct rows of a matrix; return them and each row's number."""
    levels, codes = np.unique(matrix, axis=0, return_inverse=True)
    return levels, codes.reshape(-1)


def knob_effects(sketch: Sketch, decisions: IntArray, y: FloatArray) -> list[KnobEffect]:
    """Effects of a sketch's knobs on log latency, largest first.

    Parameters
    ----------
    decisions
        ``(n, width)``, one row a candidate.
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
    return sorted(found, key=lambda effect: (-effect.effect, effect.knob))


def _effect(knob: Knob, values: IntArray, y: FloatArray, part: int | None) -> KnobEffect | None:
    if values.shape[1] == 1:
        flat, codes = np.unique(values[:, 0], return_inverse=True)
        levels = flat[:, None]
    else:
        levels, codes = _codes(values)
    if len(levels) * PER_LEVEL > len(y):
        return None
    result = one_way(codes, len(levels), y)
    if result is None:
        return None
    return KnobEffect(
        knob=knob.name,
        kind=knob.kind,
        part=part,
        levels=len(levels),
        candidates=len(y),
        effect=result.effect,
        best_level=_level_name(knob, levels[result.best], part),
        gain=result.gain,
    )


def _level_name(knob: Knob, level: IntArray, part: int | None) -> str:
    words = dict(knob.labels)
    names = [words.get(int(value), str(int(value))) for value in level]
    whole = part is None and knob.kind == "tile" and knob.width > len(names)
    return " × ".join(["·", *names] if whole else names)


def task_effects(
    candidates: pl.DataFrame, sketches: Mapping[str, Sketch]
) -> Iterator[tuple[str, str, list[KnobEffect]]]:
    """Give (task, sketch, effects) for all that have enough candidates.

    ``candidates`` has one row a good candidate: task_id, sketch_id, decisions, value (seconds).
    Effects of the choice of a sketch come under the sketch ``""``.
    """
    for (task_id,), rows in candidates.partition_by(
        "task_id", as_dict=True, maintain_order=True
    ).items():
        y = np.log(rows["value"].to_numpy())
        choice = _sketch_effect(rows["sketch_id"], y)
        if choice is not None:
            yield str(task_id), "", [choice]
        for (sketch_id,), part in rows.partition_by(
            "sketch_id", as_dict=True, maintain_order=True
        ).items():
            sketch = sketches[str(sketch_id)]
            if len(part) < FEWEST or not sketch.width:
                continue
            flat = part["decisions"].explode().to_numpy().astype(np.int64)
            decisions = flat.reshape(len(part), sketch.width)
            effects = knob_effects(sketch, decisions, np.log(part["value"].to_numpy()))
            if effects:
                yield str(task_id), str(sketch_id), effects


def _sketch_effect(ids: pl.Series, y: FloatArray) -> KnobEffect | None:
    names, codes = np.unique(ids.to_numpy(), return_inverse=True)
    if len(y) < FEWEST or len(names) * PER_LEVEL > len(y):
        return None
    result = one_way(codes.astype(np.int64), len(names), y)
    if result is None:
        return None
    return KnobEffect(
        knob="sketch",
        kind="categorical",
        part=None,
        levels=len(names),
        candidates=len(y),
        effect=result.effect,
        best_level=str(names[result.best])[:8],
        gain=result.gain,
    )


def strongest(effects: Iterable[tuple[str, list[KnobEffect]]]) -> tuple[KnobEffect, ...]:
    """Pick a task's strongest decisions: of the sketch with most candidates, and ``sketch``."""
    by_sketch = dict(effects)
    choice = by_sketch.pop("", [])
    main = max(by_sketch.values(), key=lambda found: found[0].candidates, default=[])
    ordered = sorted([*choice, *main], key=lambda effect: (-effect.effect, effect.knob))
    return tuple(ordered[:LISTED])


def sketch_knobs(
    effects: Iterable[tuple[str, str, list[KnobEffect]]], tasks: Mapping[str, Task]
) -> tuple[SketchKnob, ...]:
    """Sum up over the tasks of each sketch: sketches of most tasks first, then by effect.

    Decisions that could be judged in fewer than half of a sketch's tasks stand after the others.
    """
    found: dict[tuple[str, str], list[KnobEffect]] = {}
    tops: dict[tuple[str, str], int] = {}
    of_sketch: dict[str, list[str]] = {}
    for task_id, sketch_id, own in effects:
        if not sketch_id:
            continue
        # Names given by 'toolkit collect' go on with a task's own numbers.
        of_sketch.setdefault(sketch_id, []).append(tasks[task_id].workload.partition(":")[0])
        for effect in own:
            found.setdefault((sketch_id, effect.knob), []).append(effect)
        top = (sketch_id, own[0].knob)
        tops[top] = tops.get(top, 0) + 1
    rows = [
        SketchKnob(
            sketch_id=sketch_id,
            workload=max(sorted(set(of_sketch[sketch_id])), key=of_sketch[sketch_id].count),
            knob=name,
            kind=own[0].kind,
            tasks=len(own),
            top_in=tops.get((sketch_id, name), 0),
            effect=float(np.median([effect.effect for effect in own])),
            gain=float(np.median([effect.gain for effect in own])),
        )
        for (sketch_id, name), own in found.items()
    ]

    def order(row: SketchKnob) -> tuple[int, str, bool, float, str]:
        number = len(of_sketch[row.sketch_id])
        return -number, row.sketch_id, 2 * row.tasks < number, -row.effect, row.knob

    return tuple(sorted(rows, key=order))
