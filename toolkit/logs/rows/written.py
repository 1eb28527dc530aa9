"""What writers of logs are given, and what they share."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolkit.records import Sketch, Task

FAILURE_S = 1e10
"""The cost that Ansor and MetaSchedule write for a failure."""

Row = Mapping[str, Any]
"""A record as a mapping of ``toolkit.schema.RECORDS``."""


@dataclass(frozen=True)
class Selection:
    """Records to be written, with their tasks and sketches by id.

    ``rows`` may be walked more than once. ``space_sizes`` has the number of candidates of a task's
    whole space, where the log stated it.
    """

    rows: Iterable[Row]
    tasks: Mapping[str, Task]
    sketches: Mapping[str, Sketch]
    space_sizes: Mapping[str, int]

    def spaces(self) -> Iterator[tuple[str, Task, Sketch, list[Row]]]:
        """Rows of one task and sketch at a time, with a file name."""
        groups: dict[tuple[str, str], list[Row]] = {}
        for row in self.rows:
            groups.setdefault((row["task_id"], row["sketch_id"]), []).append(row)
        for (task_id, sketch_id), rows in groups.items():
            task = self.tasks[task_id]
            word = re.sub(r"[^A-Za-z0-9_-]+", "-", task.workload).strip("-")[:60] or "task"
            name = f"{word}-{task.task_id[:8]}-{sketch_id[:4]}.json"
            yield name, task, self.sketches[sketch_id], rows


def lines(line: Callable[[Row, Task], bytes], selection: Selection, out: Path) -> dict[Path, bytes]:
    """One file with a line a record."""
    tasks = selection.tasks
    return {out: b"".join(line(row, tasks[row["task_id"]]) + b"\n" for row in selection.rows)}


def tvm_result(row: Row, failure_s: float) -> list[Any]:
    """Costs, error number, elapsed time and time stamp, as AutoTVM and Ansor write them."""
    error = row["error_number"]
    if error is None:
        error = 0 if row["state"] == "ok" else 8
    return [
        row["run_times_s"] or [failure_s],
        error,
        row["elapsed_s"] or 0.0,
        _whole(row["timestamp"] or 0.0),
    ]


def _whole(value: float) -> float | int:
    """Integers as TVM writes them, without a point (as far as JSON readers have integers)."""
    return int(value) if value.is_integer() and abs(value) < 2**53 else value
