"""Rows of candidates and directions: what a model of gains is fitted to and asked about."""

from __future__ import annotations

import numpy as np

from toolkit.features.base import CandidateGroup
from toolkit.features.extractors.directions import direction_columns, knob_roles
from toolkit.records import iter_ways
from toolkit.training.arrays import Bools, Ints, Matrix
from toolkit.training.table.neighbours import ANY, DOWN, UP

_NAMES = (
    "way rule role levels choices value extent outermost innermost share divisors ones l1 l2 l3 l4"
)
DIRECTION_COLUMNS = tuple(f"dir_{name}" for name in _NAMES.split())


def direction_rows(
    group: CandidateGroup, features: Matrix, wanted: Bools | None = None
) -> tuple[Matrix, tuple[Ints, Ints, Ints]]:
    """Stack one row a (way, candidate, knob): the candidate's features, then the direction's.

    ``wanted`` is ``(3, n, knobs)``; all directions that exist by default. Returns the rows and
    their places in such an array.
    """
    roles = knob_roles(group)
    width = features.shape[1] + len(DIRECTION_COLUMNS)
    parts = [np.zeros((0, width), dtype=np.float32)]
    places = [np.zeros((3, 0), dtype=np.int64)]
    for k, knob in enumerate(group.sketch.knobs):
        values = group.decisions[:, knob.offset : knob.offset + knob.width].astype(np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            named = direction_columns(knob, values, roles.get(knob.name))
        for way in (ANY, UP, DOWN) if any(iter_ways(knob)) else (ANY,):
            own = np.arange(len(group)) if wanted is None else np.flatnonzero(wanted[way, :, k])
            block = np.full((len(own), len(DIRECTION_COLUMNS)), np.nan, dtype=np.float32)
            block[:, 0] = way
            for place, name in enumerate(DIRECTION_COLUMNS[1:], start=1):
                if name in named:
                    block[:, place] = named[name][own]
            parts.append(np.hstack([features[own], block]))
            places.append(np.stack([np.full(len(own), way), own, np.full(len(own), k)]))
    ways, rows, knobs = np.concatenate(places, axis=1)
    return np.concatenate(parts), (ways, rows, knobs)
