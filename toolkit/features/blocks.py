"""Named vectors → a feature block."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from toolkit.features.base import FeatureBlock


def as_block(columns: Mapping[str, NDArray[np.float64]], rows: int) -> FeatureBlock:
    """Stack named columns into a block, in order of their names; infinite values are absent."""
    names = tuple(sorted(columns))
    values = np.empty((rows, len(names)), dtype=np.float32)
    with np.errstate(over="ignore"):
        for place, name in enumerate(names):
            values[:, place] = columns[name]
    values[~np.isfinite(values)] = np.nan
    return FeatureBlock(names, values)
