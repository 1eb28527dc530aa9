"""Columns that all representations share: the operation, the machine, sums over knobs, tiles."""

from __future__ import annotations

import numpy as np

from toolkit.features.base import CandidateGroup, FeatureBlock, Floats
from toolkit.features.loops.tiling import Tiling
from toolkit.features.task.hardware import hardware_columns, vector_bytes


class ColumnsExtractor:
    """An extractor that computes named columns, ``columns``, without TVM."""

    def columns(self, group: CandidateGroup) -> dict[str, Floats]:
        """Compute the columns of a group."""
        raise NotImplementedError

    def extract(self, group: CandidateGroup) -> FeatureBlock:
        """Compute all columns of a group; values that depend on an unknown extent are NaN."""
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            return FeatureBlock.of(self.columns(group), len(group))


def common_columns(group: CandidateGroup, tiling: Tiling) -> dict[str, Floats]:
    """Columns of the operation, the machine and the tiles, and sums over all knobs of a kind.

    The sums let a model predict for templates and sketches that it never saw.
    """
    rows = len(group)
    told = {**tiling.operation.columns(), **hardware_columns(group.task)}
    result = {name: np.full(rows, value) for name, value in told.items()}
    innermost, inner = np.ones(rows), np.ones(rows)
    ones, powers, parts = np.zeros(rows), np.zeros(rows), 0
    for knob in group.sketch.knobs:
        if knob.kind == "tile" and knob.width > 1:
            levels = group.decisions[:, knob.offset + 1 : knob.offset + knob.width]
            innermost *= levels[:, -1]
            inner *= levels.prod(axis=1, dtype=np.float64)
            ones += (levels == 1).sum(axis=1)
            powers += ((levels > 0) & (levels & (levels - 1) == 0)).sum(axis=1)
            parts += levels.shape[1]
    result["inner_volume"], result["tiled_volume"] = innermost, inner
    result["n_knobs"] = np.full(rows, float(len(group.sketch.knobs)))
    if parts:
        result["share_of_ones"], result["share_of_powers"] = ones / parts, powers / parts
    return {**result, **tiling.columns(vector_bytes(group.task))}
