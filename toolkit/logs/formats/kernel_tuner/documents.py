"""T4 results and Kernel Tuner caches: one JSON document a file, an entry a configuration.

T4 (Kernel Tuner ``schema/T4/1.0.0``)::

    {"metadata": {"timeunit": "milliseconds"}, "schema_version": "1.0.0", "results": [
      {"timestamp": "...", "configuration": {name: value}, "invalidity": "correct",
       "times": {"compilation": 1.0, "framework": 1.0, "search_algorithm": 0, "validation": 0,
                 "runtimes": [...]}, "correctness": 1, "measurements": [...]}]}

Kernel Tuner cache (``schema/cache/1.1.0``), times in milliseconds; a cache that is still being
written lacks its last two brackets::

    {"device_name": "...", "kernel_name": "...", "problem_size": [...],
     "tune_params_keys": [...], "tune_params": {name: [values]}, "cache": {key: {name: value,
     "time": 1.0, "times": [...], "compile_time": 1.0, ..., "timestamp": "..."}}}

Parameters are categorical knobs. Entries are counted as lines.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

import orjson

from toolkit.logs.formats.kernel_tuner.document_text import KERNEL_TUNER, T4, decode_document
from toolkit.logs.rows.base import (
    TOO_DEEP,
    BadLine,
    Reading,
    outcome_of,
    refuse_deep,
    seconds,
    word_code,
)
from toolkit.logs.rows.identity import KnobList, learn_labels, make_sketch, make_task
from toolkit.logs.rows.repeated_keys import TWICE, Repeated, holds_repeated
from toolkit.logs.rows.results import REJECTED_BYTES, BlockResult, Rejected
from toolkit.logs.rows.rows import Rows
from toolkit.records import Sketch, Task, TrialState, canonical_json

CUT = "unfinished: the document is cut off or damaged within this entry"

_T4_STATES = {
    "correct": TrialState.OK,
    "timeout": TrialState.RUN_TIMEOUT,
    "compile": TrialState.COMPILE,
    "runtime": TrialState.RUNTIME,
    "correctness": TrialState.WRONG_ANSWER,
    "constraints": TrialState.INSTANTIATION,
}
_CACHE_STATES = {
    "InvalidConfig": TrialState.INSTANTIATION,
    "CompilationFailedConfig": TrialState.COMPILE,
    "RuntimeFailedConfig": TrialState.RUNTIME,
}
_UNITS = {
    "seconds": 1.0,
    "milliseconds": 1e-3,
    "miliseconds": 1e-3,  # as Kernel Tuner writes it
    "microseconds": 1e-6,
    "nanoseconds": 1e-9,
    "s": 1.0,
    "ms": 1e-3,
    "us": 1e-6,
    "ns": 1e-9,
}
_CACHE_TIMES = (
    "compile_time",
    "verification_time",
    "benchmark_time",
    "strategy_time",
    "framework_time",
)


class _Entry(NamedTuple):
    """One configuration and what was measured of it."""

    configuration: dict[str, Any]
    state: TrialState
    run_times: Any
    elapsed: float | None
    timestamp: Any


def read_document(data: bytes, kind: str, name: str, machine: str | None) -> BlockResult:
    """Read a document; ``name`` stands for the workload where the document does not tell it.

    Of a damaged document the entries before the damage are read; the rest is one rejected line.

    Raises
    ------
    BadLine
        When it is not the document that it seemed to be.
    """
    try:
        document, end = decode_document(data, kind)
        if type(document) is Repeated:
            raise BadLine(TWICE)
        if not isinstance(document, dict):
            raise BadLine("the document is not a JSON object")
        parse = _t4 if kind == T4 else _cache
        result = _Document(*parse(document, name, machine)).read()
    except (RecursionError, UnicodeError, orjson.JSONEncodeError):
        raise BadLine(TOO_DEEP) from None
    if end < len(data):
        rest = data[end:].lstrip(b" \t\r\n,")
        rejected = Rejected(result.lines + 1, len(data) - len(rest), CUT, rest[:REJECTED_BYTES])
        result.rejected.append(rejected)
        result.lines += 1
        result.unfinished = True
    return result


class _Document:
    """Entries of one task → rows."""

    def __init__(
        self,
        task: Task,
        entries: list[Any],
        read: Any,
        choices: dict[str, list[Any]],
        version: str,
    ) -> None:
        self._task, self._entries, self._interpret = task, entries, read
        self._choices, self._version = choices, version
        self._sketches: dict[tuple[str, ...], Sketch] = {}

    def read(self) -> BlockResult:
        """Read all entries; the n-th is line n."""
        rows = Rows()
        rejected: list[Rejected] = []
        for number, raw in enumerate(self._entries, start=1):
            try:
                if holds_repeated(raw):
                    raise BadLine(TWICE)
                rows.add(self._reading(self._interpret(raw)), number)
            except BadLine as bad:
                rejected.append(Rejected(number, 0, str(bad), _bytes(raw)))
            except (RecursionError, orjson.JSONEncodeError):
                rejected.append(Rejected(number, 0, TOO_DEEP, _bytes(raw)))
        return BlockResult(
            rows=rows.table(),
            lines=len(self._entries),
            counted=len(self._entries),
            rejected=rejected,
            tasks=[self._task] if len(rejected) < len(self._entries) else [],
            sketches=list(self._sketches.values()),
        )

    def _reading(self, entry: _Entry) -> Reading:
        names = tuple(entry.configuration)
        values = list(entry.configuration.values())
        if not names:
            raise BadLine("the configuration is empty")
        codes = tuple(word_code(value) for value in values)
        schedule = canonical_json(entry.configuration)
        refuse_deep(schedule)
        state = entry.state
        run_times: tuple[float, ...] = ()
        if state is TrialState.OK:
            state, run_times = outcome_of(entry.run_times, None)
        return Reading(
            task=self._task,
            sketch=self._sketch(names, codes, values),
            decisions=codes,
            schedule=schedule.decode(),
            format_version=self._version,
            tvm_version=None,
            state=state,
            error_number=None,
            run_times_s=run_times,
            elapsed_s=seconds(entry.elapsed, "elapsed time"),
            timestamp=_timestamp(entry.timestamp),
        )

    def _sketch(self, names: tuple[str, ...], codes: tuple[int, ...], values: list[Any]) -> Sketch:
        sketch = self._sketches.get(names)
        if sketch is None:
            knobs = KnobList()
            for name in names:
                known = self._choices.get(name)
                choices = None if known is None else tuple(map(word_code, known))
                labels = _labels(known or ())
                knobs.add(name, "categorical", choices=choices, labels=labels)
            skeleton = [[name, self._choices.get(name)] for name in names]
            sketch = make_sketch(self._task.format, ["parameters", *skeleton], knobs.knobs)
        words = [_labels([value]) for value in values]
        if any(words):
            sketch = learn_labels(sketch, words)
        self._sketches[names] = sketch
        return sketch


def _labels(values: Any) -> tuple[tuple[int, str], ...]:
    return tuple(
        (word_code(value), canonical_json(value).decode())
        for value in values
        if type(value) is not int
    )


def _shallow(value: Any) -> Any:
    refuse_deep(canonical_json(value))
    return value


def _bytes(raw: Any) -> bytes:
    try:
        return orjson.dumps(raw)[:REJECTED_BYTES]
    except orjson.JSONEncodeError:
        return b""


def _timestamp(value: Any) -> float | None:
    if not isinstance(value, str):
        return seconds(value, "timestamp")
    try:
        return datetime.fromisoformat(value).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


def _scaled(values: Any, unit: float) -> Any:
    """Numbers of a list in seconds; anything else as it is, to be refused by the caller."""
    if not isinstance(values, list):
        return values
    return [v * unit if type(v) is float or type(v) is int else v for v in values]


def _sum(values: list[Any], unit: float) -> float | None:
    numbers = [v for v in values if type(v) is float or type(v) is int]
    return sum(numbers) * unit if numbers else None


def _t4(
    document: dict[str, Any], name: str, machine: str | None
) -> tuple[Task, list[Any], Any, dict[str, list[Any]], str]:
    results, about = document.get("results"), document.get("metadata")
    if not isinstance(results, list):
        raise BadLine("the document has no results")
    about = about if isinstance(about, dict) else {}
    unit = _UNITS.get(str(about.get("timeunit") or "ms"), 1e-3)
    task = make_task(
        format=T4,
        workload=str(about.get("workload") or name),
        arguments=_shallow(about.get("arguments")),
        target=str(about.get("target") or ""),
        target_kind=str(about.get("target_kind") or "unknown"),
        machine=machine or (str(about["machine"]) if about.get("machine") else None),
    )

    def read(raw: Any) -> _Entry:
        if not isinstance(raw, dict) or not isinstance(raw.get("configuration"), dict):
            raise BadLine("a result has no configuration")
        state = _T4_STATES.get(str(raw.get("invalidity")))
        if state is None:
            raise BadLine(f"the invalidity {str(raw.get('invalidity'))[:40]!r} is not known")
        times = raw.get("times")
        times = times if isinstance(times, dict) else {}
        measured = times.get("runtimes") or _measured_time(raw)
        kinds = [value for key, value in times.items() if key != "runtimes"]
        elapsed = _sum([*kinds, *(measured if isinstance(measured, list) else [])], unit)
        if "elapsed" in times:  # the toolkit's own addition when it exports
            elapsed = _sum([times["elapsed"]], unit)
        run_times = _scaled(measured, unit)
        state = _told_state(raw.get("toolkit_state"), state)
        return _Entry(raw["configuration"], state, run_times, elapsed, raw.get("timestamp"))

    return task, results, read, {}, str(document.get("schema_version") or "1.0.0")


def _told_state(word: Any, otherwise: TrialState) -> TrialState:
    """The state that the toolkit's own export names."""
    try:
        return TrialState(word)
    except ValueError:
        return otherwise


def _measured_time(raw: dict[str, Any]) -> list[Any]:
    """The measurement called time, for results without the single run times."""
    measurements = raw.get("measurements")
    for entry in measurements if isinstance(measurements, list) else []:
        if isinstance(entry, dict) and entry.get("name") == "time":
            return [entry.get("value")]
    return []


def _cache(
    document: dict[str, Any], name: str, machine: str | None
) -> tuple[Task, list[Any], Any, dict[str, list[Any]], str]:
    names, cache = document.get("tune_params_keys"), document.get("cache")
    if not isinstance(names, list) or not all(isinstance(each, str) for each in names):
        raise BadLine("the cache does not name its parameters")
    if not isinstance(cache, dict):
        raise BadLine("the cache has no entries")
    device = document.get("device_name")
    task = make_task(
        format=KERNEL_TUNER,
        workload=str(document.get("kernel_name") or name),
        arguments=_shallow(document.get("problem_size")),
        target=str(device or ""),
        target_kind="unknown",
        hardware={"device_name": device} if device else {},
        machine=machine or (device if isinstance(device, str) else None),
    )
    values = document.get("tune_params")
    choices = {
        key: known
        for key, known in (values.items() if isinstance(values, dict) else ())
        if isinstance(known, list)
    }

    def read(raw: Any) -> _Entry:
        if not isinstance(raw, dict) or not all(key in raw for key in names):
            raise BadLine("an entry lacks parameters")
        time = raw.get("time")
        state = TrialState.OK
        if isinstance(time, str):
            state = _CACHE_STATES.get(time, TrialState.UNKNOWN)
        measured = raw.get("times") or [time]
        elapsed = _sum([raw.get(key) for key in _CACHE_TIMES], 1e-3)
        configuration = {key: raw[key] for key in names}
        told = raw.get("toolkit")  # as the toolkit exports it: unscaled
        if isinstance(told, dict):
            state = _told_state(told.get("state"), state)
            spent = seconds(told.get("elapsed_s"), "elapsed time")
            return _Entry(
                configuration, state, told.get("run_times_s"), spent, told.get("timestamp")
            )
        return _Entry(configuration, state, _scaled(measured, 1e-3), elapsed, raw.get("timestamp"))

    version = str(document.get("schema_version") or "1.0.0")
    return task, list(cache.values()), read, choices, version
