"""Rows read from a stretch of lines, as Arrow columns."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from toolkit.logs.rows.base import Reading, mean
from toolkit.logs.rows.identity import merge_tasks
from toolkit.logs.rows.ids import candidate_numbers, candidate_seed, hex_ids
from toolkit.records import Sketch, Task

SCHEMA = pa.schema(
    [
        ("record_id", pa.string()),
        ("candidate_id", pa.string()),
        ("task_id", pa.string()),
        ("sketch_id", pa.string()),
        ("line", pa.int64()),
        ("format", pa.string()),
        ("format_version", pa.string()),
        ("tvm_version", pa.string()),
        ("schedule", pa.string()),
        ("decisions", pa.list_(pa.int64())),
        ("state", pa.string()),
        ("error_number", pa.int32()),
        ("run_times_s", pa.list_(pa.float64())),
        ("latency_s", pa.float64()),
        ("elapsed_s", pa.float64()),
        ("timestamp", pa.float64()),
    ]
)
"""``schema.RECORDS`` without what only the dataset knows: source and order."""


class Rows:
    """Gathers readings one by one, and whole chunks of columns, into one table."""

    def __init__(self) -> None:
        self._readings: list[Reading] = []
        self._lines: list[int] = []
        self._chunks: list[Any] = []
        self.tasks: dict[str, Task] = {}
        self.sketches: dict[str, Sketch] = {}

    def add(self, reading: Reading, line: int) -> None:
        """Append one reading."""
        self._readings.append(reading)
        self._lines.append(line)
        self._learn(reading.task)
        self.sketches[reading.sketch.sketch_id] = reading.sketch

    def add_chunk(self, chunk: Any, tasks: Iterable[Task], sketches: Iterable[Sketch]) -> None:
        """Append a record batch of ``SCHEMA``."""
        self._chunks.append(chunk)
        for task in tasks:
            self._learn(task)
        self.sketches.update((sketch.sketch_id, sketch) for sketch in sketches)

    def _learn(self, task: Task) -> None:
        known = self.tasks.get(task.task_id)
        if known is not task:
            self.tasks[task.task_id] = task if known is None else merge_tasks(known, task)

    def table(self) -> Any:
        """All rows in the order of their lines."""
        chunks = list(self._chunks)
        if self._readings:
            chunks.append(self._read_batch())
        table = pa.Table.from_batches(chunks, schema=SCHEMA)
        lines = table["line"].to_numpy()
        if len(chunks) > 1 and np.any(lines[1:] < lines[:-1]):
            table = table.take(pa.array(np.argsort(lines, kind="stable")))
        return table.combine_chunks()

    def _read_batch(self) -> Any:
        readings = self._readings
        columns: dict[str, Any] = {
            "record_id": [reading.record_id for reading in readings],
            "candidate_id": hex_ids(_candidates(readings)),
            "task_id": [reading.task.task_id for reading in readings],
            "sketch_id": [reading.sketch.sketch_id for reading in readings],
            "line": self._lines,
            "format": [reading.task.format for reading in readings],
            "format_version": [reading.format_version for reading in readings],
            "tvm_version": [reading.tvm_version for reading in readings],
            "schedule": [reading.schedule for reading in readings],
            "decisions": [reading.decisions for reading in readings],
            "state": [reading.state.value for reading in readings],
            "error_number": [reading.error_number for reading in readings],
            "run_times_s": [reading.run_times_s for reading in readings],
            "latency_s": [mean(reading.run_times_s) for reading in readings],
            "elapsed_s": [reading.elapsed_s for reading in readings],
            "timestamp": [reading.timestamp for reading in readings],
        }
        return pa.record_batch(
            [pa.array(columns[f.name], type=f.type) for f in SCHEMA], schema=SCHEMA
        )


def _candidates(readings: list[Reading]) -> NDArray[np.uint64]:
    """Candidate ids of readings as numbers, one sketch at a time."""
    numbers = np.zeros(len(readings), dtype=np.uint64)
    groups: dict[str, list[int]] = {}
    for row, reading in enumerate(readings):
        groups.setdefault(reading.sketch.sketch_id, []).append(row)
    seeds: dict[tuple[str, str], int] = {}
    for sketch_id, rows in groups.items():
        sketch = readings[rows[0]].sketch
        beginning = np.empty(len(rows), dtype=np.uint64)
        for place, row in enumerate(rows):
            key = (readings[row].task.task_id, sketch_id)
            if key not in seeds:
                seeds[key] = candidate_seed(*key)
            beginning[place] = seeds[key]
        matrix = np.array([readings[row].decisions for row in rows], dtype=np.int64)
        matrix = matrix.reshape(len(rows), sketch.width)
        numbers[rows] = candidate_numbers(beginning, sketch, matrix)
    return numbers
