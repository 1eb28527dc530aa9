"""T4 results and Kernel Tuner caches: one JSON document per file, one entry per configuration.

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
"""

from __future__ import annotations

from typing import Any

from toolkit.logs.rows.base import BadLine, seconds
from toolkit.logs.rows.identity import make_task
from toolkit.logs.rows.json_text import part
from toolkit.logs.rows.parameters import Entry, ParameterDocument, scaled, shallow
from toolkit.records import TrialState

T4, KERNEL_TUNER = "t4", "kernel-tuner"
"""Names of the two formats."""

T4_STATES = {
    "correct": TrialState.OK,
    "timeout": TrialState.RUN_TIMEOUT,
    "compile": TrialState.COMPILE,
    "runtime": TrialState.RUNTIME,
    "correctness": TrialState.WRONG_ANSWER,
    "constraints": TrialState.INSTANTIATION,
}
CACHE_STATES = {
    "InvalidConfig": TrialState.INSTANTIATION,
    "CompilationFailedConfig": TrialState.COMPILE,
    "RuntimeFailedConfig": TrialState.RUNTIME,
}
"""States by the words of each format; the formats have no words for other states."""
_STATES = {state.value: state for state in TrialState}
"""States by the words of the toolkit's own exports."""
_UNITS = {
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1.0),
    # "miliseconds" is what Kernel Tuner writes.
    **dict.fromkeys(("ms", "millisecond", "milliseconds", "miliseconds"), 1e-3),
    **dict.fromkeys(("us", "µs", "microsecond", "microseconds"), 1e-6),
    **dict.fromkeys(("ns", "nanosecond", "nanoseconds"), 1e-9),
}
_CACHE_TIMES = [
    f"{part}_time" for part in ("compile", "verification", "benchmark", "strategy", "framework")
]


class T4Document(ParameterDocument):
    """T4 results."""

    around = (rb'"results"\s*:\s*\[', b"]}", False)

    def __init__(self, document: dict[str, Any], name: str, machine: str | None) -> None:
        super().__init__(document, name, machine)
        results, about = document.get("results"), part(document, "metadata")
        if not isinstance(results, list):
            raise BadLine("the document has no results")
        unit = str(about.get("timeunit") or "ms")
        if unit.lower() not in _UNITS:
            raise BadLine(f"the time unit {unit[:40]!r} is not known")
        self._unit = _UNITS[unit.lower()]
        self.entries, self.choices = results, {}
        self.task = make_task(
            format=T4,
            workload=str(about.get("workload") or name),
            arguments=shallow(about.get("arguments")),
            target=str(about.get("target") or ""),
            target_kind=str(about.get("target_kind") or "unknown"),
            machine=machine or (str(about["machine"]) if about.get("machine") else None),
        )

    def entry(self, raw: Any) -> Entry:
        if not isinstance(raw, dict) or not isinstance(raw.get("configuration"), dict):
            raise BadLine("a result has no configuration")
        state = T4_STATES.get(str(raw.get("invalidity")))
        if state is None:
            raise BadLine(f"the invalidity {str(raw.get('invalidity'))[:40]!r} is not known")
        times = part(raw, "times")
        measured = times.get("runtimes") or _measured_time(raw, self._unit)
        spent = [value for key, value in times.items() if key != "runtimes"]
        spent += measured if isinstance(measured, list) else []
        if "elapsed" in times:  # added by the toolkit's export
            spent = [times["elapsed"]]
        state = _STATES.get(str(raw.get("toolkit_state")), state)
        run_times, elapsed = scaled(measured, self._unit), _sum(spent, self._unit)
        return raw["configuration"], state, run_times, elapsed, raw.get("timestamp")


class CacheDocument(ParameterDocument):
    """A Kernel Tuner cache."""

    around = (rb'"cache"\s*:\s*\{', b"}}", True)

    def __init__(self, document: dict[str, Any], name: str, machine: str | None) -> None:
        super().__init__(document, name, machine)
        names, cache = document.get("tune_params_keys"), document.get("cache")
        if not isinstance(names, list) or not all(isinstance(each, str) for each in names):
            raise BadLine("the cache does not name its parameters")
        if not isinstance(cache, dict):
            raise BadLine("the cache has no entries")
        device, known = document.get("device_name"), part(document, "tune_params")
        self._names, self.entries = names, list(cache.values())
        self.choices = {key: values for key, values in known.items() if isinstance(values, list)}
        self.task = make_task(
            format=KERNEL_TUNER,
            workload=str(document.get("kernel_name") or name),
            arguments=shallow(document.get("problem_size")),
            target=str(device or ""),
            target_kind="unknown",
            hardware={"device_name": device} if device else {},
            machine=machine or (device if isinstance(device, str) else None),
        )

    def entry(self, raw: Any) -> Entry:
        if not isinstance(raw, dict) or not all(key in raw for key in self._names):
            raise BadLine("an entry lacks a parameter of tune_params_keys")
        time: Any = raw.get("time")
        failed = isinstance(time, str)
        state = CACHE_STATES.get(time, TrialState.UNKNOWN) if failed else TrialState.OK
        configuration = {key: raw[key] for key in self._names}
        told = raw.get("toolkit")  # added by the toolkit's export: unscaled values
        if isinstance(told, dict):
            state = _STATES.get(str(told.get("state")), state)
            spent = seconds(told.get("elapsed_s"), "elapsed time")
            return configuration, state, told.get("run_times_s"), spent, told.get("timestamp")
        run_times = scaled(raw.get("times") or [time], 1e-3)
        elapsed = _sum([raw.get(key) for key in _CACHE_TIMES], 1e-3)
        return configuration, state, run_times, elapsed, raw.get("timestamp")


def _measured_time(raw: dict[str, Any], unit: float) -> list[Any]:
    """Return the measurement called ``time``, for results without single run times.

    It may have its own unit; it is converted to ``unit``, the document's.
    """
    measurements = raw.get("measurements")
    for entry in measurements if isinstance(measurements, list) else []:
        if isinstance(entry, dict) and entry.get("name") == "time":
            own = _UNITS.get(str(entry.get("unit")).lower(), unit)
            value = [entry.get("value")]
            return value if own == unit else list(scaled(value, own / unit))
    return []


def _sum(values: list[Any], unit: float) -> float | None:
    numbers = [v for v in values if type(v) is float or type(v) is int]
    return sum(numbers) * unit if numbers else None
