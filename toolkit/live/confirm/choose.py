"""Which recorded tasks are validated."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from toolkit.datasets import Dataset
from toolkit.errors import DatasetError, did_you_mean
from toolkit.records import Task

CURES = {
    "metaschedule": "only MetaSchedule databases hold their workloads; 'toolkit collect' makes "
    "one; Ansor's winners need the TVM that made them: --tvm-python",
    "ansor": "--tvm-python rebuilds Ansor records, and this dataset has none",
}


def choose_tasks(
    dataset: Dataset, wanted: Sequence[str], count: int, *, log_format: str = "metaschedule"
) -> list[Task]:
    """Tasks to validate: those named (by id or its beginning), else the most recorded ones.

    Only tasks of one format can be rebuilt at a time; raises ``DatasetError`` when none is left.
    """
    tasks = dataset.tasks()
    if wanted:
        chosen = []
        for name in wanted:
            found = [task for key, task in tasks.items() if key.startswith(name)]
            if not found:
                raise DatasetError(
                    f"no task is called {name!r}",
                    where=dataset.path,
                    cure=did_you_mean(name, tasks) + " ('toolkit describe' lists them)",
                )
            chosen += found
    else:
        counts = dataset.records(["task_id", "state"]).filter(pl.col("state") == "ok")
        order = counts.group_by("task_id").len().sort("len", "task_id", descending=True).collect()
        chosen = [tasks[key] for key in order["task_id"]]
    usable = [task for task in chosen if task.format == log_format and task.blob]
    if not usable:
        raise DatasetError(
            "there is no task that can be rebuilt here",
            where=dataset.path,
            cure=CURES[log_format],
        )
    return usable if wanted else usable[:count]
