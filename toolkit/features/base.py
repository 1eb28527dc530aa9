"""The extractor interface: candidates of one task and sketch → a numeric matrix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from toolkit.records import Sketch, Task

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class CandidateGroup:
    """Candidates that share a task and a sketch.

    ``decisions`` has one row per candidate, one column per knob part (``Sketch.knobs``);
    ``schedules`` are the canonical schedules, if available (``per-store`` needs them).
    """

    task: Task
    sketch: Sketch
    decisions: NDArray[np.int64]
    schedules: Sequence[str] | None = None

    def __len__(self) -> int:
        return len(self.decisions)


@dataclass(frozen=True)
class FeatureBlock:
    """Named columns for one group: ``values`` is float32 ``(n, len(columns))``, NaN = absent."""

    columns: tuple[str, ...]
    values: NDArray[np.float32]

    @classmethod
    def of(cls, columns: Mapping[str, Floats | float], rows: int) -> FeatureBlock:
        """Stack named columns in order of their names; infinite values become NaN."""
        names = tuple(sorted(columns))
        values = np.empty((rows, len(names)), dtype=np.float32)
        with np.errstate(over="ignore"):
            for place, name in enumerate(names):
                values[:, place] = columns[name]
        values[~np.isfinite(values)] = np.nan
        return cls(names, values)


@runtime_checkable
class Extractor(Protocol):
    """Turns groups into named columns; a pure function of the group.

    ``version`` goes up when a column changes its meaning. Columns may differ between groups:
    code that stacks groups takes the union and fills with NaN.
    """

    name: str
    version: int

    def supports(self, task: Task) -> bool:
        """Whether this extractor can read candidates of the task's format."""
        ...

    def extract(self, group: CandidateGroup) -> FeatureBlock:
        """Compute the features of every candidate of a group, in its order."""
        ...
