"""Records → log lines, as the programs that read them expect: the way back of the readers.

A failed record gets the cost that its format writes for failures.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

import orjson

from toolkit.records import Sketch, Task

AUTOTVM_FAILURE_S, FAILURE_S = 1e9, 1e10

Row = Mapping[str, Any]
"""A record as a mapping of ``toolkit.schema.RECORDS``."""


def autotvm_line(row: Row, task: Task) -> bytes:
    """An AutoTVM 0.2 line (TVM ``autotvm/record.py``)."""
    inputs = orjson.loads(task.blob or "[]")
    return orjson.dumps(
        {
            "input": inputs,
            "config": orjson.Fragment(row["schedule"]),
            "result": _result(row, AUTOTVM_FAILURE_S),
            "version": 0.2,
            "tvm_version": row["tvm_version"] or "unknown",
        }
    )


def ansor_line(row: Row, task: Task) -> bytes:
    """An Ansor v0.6 line (TVM ``auto_scheduler/measure_record.cc``).

    Tasks without hardware parameters were never written after v0.2: their lines stay v0.2, for
    which TVM fills in its defaults.
    """
    items = orjson.loads(task.blob or "[]")
    bare = len(items) < 3 or not items[2]
    return orjson.dumps(
        {
            "i": [items[:2] if bare else items, orjson.Fragment(row["schedule"])],
            "r": _result(row, FAILURE_S),
            "v": "v0.2" if bare else "v0.6",
        }
    )


def metaschedule_line(row: Row, task: Task, workload: int) -> bytes:
    """A line of a MetaSchedule database's tuning records."""
    target: Any = task.target
    if target.startswith("{"):
        target = orjson.Fragment(target)
    costs = row["run_times_s"] or [FAILURE_S]
    record = [orjson.Fragment(row["schedule"]), costs, target, task.arguments]
    return orjson.dumps([workload, record])


def trial_line(row: Row) -> bytes:
    """What the collector's sidecar says of a MetaSchedule record."""
    return orjson.dumps(
        {"elapsed_s": row["elapsed_s"], "timestamp": row["timestamp"], "state": row["state"]}
    )


def _result(row: Row, failure_s: float) -> list[Any]:
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


_INVALIDITY = {
    "ok": "correct",
    "instantiation": "constraints",
    "compile": "compile",
    "runtime": "runtime",
    "wrong_answer": "correctness",
    "build_timeout": "timeout",
    "run_timeout": "timeout",
    "unknown": "runtime",
}
_CACHE_FAILURES = {
    "instantiation": "InvalidConfig",
    "compile": "CompilationFailedConfig",
    "build_timeout": "CompilationFailedConfig",
}


def t4_result(row: Row, sketch: Sketch) -> dict[str, Any]:
    """A result of a T4 document, times in seconds."""
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


def cache_entry(row: Row, sketch: Sketch) -> dict[str, Any]:
    """An entry of a Kernel Tuner cache, times in milliseconds.

    What was read stands there once more under ``toolkit``, in seconds and as it was: scaled
    numbers would not come back to the last bit, and a cache has few words for failures.
    """
    times = [1e3 * time for time in row["run_times_s"]]
    failure = _CACHE_FAILURES.get(row["state"], "RuntimeFailedConfig")
    spent = max(1e3 * (row["elapsed_s"] or 0.0) - sum(times), 0.0)
    entry = {
        **configuration(row, sketch),
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
    """Knob values by name; the parts of a tile one by one (its outermost follows, and is out)."""
    if sketch.format in ("t4", "kernel-tuner"):
        found: dict[str, Any] = orjson.loads(row["schedule"])
        return found
    decisions = row["decisions"]
    values: dict[str, Any] = {}
    for knob in sketch.knobs:
        labels = dict(knob.labels)
        parts = decisions[knob.free]
        for number, part in enumerate(parts):
            # Kernel Tuner wants names that a program could use for variables.
            name = re.sub(r"\W", "_", knob.name)
            name = name if len(parts) == 1 else f"{name}_{number + 1}"
            values[f"{name}_" if name in values else name] = labels.get(part, part)
    return values


def _iso(timestamp: float) -> str:
    return datetime.fromtimestamp(timestamp, timezone.utc).isoformat(sep=" ")
