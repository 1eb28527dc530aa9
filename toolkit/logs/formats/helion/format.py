"""Helion's autotuning log: ``NAME.csv``, and ``NAME.meta.jsonl`` beside it.

As ``helion/autotuner/logger.py`` writes them with ``HELION_AUTOTUNE_LOG=NAME``. The table has all
runs of a process, with a row for each change in the status of a configuration::

    run_id,timestamp_s,config_id,generation,status,perf_ms,compile_time_s,config
    5c1f..,1.20,ab12..,0,ok,0.412000,0.80,"Config(block_sizes=[64, 32], num_warps=4)"

Older versions have other columns before ``status``. The second file is written only with
``HELION_AUTOTUNE_LOG_DETAILS=1``. It has one line per ``run_id`` with the kernel, shapes, types and
device.
"""

from __future__ import annotations

import ast
import csv
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import orjson

from toolkit.logs.files.files import BOM
from toolkit.logs.files.places import Place
from toolkit.logs.rows.base import BadLine, Reading, refuse_deep
from toolkit.logs.rows.format import Beside, DocumentFormat, LineFormat
from toolkit.logs.rows.identity import make_task
from toolkit.logs.rows.json_text import part
from toolkit.logs.rows.parameters import Entry, ParameterDocument
from toolkit.logs.rows.results import BlockResult
from toolkit.records import Task, TrialState, canonical_json

NAME = "helion"
COLUMNS = {"status", "perf_ms", "config"}
MAX_CONFIGURATION = 2**16
STATES = {
    "ok": TrialState.OK,
    "error": TrialState.UNKNOWN,  # it failed to compile or run, or gave wrong values
    "timeout": TrialState.BUILD_TIMEOUT,
    "peer_compilation_fail": TrialState.COMPILE,
}
_ENDINGS = (".csv", ".csv.gz", ".csv.xz", ".csv.zst", ".csv.bz2")
_KEPT = ("kernel_name", "input_shapes", "dtypes", "hardware", "hardware_info", "settings")
"""Keys of a run's description that are kept."""


class HelionRuns(LineFormat):
    """Descriptions of runs: kept with the tasks, not records."""

    name = "helion-run"
    begins = re.compile(rb'\{\s*"run_id"\s*:\s*"')

    def accepts(self, entry: Any) -> bool:
        return isinstance(entry, dict) and {"run_id", "kernel_name"} <= entry.keys()

    def reader(self, machine: str | None, beside: Any = None) -> HelionRuns:
        return self

    def interpret(self, entry: Any, index: int, line: bytes) -> Reading:
        """Refuse the line: it is no record."""
        raise BadLine("a run's description, kept with its tasks")


class RunDescriptions(Beside):
    """The content of the second file, by ``run_id``."""

    def __init__(self, about: dict[str, dict[str, Any]]) -> None:
        self.about = about
        devices = {device_of(one) for one in about.values()}
        self.machine = devices.pop() if len(devices) == 1 else None

    @property
    def note(self) -> str | None:
        return None if self.about else "no .meta.jsonl beside it: kernels and shapes are unknown"

    @property
    def context(self) -> str:
        return canonical_json(self.about).decode()


def device_of(about: dict[str, Any]) -> str | None:
    """Return the name of a run's device."""
    hardware = about.get("hardware_info")
    name = hardware.get("device_name") if isinstance(hardware, dict) else about.get("hardware")
    return name if isinstance(name, str) and name else None


class Helion(DocumentFormat):
    """Autotuning logs of Helion."""

    name = NAME
    extractor = "parameters"
    companion = HelionRuns.name

    def recognises(self, head: bytes) -> bool:
        first = head.removeprefix(BOM).split(b"\n", 1)[0].decode(errors="replace")
        return set(first.strip().split(",")) >= COLUMNS

    def beside(self, place: Place, companions: Sequence[Place]) -> RunDescriptions:
        """Read the ``.meta.jsonl`` of the same name, or the only one in the folder."""
        near = [one for one in place.siblings() if ".meta.jsonl" in one.name]
        stem = next((place.name.removesuffix(e) for e in _ENDINGS if place.name.endswith(e)), "")
        same = [one for one in near if one.name.startswith(f"{stem}.meta.jsonl")]
        chosen = same or (near if len(near) == 1 else [])
        return RunDescriptions(_described(chosen[0]) if chosen else {})

    def read(self, data: bytes, name: str, machine: str | None, beside: Any = None) -> BlockResult:
        try:
            lines = data.removeprefix(BOM).decode().removesuffix("\n").split("\n")
        except UnicodeDecodeError as error:
            raise BadLine(f"damaged bytes: not UTF-8 at byte {error.start}") from None
        return HelionLog(lines, name, machine, beside or RunDescriptions({})).read()


class HelionLog(ParameterDocument):
    """Rows of a table, one line each."""

    def __init__(
        self, lines: list[str], name: str, machine: str | None, runs: RunDescriptions
    ) -> None:
        super().__init__({}, name, machine)
        self._columns = lines[0].strip().split(",") if lines else []
        self.entries, self.choices = lines[1:], {}
        self._name, self._machine, self._runs = name, machine, runs
        self._tasks: dict[str, Task] = {}

    def entry(self, raw: Any) -> Entry:
        try:
            cells = next(csv.reader([raw.rstrip("\r")], strict=True), [])
        except csv.Error as error:
            raise BadLine(f"not a CSV row: {error}") from None
        if len(cells) != len(self._columns):
            raise BadLine(f"{len(cells)} cells, but the table has {len(self._columns)} columns")
        row = dict(zip(self._columns, cells, strict=True))
        state = STATES.get(row["status"])
        if state is None:
            raise BadLine(f"nothing was measured: {row['status'][:40] or 'no status'}")
        costs: list[float] = []
        if state is TrialState.OK:
            try:
                costs = [float(row["perf_ms"]) * 1e-3]
            except ValueError:
                raise BadLine("the time is not a number") from None
        values = configuration(row["config"])
        self.task = self._task(row.get("run_id", ""))
        return values, state, costs, None, None

    def _task(self, run_id: str) -> Task:
        if run_id not in self._tasks:
            about = self._runs.about.get(run_id, {})
            kind = part(about, "hardware_info").get("device_kind")
            backend = part(about, "settings").get("backend")
            shapes = [_value(about[key]) for key in ("input_shapes", "dtypes") if key in about]
            self._tasks[run_id] = make_task(
                format=NAME,
                workload=str(about.get("kernel_name") or self._name),
                arguments=shapes or None,
                target=str(backend or NAME),
                target_kind=str(kind or "unknown"),
                machine=self._machine or device_of(about),
                identity=run_id or None,
            )
        return self._tasks[run_id]


def configuration(text: str) -> dict[str, Any]:
    """Return the values of a configuration, written as JSON or as ``Config(name=value, ...)``.

    Each item of a flat list is a separate parameter: ``block_sizes[0]``.
    """
    if len(text) > MAX_CONFIGURATION:
        raise BadLine(f"the configuration has more than {MAX_CONFIGURATION:,} characters")
    try:
        if text.startswith("{"):
            told = orjson.loads(text)
        else:
            call = ast.parse(text, mode="eval").body
            if not isinstance(call, ast.Call) or call.args:
                raise ValueError
            told = {str(word.arg): ast.literal_eval(word.value) for word in call.keywords}
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
        raise BadLine("the configuration cannot be read") from None
    values: dict[str, Any] = {}
    for name, value in told.items():
        if isinstance(value, list) and not any(isinstance(item, (list, dict)) for item in value):
            values |= {f"{name}[{place}]": item for place, item in enumerate(value)}
        else:
            values[name] = value
    return values


def _value(text: Any) -> Any:
    """Parse shapes or types that Helion wrote with Python's ``str``; else return the text."""
    try:
        return orjson.loads(orjson.dumps(ast.literal_eval(str(text)[:MAX_CONFIGURATION])))
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
        return str(text)


def _described(place: Place) -> dict[str, dict[str, Any]]:
    """Descriptions by ``run_id``, from valid lines; the file's own report names damaged lines."""
    about: dict[str, dict[str, Any]] = {}
    for line in place.lines():
        with suppress(BadLine, orjson.JSONDecodeError):
            entry = orjson.loads(line)
            refuse_deep(line)
            if isinstance(entry, dict) and isinstance(entry.get("run_id"), str):
                about[entry["run_id"]] = {key: entry[key] for key in _KEPT if key in entry}
    return about
