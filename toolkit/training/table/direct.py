"""Rows of candidates and directions: what a model of gains is fitted to and asked about."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from toolkit.features.base import CandidateGroup
from toolkit.features.extractors.directions import direction_columns, knob_roles
from toolkit.records import iter_ways
from toolkit.training.table.neighbours import ANY, DOWN, UP

Floats = NDArray[np.float64]

DIRECTION_COLUMNS = (
    "dir_way",
    "dir_rule",
    "dir_role",
    "dir_levels",
    "dir_choices",
    "dir_value",
    "dir_extent",
    "dir_outermost",
    "dir_innermost",
    "dir_share",
    "dir_divisors",
    "dir_ones",
    "dir_l1",
    "dir_l2",
    "dir_l3",
    "dir_l4",
)


def direction_rows(
    group: CandidateGroup,
    features: NDArray[np.float32],
    wanted: NDArray[np.bool_] | None = None,
) -> tuple[NDArray[np.float32], tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]]:
    """Stack one row a (way, candidate, knob): the candidate's features, then the direction's.

    ``wanted`` is ``(3, n, knobs)``; all directions that exist by default. Returns the rows and
    their places in such an array.
    """
    roles = knob_roles(group)
    parts: list[NDArray[np.float32]] = []
    ways: list[NDArray[np.int64]] = []
    rows: list[NDArray[np.int64]] = []
    knobs: list[NDArray[np.int64]] = []
    for k, knob in enumerate(group.sketch.knobs):
        values = group.decisions[:, knob.offset : knob.offset + knob.width].astype(np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            named = direction_columns(knob, values, roles.get(knob.name))
        ordered = any(True for _ in iter_ways(knob))
        for way in (ANY, UP, DOWN) if ordered else (ANY,):
            own = np.arange(len(group)) if wanted is None else np.flatnonzero(wanted[way, :, k])
            if len(own) == 0:
                continue
            block = np.full((len(own), len(DIRECTION_COLUMNS)), np.nan, dtype=np.float32)
            block[:, 0] = way
            for place, name in enumerate(DIRECTION_COLUMNS[1:], start=1):
                if name in named:
                    block[:, place] = named[name][own]
            parts.append(np.hstack([features[own], block]))
            ways.append(np.full(len(own), way))
            rows.append(own)
            knobs.append(np.full(len(own), k))
    width = features.shape[1] + len(DIRECTION_COLUMNS)
    empty: Sequence[NDArray[np.int64]] = [np.zeros(0, dtype=np.int64)]
    return (
        np.concatenate([np.zeros((0, width), dtype=np.float32), *parts]),
        (
            np.concatenate([*empty, *ways]),
            np.concatenate([*empty, *rows]),
            np.concatenate([*empty, *knobs]),
        ),
    )
