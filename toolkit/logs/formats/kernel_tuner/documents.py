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
from typing import Any

import orjson

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
from toolkit.logs.rows.json_text import TWICE, Repeated, decode_document, holds_repeated
from toolkit.logs.rows.results import REJECTED_BYTES, BlockResult, Rejected
from toolkit.logs.rows.rows import Rows
from toolkit.records import Sketch, Task, TrialState, canonical_json

T4, KERNEL_TUNER = "t4", "kernel-tuner"
"""Names of the two formats."""

_AROUND: dict[str, tuple[bytes, bytes, bool]] = {
    T4: (rb'"results"\s*:\s*\[', b"]}", False),
    KERNEL_TUNER: (rb'"cache"\s*:\s*\{', b"}}", True),
}
"""What stands before and behind the entries, and whether each has a key."""

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
    **dict.fromkeys(("s", "seconds"), 1.0),
    **dict.fromkeys(("ms", "milliseconds", "miliseconds"), 1e-3),  # as Kernel Tuner writes it
    **dict.fromkeys(("us", "microseconds"), 1e-6),
    **dict.fromkeys(("ns", "nanoseconds"), 1e-9),
}
_CACHE_TIMES = [
    f"{part}_time" for part in ("compile", "verification", "benchmark", "strategy", "framework")
]

_Entry = tuple[dict[str, Any], TrialState, Any, "float | None", Any]
"""A configuration, its state, run times and elapsed time in seconds, timestamp."""


def read_document(data: bytes, kind: str, name: str, machine: str | None) -> BlockResult:
    """Read a document; ``name`` stands for the workload where the document does not tell it.

    Of a damaged document the entries before the damage are read; the rest is one rejected line.

    Raises
    ------
    BadLine
        When it is not the document that it seemed to be.
    """
    try:
        document, end = decode_document(data, *_AROUND[kind])
        if type(document) is Repeated:
            raise BadLine(TWICE)
        if not isinstance(document, dict):
            raise BadLine("the document is not a JSON object")
        result = (_T4 if kind == T4 else _Cache)(document, name, machine).read()
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
    """Entries of one task → rows; ``choices`` are values of parameters that the document lists."""

    task: Task
    entries: list[Any]
    choices: dict[str, list[Any]]

    def __init__(self, document: dict[str, Any]) -> None:
        self._version = str(document.get("schema_version") or "1.0.0")
        self._sketches: dict[tuple[str, ...], Sketch] = {}

    def entry(self, raw: Any) -> _Entry:
        raise NotImplementedError

    def read(self) -> BlockResult:
        """Read all entries; the n-th is line n."""
        rows = Rows()
        count = len(self.entries)
        result = BlockResult(None, count, count)
        for number, raw in enumerate(self.entries, start=1):
            try:
                if holds_repeated(raw):
                    raise BadLine(TWICE)
                rows.add(self._reading(*self.entry(raw)), number)
            except (BadLine, RecursionError, orjson.JSONEncodeError) as error:
                reason = str(error) if isinstance(error, BadLine) else TOO_DEEP
                result.rejected.append(Rejected(number, 0, reason, _bytes(raw)))
        result.rows = rows.table()
        result.tasks = [self.task] if len(result.rejected) < count else []
        result.sketches = list(self._sketches.values())
        return result

    def _reading(
        self,
        configuration: dict[str, Any],
        state: TrialState,
        costs: Any,
        elapsed: float | None,
        timestamp: Any,
    ) -> Reading:
        values = list(configuration.values())
        if not values:
            raise BadLine("the configuration is empty")
        codes = tuple(map(word_code, values))
        schedule = canonical_json(configuration)
        refuse_deep(schedule)
        run_times: tuple[float, ...] = ()
        if state is TrialState.OK:
            state, run_times = outcome_of(costs, None)
        return Reading(
            task=self.task,
            sketch=self._sketch(tuple(configuration), values),
            decisions=codes,
            schedule=schedule.decode(),
            format_version=self._version,
            state=state,
            run_times_s=run_times,
            elapsed_s=seconds(elapsed, "elapsed time"),
            timestamp=_timestamp(timestamp),
        )

    def _sketch(self, names: tuple[str, ...], values: list[Any]) -> Sketch:
        sketch = self._sketches.get(names)
        if sketch is None:
            knobs = KnobList()
            for name in names:
                known = self.choices.get(name)
                choices = None if known is None else tuple(map(word_code, known))
                knobs.add(name, "categorical", choices=choices, labels=_labels(known or ()))
            skeleton = [[name, self.choices.get(name)] for name in names]
            sketch = make_sketch(self.task.format, ["parameters", *skeleton], knobs.knobs)
        words = [_labels([value]) for value in values]
        if any(words):
            sketch = learn_labels(sketch, words)
        self._sketches[names] = sketch
        return sketch


class _T4(_Document):
    def __init__(self, document: dict[str, Any], name: str, machine: str | None) -> None:
        super().__init__(document)
        results, about = document.get("results"), document.get("metadata")
        if not isinstance(results, list):
            raise BadLine("the document has no results")
        about = about if isinstance(about, dict) else {}
        self._unit = _UNITS.get(str(about.get("timeunit") or "ms"), 1e-3)
        self.entries, self.choices = results, {}
        self.task = make_task(
            format=T4,
            workload=str(about.get("workload") or name),
            arguments=_shallow(about.get("arguments")),
            target=str(about.get("target") or ""),
            target_kind=str(about.get("target_kind") or "unknown"),
            machine=machine or (str(about["machine"]) if about.get("machine") else None),
        )

    def entry(self, raw: Any) -> _Entry:
        if not isinstance(raw, dict) or not isinstance(raw.get("configuration"), dict):
            raise BadLine("a result has no configuration")
        state = _T4_STATES.get(str(raw.get("invalidity")))
        if state is None:
            raise BadLine(f"the invalidity {str(raw.get('invalidity'))[:40]!r} is not known")
        times = raw.get("times")
        times = times if isinstance(times, dict) else {}
        measured = times.get("runtimes") or _measured_time(raw)
        spent = [value for key, value in times.items() if key != "runtimes"]
        spent += measured if isinstance(measured, list) else []
        if "elapsed" in times:  # the toolkit's own addition when it exports
            spent = [times["elapsed"]]
        state = _told_state(raw.get("toolkit_state"), state)
        run_times, elapsed = _scaled(measured, self._unit), _sum(spent, self._unit)
        return raw["configuration"], state, run_times, elapsed, raw.get("timestamp")


class _Cache(_Document):
    def __init__(self, document: dict[str, Any], name: str, machine: str | None) -> None:
        super().__init__(document)
        names, cache = document.get("tune_params_keys"), document.get("cache")
        if not isinstance(names, list) or not all(isinstance(each, str) for each in names):
            raise BadLine("the cache does not name its parameters")
        if not isinstance(cache, dict):
            raise BadLine("the cache has no entries")
        device, known = document.get("device_name"), document.get("tune_params")
        known = known if isinstance(known, dict) else {}
        self._names, self.entries = names, list(cache.values())
        self.choices = {key: values for key, values in known.items() if isinstance(values, list)}
        self.task = make_task(
            format=KERNEL_TUNER,
            workload=str(document.get("kernel_name") or name),
            arguments=_shallow(document.get("problem_size")),
            target=str(device or ""),
            target_kind="unknown",
            hardware={"device_name": device} if device else {},
            machine=machine or (device if isinstance(device, str) else None),
        )

    def entry(self, raw: Any) -> _Entry:
        if not isinstance(raw, dict) or not all(key in raw for key in self._names):
            raise BadLine("an entry lacks parameters")
        time: Any = raw.get("time")
        failed = isinstance(time, str)
        state = _CACHE_STATES.get(time, TrialState.UNKNOWN) if failed else TrialState.OK
        configuration = {key: raw[key] for key in self._names}
        told = raw.get("toolkit")  # as the toolkit exports it: unscaled
        if isinstance(told, dict):
            state = _told_state(told.get("state"), state)
            spent = seconds(told.get("elapsed_s"), "elapsed time")
            return configuration, state, told.get("run_times_s"), spent, told.get("timestamp")
        run_times = _scaled(raw.get("times") or [time], 1e-3)
        elapsed = _sum([raw.get(key) for key in _CACHE_TIMES], 1e-3)
        return configuration, state, run_times, elapsed, raw.get("timestamp")


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


def _labels(values: Any) -> tuple[tuple[int, str], ...]:
    words = (value for value in values if type(value) is not int)
    return tuple((word_code(word), canonical_json(word).decode()) for word in words)


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
