"""The formats of T4 results and Kernel Tuner caches; both can hold records of any format."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import orjson
from numpy.typing import NDArray

from toolkit.logs.files.places import Place
from toolkit.logs.formats.kernel_tuner.documents import (
    CACHE_STATES,
    KERNEL_TUNER,
    T4,
    T4_STATES,
    CacheDocument,
    T4Document,
)
from toolkit.logs.formats.kernel_tuner.metadata import T4Metadata, T4MetadataFiles, metadata_of
from toolkit.logs.rows.format import ANY_FORMAT, DocumentFormat, Row, Selection
from toolkit.logs.rows.parameters import ParameterDocument
from toolkit.logs.rows.results import BlockResult
from toolkit.records import Sketch, Task, canonical_json


class _Documents(DocumentFormat):
    extractor = "parameters"
    writes = ANY_FORMAT
    fields: ClassVar[tuple[bytes, ...]] = ()
    document_type: ClassVar[type[ParameterDocument]]

    def recognises(self, head: bytes) -> bool:
        return head.lstrip()[:1] == b"{" and all(field in head for field in self.fields)

    def read(self, data: bytes, name: str, machine: str | None, beside: Any = None) -> BlockResult:
        return self.document_type.load(data, name, machine)

    def write(self, selection: Selection, out: Path) -> dict[Path, bytes]:
        """Write one document per task and sketch into a folder."""
        groups: dict[tuple[str, str], list[Row]] = {}
        for row in selection.rows:
            groups.setdefault((row["task_id"], row["sketch_id"]), []).append(row)
        written: dict[Path, bytes] = {}
        for (task_id, sketch_id), rows in groups.items():
            task = selection.tasks[task_id]
            word = re.sub(r"[^A-Za-z0-9_-]+", "-", task.workload).strip("-")[:60] or "task"
            path = out / f"{word}-{task_id[:8]}-{sketch_id[:4]}.json"
            if path in written:  # ids with the same beginning
                path = out / f"{word}-{task_id}-{sketch_id}.json"
            written[path] = self.document(task, selection.sketches[sketch_id], rows)
        return written

    def document(self, task: Task, sketch: Sketch, rows: Sequence[Row]) -> bytes:
        """Make the document of rows that share task and sketch."""
        raise NotImplementedError


class T4Results(_Documents):
    """T4 results (schema 1.0.0)."""

    name = T4
    companion = T4MetadataFiles.name
    fields = (b'"results"', b'"configuration"', b'"invalidity"')
    document_type = T4Document

    def beside(self, place: Place, companions: Sequence[Place]) -> T4Metadata:
        return T4Metadata(metadata_of(place, companions))

    def document(self, task: Task, sketch: Sketch, rows: Sequence[Row]) -> bytes:
        """Make a document with times in seconds."""
        told = ("workload", "arguments", "target", "target_kind", "machine")
        metadata = {"timeunit": "seconds", **{name: getattr(task, name) for name in told}}
        results = [t4_result(row, sketch) for row in rows]
        return orjson.dumps({"schema_version": "1.0.0", "metadata": metadata, "results": results})


class KernelTunerCaches(_Documents):
    """Kernel Tuner caches (schema 1.1.0)."""

    name = KERNEL_TUNER
    repeats = False
    fields = (b'"tune_params_keys"', b'"cache"')
    document_type = CacheDocument

    def is_whole_space(
        self, sketch: Sketch, decisions: NDArray[np.int64], numbers: NDArray[np.int64]
    ) -> bool:
        """Whether all combinations of the values that the cache lists were recorded."""
        return math.prod(len(knob.choices or ()) for knob in sketch.knobs) == len(decisions)

    def document(self, task: Task, sketch: Sketch, rows: Sequence[Row]) -> bytes:
        """Make a cache with each configuration's last good measurement, or its first failure."""
        entries: dict[str, dict[str, Any]] = {}
        told: dict[str, bytes] = {}
        values: dict[str, dict[bytes, Any]] = {}
        if sketch.format == KERNEL_TUNER:  # the ingested cache listed the values
            for name, known in orjson.loads(sketch.skeleton)[1:]:
                values[name] = {canonical_json(value): value for value in known or []}
        for row in rows:
            found = configuration(row, sketch)
            key, whole = ",".join(map(str, found.values())), canonical_json(found)
            # Values with commas, or 1 and "1", would give equal keys: use the whole JSON instead.
            key = key if told.setdefault(key, whole) == whole else whole.decode()
            # A cache has one entry per configuration.
            if row["state"] == "ok" or key not in entries:
                entries[key] = cache_entry(row, found)
            for parameter, value in found.items():
                values.setdefault(parameter, {}).setdefault(canonical_json(value), value)
        # The device of the ingested cache, not a name from --machine: it identifies the task.
        device = task.target if task.format == KERNEL_TUNER else task.machine
        document = {
            "schema_version": "1.0.0",
            "device_name": device or task.machine or task.target,
            "kernel_name": task.workload,
            "problem_size": _problem_size(task),
            "tune_params_keys": list(values),
            "tune_params": {name: list(known.values()) for name, known in values.items()},
            "objective": "time",
            "cache": entries,
        }
        return orjson.dumps(document, option=orjson.OPT_INDENT_2)


def _problem_size(task: Task) -> Any:
    """Return the workload's size as a cache may hold it: an integer, a word, or integers."""
    size = task.arguments
    if type(size) in (int, str):
        return size
    if isinstance(size, list) and size and all(type(part) is int for part in size):
        return size
    return list(task.extents) or [1]


_INVALIDITY = {state.value: word for word, state in T4_STATES.items()}
_INVALIDITY |= {"build_timeout": "timeout", "unknown": "runtime"}
_CACHE_FAILURES = {state.value: word for word, state in CACHE_STATES.items()}
_CACHE_FAILURES |= {"build_timeout": "CompilationFailedConfig"}


def t4_result(row: Row, sketch: Sketch) -> dict[str, Any]:
    """Make a result of a T4 document, with times in seconds."""
    times = list(row["run_times_s"])
    spent: dict[str, Any] = {
        "compilation": max((row["elapsed_s"] or 0.0) - sum(times), 0.0),
        "framework": 0.0,
        "search_algorithm": 0.0,
        "validation": 0.0,
        "runtimes": times,
    }
    if row["elapsed_s"] is not None:
        spent["elapsed"] = row["elapsed_s"]
    ok = row["state"] == "ok"
    result: dict[str, Any] = {
        "configuration": configuration(row, sketch),
        "times": spent,
        "invalidity": _INVALIDITY[row["state"]],
        "correctness": int(ok),
        "measurements": [{"name": "time", "value": row["latency_s"], "unit": "s"}] if ok else [],
        "objectives": ["time"],
    }
    if row["timestamp"] is not None:
        result["timestamp"] = _iso(row["timestamp"])
    if row["state"] in ("build_timeout", "unknown"):
        result["toolkit_state"] = row["state"]  # T4 has no word for it
    return result


def cache_entry(row: Row, found: dict[str, Any]) -> dict[str, Any]:
    """Make an entry of a Kernel Tuner cache for a row, with times in milliseconds.

    The key ``toolkit`` repeats the measurement unscaled, in seconds: scaled numbers could not be
    restored to the last bit, and a cache has few words for failures.
    """
    times = [1e3 * time for time in row["run_times_s"]]
    failure = _CACHE_FAILURES.get(row["state"], "RuntimeFailedConfig")
    spent = max(1e3 * (row["elapsed_s"] or 0.0) - sum(times), 0.0)
    entry = {
        **found,
        "time": sum(times) / len(times) if times else failure,
        "compile_time": spent,
        "verification_time": 0,
        "benchmark_time": sum(times),
        "strategy_time": 0,
        "framework_time": 0,
        "timestamp": _iso(row["timestamp"] or 0.0),
        "toolkit": {
            "state": row["state"],
            "run_times_s": list(row["run_times_s"]),
            "elapsed_s": row["elapsed_s"],
            "timestamp": row["timestamp"],
        },
    }
    if times:
        entry["times"] = times
    return entry


def configuration(row: Row, sketch: Sketch) -> dict[str, Any]:
    """Return knob values by name, one per part of a tile (without its outermost factor)."""
    if sketch.format in (T4, KERNEL_TUNER):
        found = orjson.loads(row["schedule"])
        # A schedule has sorted keys, but the order of parameters belongs to the sketch.
        return {knob.name: found[knob.name] for knob in sketch.knobs}
    values: dict[str, Any] = {}
    for knob in sketch.knobs:
        labels, parts = dict(knob.labels), row["decisions"][knob.free]
        for number, part in enumerate(parts, start=1):
            # Kernel Tuner needs names that are valid identifiers.
            name = re.sub(r"\W", "_", knob.name)
            name = name if len(parts) == 1 else f"{name}_{number}"
            while name in values:
                name += "_"
            values[name] = labels.get(part, part)
    return values


def _iso(timestamp: float) -> str | float:
    """Return a timestamp as a date; unchanged if it has none (beyond the year 9999)."""
    try:
        return datetime.fromtimestamp(timestamp, timezone.utc).isoformat(sep=" ")
    except (ValueError, OverflowError, OSError):
        return timestamp
