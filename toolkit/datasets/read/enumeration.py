"""Which tasks have their whole space recorded, so that "best" may be called "optimum"."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

if TYPE_CHECKING:
    from toolkit.datasets.read.open import Dataset

INDEX = r'"index":(\d+)'


def enumerated_tasks(dataset: Dataset) -> dict[str, bool]:
    """Say of every task whether all candidates of its space were recorded.

    AutoTVM numbers its configurations: the space is complete when the recorded indices are
    0 to n - 1 without a gap, there are n distinct candidates, and n is the product of the
    numbers of values that the knobs take. For MetaSchedule the collector states the space's
    size. A Kernel Tuner cache names the values of every parameter: all their combinations must
    be there. Ansor's spaces are not enumerable.
    """
    from toolkit.datasets.read.open import decision_matrix

    sketches = dataset.sketches()
    result = dict.fromkeys(dataset.tasks(), False)
    sizes = dataset.manifest.space_sizes
    if sizes:
        counts = dataset.records(["task_id", "candidate_id"]).filter(
            pl.col("task_id").is_in(list(sizes))
        )
        for task_id, n in (
            counts.group_by("task_id").agg(pl.col("candidate_id").n_unique()).collect().iter_rows()
        ):
            result[task_id] = n == sizes[task_id]
    frame = (
        dataset.records(["format", "task_id", "candidate_id", "sketch_id", "decisions", "schedule"])
        .filter(pl.col("format").is_in(["autotvm", "kernel-tuner"]))
        .with_columns(index=pl.col("schedule").str.extract(INDEX).cast(pl.Int64))
        .group_by(["task_id", "sketch_id", "candidate_id"], maintain_order=True)
        .agg(pl.col("decisions", "index").first())
        .collect()
    )
    spaces: dict[str, int] = {}
    for (task_id, sketch_id), rows in frame.group_by(["task_id", "sketch_id"]):
        key = str(task_id)
        spaces[key] = spaces.get(key, 0) + 1
        sketch = sketches[str(sketch_id)]
        if sketch.format == "kernel-tuner":
            sizes_of = [len(knob.choices or ()) for knob in sketch.knobs]
            result[key] = math.prod(sizes_of) == len(rows) and spaces[key] == 1
            continue
        indices = np.sort(rows["index"].to_numpy())
        complete = bool(np.array_equal(indices, np.arange(len(indices))))
        if complete:
            matrix = decision_matrix(rows["decisions"], sketch.width)
            product = 1
            for knob in sketch.knobs:
                product *= len(np.unique(matrix[:, knob.free], axis=0))
            complete = product == len(rows)
        result[key] = complete and spaces[key] == 1
    return result
