"""Which tasks have their whole space recorded, so that "best" may be called "optimum"."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from toolkit.logs.formats import format_named
from toolkit.logs.rows.format import LogFormat

if TYPE_CHECKING:
    from toolkit.datasets.read.open import Dataset


def enumerated_tasks(dataset: Dataset) -> dict[str, bool]:
    """Say of every task whether all candidates of its space were recorded.

    Where a collector stated the size of the space, so many candidates must be recorded. Else the
    format says it (``LogFormat.is_whole_space``). Ansor's spaces are not enumerable.
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
    for name in sorted({sketch.format for sketch in sketches.values()}):
        log_format = format_named(name)
        if type(log_format).is_whole_space is LogFormat.is_whole_space:
            continue
        spaces: dict[str, int] = {}
        for (task_id, sketch_id), rows in _candidates(dataset, log_format):
            key = str(task_id)
            spaces[key] = spaces.get(key, 0) + 1
            sketch = sketches[str(sketch_id)]
            decisions = decision_matrix(rows["decisions"], sketch.width)
            numbers = rows["number"].fill_null(-1).to_numpy()
            whole = log_format.is_whole_space(sketch, decisions, numbers)
            result[key] = whole and spaces[key] == 1
    return result


def _candidates(dataset: Dataset, log_format: LogFormat) -> Any:
    """Distinct candidates of a format with their numbers, a task and sketch at a time."""
    pattern = log_format.number_in_space
    number = (
        pl.col("schedule").str.extract(pattern).cast(pl.Int64)
        if pattern
        else pl.lit(None, dtype=pl.Int64)
    )
    return (
        dataset.records(["format", "task_id", "candidate_id", "sketch_id", "decisions", "schedule"])
        .filter(pl.col("format") == log_format.name)
        .with_columns(number=number)
        .group_by(["task_id", "sketch_id", "candidate_id"], maintain_order=True)
        .agg(pl.col("decisions", "number").first())
        .collect()
        .group_by(["task_id", "sketch_id"])
    )
