"""What a task computes, told by the features of one of its recorded candidates."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

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

    ``extents`` are by role (``features.task.operation``), those of 1 left out; ``flops`` counts a
    multiplication and an addition as two.
    """

    family: str
    extents: dict[str, int]
    stride: int
    flops: float

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for tasks that compute the same."""
        return self.family, tuple(sorted(self.extents.items())), self.stride

    def __str__(self) -> str:
        sizes = " ".join(f"{role}={extent}" for role, extent in self.extents.items())
        return f"{self.family} {sizes}" + (f" stride={self.stride}" if self.stride > 1 else "")


def computations(dataset: Dataset) -> dict[str, Computation]:
    """What each task computes, by its id; tasks whose features do not tell are left out."""
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
        told = dict(zip(block.columns, block.values[0].astype(float).tolist(), strict=True))
        flops = told.get("flops", np.nan)
        if np.isfinite(flops) and flops > 0:
            extents = {role: int(told[f"op_{role}"]) for role in ROLES}
            found[task.task_id] = Computation(
                FAMILIES[int(told["op_family"])],
                {role: extent for role, extent in extents.items() if extent > 1},
                int(told["op_stride"]),
                flops,
            )
    return found
