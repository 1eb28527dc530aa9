"""Rows that were read one by one or many at once, as Arrow columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from math import fsum
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from toolkit.logs.rows.base import Reading
from toolkit.logs.rows.columns import (
    STATES,
    Candidates,
    Outcomes,
    Texts,
    Words,
    different,
    hex_ids,
    nullable_strings,
    numbers,
    numeric,
    ragged,
)
from toolkit.logs.rows.identity import merge_tasks
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
"""``schema.RECORDS`` without the columns that only the dataset knows: source and order."""


class Rows:
    """Collects single readings and chunks of columns into one table."""

    def __init__(self) -> None:
        self._readings: list[Reading] = []
        self._lines: list[int] = []
        self._chunks: list[Any] = []
        self.tasks: dict[str, Task] = {}
        self.sketches: dict[str, Sketch] = {}

    def add(self, reading: Reading, line: int) -> None:
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
            chunks.append(self._read_chunk())
        table = pa.Table.from_batches(chunks, schema=SCHEMA)
        lines = numbers(table["line"])
        if len(chunks) > 1 and np.any(lines[1:] < lines[:-1]):
            table = table.take(numeric(pa.int64(), np.argsort(lines, kind="stable")))
        return table.combine_chunks()

    def _read_chunk(self) -> Any:
        readings = self._readings
        sizes = np.array([len(reading.decisions) for reading in readings], dtype=np.int64)
        tasks = Words.of([reading.task.task_id for reading in readings])
        candidates = Candidates(tasks, sizes)
        groups: dict[str, list[int]] = {}
        for row, reading in enumerate(readings):
            groups.setdefault(reading.sketch.sketch_id, []).append(row)
        for rows in groups.values():
            sketch = readings[rows[0]].sketch
            decisions = np.array([readings[row].decisions for row in rows], dtype=np.int64)
            candidates.put(np.array(rows), sketch, decisions.reshape(len(rows), sketch.width))
        return make_chunk(
            format=Words.of([reading.task.format for reading in readings]),
            lines=np.array(self._lines, dtype=np.int64),
            candidates=candidates,
            schedules=Texts.of([reading.schedule.encode() for reading in readings]),
            versions=Words.of([reading.format_version for reading in readings]),
            tvm_versions=[reading.tvm_version for reading in readings],
            outcomes=Outcomes.of(readings),
        )


def make_chunk(
    *,
    format: Words,
    lines: NDArray[np.int64],
    candidates: Candidates,
    schedules: Texts,
    versions: Words,
    outcomes: Outcomes,
    tvm_versions: Sequence[str | None] | None = None,
    hashes: Sequence[Any] | None = None,
) -> Any:
    """Make a record batch of ``SCHEMA``; all arguments have one item per row.

    ``hashes`` are hash objects of record ids, already updated with task id and schedule.
    """
    columns: dict[str, Any] = {
        **candidates.columns(),
        "record_id": _record_ids(candidates.tasks, schedules, outcomes, hashes),
        "line": numeric(pa.int64(), lines),
        "format": format.column(),
        "format_version": versions.column(),
        "tvm_version": pa.nulls(len(lines), pa.string())
        if tvm_versions is None
        else nullable_strings(tvm_versions),
        "schedule": schedules.column(),
        "state": Words(STATES, outcomes.states).column(),
        "error_number": numeric(pa.int32(), outcomes.errors.astype(np.int32), outcomes.errors >= 0),
        "run_times_s": ragged(pa.float64(), outcomes.flat, outcomes.sizes),
        "latency_s": _means(outcomes.flat, outcomes.sizes),
        "elapsed_s": _told(outcomes.elapsed),
        "timestamp": _told(outcomes.timestamps),
    }
    return pa.record_batch([columns[field.name] for field in SCHEMA], schema=SCHEMA)


def _told(values: NDArray[np.float64]) -> Any:
    return numeric(pa.float64(), values, ~np.isnan(values))


def _record_ids(
    tasks: Words, schedules: Texts, outcomes: Outcomes, hashes: Sequence[Any] | None
) -> Any:
    """Return record ids: hashes of task id, schedule and outcome, without format and TVM versions.

    So a record that is exported in another version of its format and read again keeps its id. The
    outcome comes last, so that a hash can be begun before it is known.
    """
    digests = []
    measured = _outcome_bytes(outcomes, schedules.sizes)
    if hashes is None:
        begun = [blake2b(word.encode(), digest_size=8).copy for word in tasks.different]
        codes, bounds = tasks.codes.tolist(), schedules.bounds()
        text = memoryview(schedules.data)
        for code, begin, end, outcome in zip(codes, bounds, bounds[1:], measured, strict=False):
            one = begun[code]()
            one.update(text[begin:end])
            one.update(outcome)
            digests.append(one.digest())
    else:
        for one, outcome in zip(hashes, measured, strict=True):
            one.update(outcome)
            digests.append(one.digest())
    return hex_ids(np.frombuffer(b"".join(digests), dtype=">u8").astype(np.uint64))


def _outcome_bytes(outcomes: Outcomes, lengths: NDArray[np.int64]) -> list[bytes]:
    """Return the bytes of each outcome for record ids; ``lengths`` are those of schedules in bytes.

    State and error number as int64, elapsed time, timestamp and run times as float64, the length
    as int64; little-endian.
    """
    sizes = outcomes.sizes
    count, width = len(sizes), int(sizes.max(initial=0))
    rows = np.zeros((count, 5 + width), dtype="<i8")
    rows[:, 0], rows[:, 1] = outcomes.states, outcomes.errors
    rows[:, 2], rows[:, 3] = outcomes.elapsed.view(np.int64), outcomes.timestamps.view(np.int64)
    times = outcomes.flat.astype("<f8").view(np.int64)
    if (sizes == width).all():
        rows[:, 4:-1], rows[:, -1] = times.reshape(count, width), lengths
        whole: list[bytes] = rows.view(f"V{8 * (5 + width)}").ravel().tolist()
        return whole
    rows[np.arange(count), 4 + sizes] = lengths
    within = np.arange(len(times)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    rows[np.repeat(np.arange(count), sizes), 4 + within] = times
    told, step = rows.tobytes(), 8 * (5 + width)
    stops = (step * np.arange(count) + 8 * (5 + sizes)).tolist()
    return [told[step * row : stop] for row, stop in enumerate(stops)]


def _means(flat: NDArray[np.float64], sizes: NDArray[np.int64]) -> Any:
    """Arithmetic means of rows, as in ``Reading.latency_s``; null if a row is empty."""
    values = np.zeros(len(sizes), dtype=np.float64)
    begins = np.cumsum(sizes) - sizes
    for size in different(sizes[sizes > 0]):
        rows = np.flatnonzero(sizes == size)
        times = flat[begins[rows][:, None] + np.arange(size)]
        if size == 1:
            values[rows] = times[:, 0]
        else:
            values[rows] = np.fromiter(map(fsum, times.tolist()), np.float64, len(rows)) / size
    return numeric(pa.float64(), values, sizes > 0)
