"""Columns that need no knowledge of a template: sums over knobs of a kind."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from toolkit.features.base import CandidateGroup

Floats = NDArray[np.float64]


def generic_columns(group: CandidateGroup) -> dict[str, Floats]:
    """Products and counts over all knobs of a kind, whatever their names.

    They let a model say something of templates and sketches that it never saw.
    """
    rows = len(group)
    innermost = np.ones(rows)
    inner = np.ones(rows)
    ones = np.zeros(rows)
    powers = np.zeros(rows)
    parts = 0
    for knob in group.sketch.knobs:
        if knob.kind != "tile" or knob.width < 2:
            continue
        levels = group.decisions[:, knob.offset + 1 : knob.offset + knob.width]
        innermost *= levels[:, -1]
        inner *= levels.prod(axis=1, dtype=np.float64)
        ones += (levels == 1).sum(axis=1)
        powers += ((levels > 0) & (levels & (levels - 1) == 0)).sum(axis=1)
        parts += levels.shape[1]
    result = {
        "inner_volume": innermost,
        "tiled_volume": inner,
        "n_knobs": np.full(rows, float(len(group.sketch.knobs))),
    }
    if parts:
        result["share_of_ones"] = ones / parts
        result["share_of_powers"] = powers / parts
    return result
