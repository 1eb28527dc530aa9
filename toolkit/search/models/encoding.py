"""Decisions as numbers for a cost model that learns within one space.

Only decisions are encoded: no workload, no hardware. Models that are used on other tasks have
their own features (``toolkit.features``).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from toolkit.records import Candidate, Knob, Sketch
from toolkit.search.moves.knobs import FloatArray, IntArray


def _knob_columns(knob: Knob) -> list[tuple[str, int]]:
    parts = range(knob.free.start - knob.offset, knob.width)
    columns = [(knob.name, part) for part in parts]
    return [*columns, (knob.name, -1)] if knob.kind == "tile" and len(columns) > 1 else columns


def _knob_matrix(knob: Knob, decisions: IntArray) -> FloatArray:
    """Tile parts and their product as log2, extents as log2(x + 1), labels by place."""
    parts = decisions[:, knob.free].astype(np.float64)
    if knob.kind == "tile":
        logs = np.log2(np.maximum(parts, 1.0))
        return np.column_stack([logs, logs.sum(axis=1)]) if parts.shape[1] > 1 else logs
    if knob.kind in ("unroll", "vectorize", "parallel", "thread_binding"):
        return np.where(parts > 0, np.log2(np.maximum(parts, 0.0) + 1.0), parts)
    if knob.labels:
        codes = np.array(sorted(code for code, _ in knob.labels), dtype=np.int64)
        return np.searchsorted(codes, decisions[:, knob.free]).astype(np.float64)
    return parts


def encode_all(sketches: Sequence[Sketch], candidates: Sequence[Candidate]) -> NDArray[np.float32]:
    """Encode candidates of any of the sketches: ``(n, columns)``, at least one column.

    Knobs of the same name share columns across sketches; a knob that a sketch does not have is
    NaN, which boosted trees take as missing. With several sketches the first column is the
    sketch's number.
    """
    columns: dict[tuple[str, int], int] = {("sketch", 0): 0} if len(sketches) > 1 else {}
    for knob in (knob for sketch in sketches for knob in sketch.knobs):
        for column in _knob_columns(knob):
            columns.setdefault(column, len(columns))
    shape = len(candidates), max(1, len(columns))
    out = np.full(shape, np.nan if columns else 0.0, dtype=np.float32)
    sketch_of = sketch_numbers(sketches, candidates)
    for s in np.unique(sketch_of).tolist():
        members = np.flatnonzero(sketch_of == s)
        vectors = np.array([candidates[i].decisions for i in members.tolist()], dtype=np.int64)
        if len(sketches) > 1:
            out[members, 0] = s
        for knob in sketches[s].knobs:
            places = np.array([columns[column] for column in _knob_columns(knob)], dtype=np.intp)
            out[np.ix_(members, places)] = _knob_matrix(knob, vectors)
    return out


def sketch_numbers(sketches: Sequence[Sketch], candidates: Sequence[Candidate]) -> IntArray:
    """Number of each candidate's sketch, ``(n,)``."""
    numbers = {sketch.sketch_id: s for s, sketch in enumerate(sketches)}
    return np.array([numbers[c.sketch_id] for c in candidates], dtype=np.int64)


def value_codes(sketches: Sequence[Sketch], candidates: Sequence[Candidate]) -> IntArray:
    """Number the knob values of candidates: ``(n, knobs)``, equal numbers are equal values.

    Column k is the k-th knob of a candidate's own sketch; knobs of different sketches never share
    a number. -1: the sketch has no such knob.
    """
    knobs = {sketch.sketch_id: sketch.knobs for sketch in sketches}
    numbers: dict[tuple[str, int, tuple[int, ...]], int] = {}
    out = np.full((len(candidates), max(map(len, knobs.values()), default=0)), -1, dtype=np.int64)
    for i, candidate in enumerate(candidates):
        sketch = candidate.sketch_id
        for k, knob in enumerate(knobs[sketch]):
            value = candidate.decisions[knob.free]
            out[i, k] = numbers.setdefault((sketch, k, value), len(numbers))
    return out


def number_codes(columns: NDArray[np.float32]) -> IntArray:
    """Number the values of each column, as ``value_codes`` does for knobs; NaN is -1."""
    out = np.full(columns.shape, -1, dtype=np.int64)
    begin = 0
    for k, column in enumerate(columns.T):
        there = ~np.isnan(column)
        values, codes = np.unique(column[there], return_inverse=True)
        out[there, k] = begin + codes
        begin += len(values)
    return out
