"""Readings gathered as columns: what the dataset stores of a stretch of lines."""

from __future__ import annotations

from typing import Any

import polars as pl

from toolkit.logs.base import Reading
from toolkit.records import Sketch, Task
from toolkit.schema import RECORDS, REJECTED

REJECTED_BYTES = 4096


class Columns:
    """Rows under way, as lists; ``frame`` turns them into a table."""

    def __init__(self) -> None:
        self._data: dict[str, list[Any]] = {name: [] for name in RECORDS if name != "order"}
        self.tasks: dict[str, Task] = {}
        self.sketches: dict[str, Sketch] = {}

    def add(self, reading: Reading, source_id: str, line: int) -> None:
        """Append one reading."""
        task, sketch = reading.task, reading.sketch
        self.tasks[task.task_id] = task
        self.sketches[sketch.sketch_id] = sketch
        data = self._data
        data["record_id"].append(reading.record_id)
        data["candidate_id"].append(reading.candidate_id)
        data["task_id"].append(task.task_id)
        data["sketch_id"].append(sketch.sketch_id)
        data["source_id"].append(source_id)
        data["line"].append(line)
        data["format"].append(task.format)
        data["format_version"].append(reading.format_version)
        data["tvm_version"].append(reading.tvm_version)
        data["schedule"].append(reading.schedule)
        data["decisions"].append(reading.decisions)
        data["state"].append(reading.state.value)
        data["error_number"].append(reading.error_number)
        data["run_times_s"].append(reading.run_times_s)
        data["latency_s"].append(reading.latency_s)
        data["elapsed_s"].append(reading.elapsed_s)
        data["timestamp"].append(reading.timestamp)

    def __len__(self) -> int:
        return len(self._data["line"])

    def frame(self) -> pl.DataFrame:
        """The rows as a table (``schema.RECORDS`` without ``order``)."""
        return pl.DataFrame(self._data, schema={n: RECORDS[n] for n in self._data})


class Rejects:
    """Lines that are no records, with their reasons."""

    def __init__(self, source_id: str, path: str) -> None:
        self._source_id, self._path = source_id, path
        self._rows: list[tuple[str, str, int, int, str, bytes]] = []

    def add(self, line: int, offset: int, reason: str, content: bytes) -> None:
        """Append one line."""
        cut = content[:REJECTED_BYTES]
        self._rows.append((self._source_id, self._path, line, offset, reason[:500], cut))

    def __len__(self) -> int:
        return len(self._rows)

    def frame(self) -> pl.DataFrame:
        """The lines as a table (``schema.REJECTED``)."""
        return pl.DataFrame(self._rows, schema=REJECTED, orient="row")
