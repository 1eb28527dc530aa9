"""MetaSchedule's databases as two formats: records, and the workloads beside them.

Finds the files that belong together, reads and writes databases.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from toolkit.errors import LogError
from toolkit.logs.files.files import BOM, DecompressionErrors
from toolkit.logs.files.places import Place
from toolkit.logs.formats.metaschedule.blocks import MetaScheduleBlocks
from toolkit.logs.formats.metaschedule.reader import Database, MetaScheduleReader
from toolkit.logs.formats.metaschedule.trace import FORMAT
from toolkit.logs.formats.metaschedule.workload import WORKLOAD, read_workload
from toolkit.logs.rows.base import BadLine, Reading
from toolkit.logs.rows.format import FAILURE_S, LineFormat, Row, Selection
from toolkit.logs.rows.json_text import part
from toolkit.records import EMULATOR, MACHINE_FINGERPRINT, Task


class MetaScheduleWorkloads(LineFormat):
    """The workloads of a database: lines that are kept with the tasks, not records."""

    name = "metaschedule-workload"
    begins = re.compile(rb'\[\s*"\d+"\s*,\s*"')

    def accepts(self, entry: Any) -> bool:
        return isinstance(entry, list)

    def reader(self, machine: str | None, beside: Any = None) -> MetaScheduleWorkloads:
        return self

    def interpret(self, entry: Any, index: int, line: bytes) -> Reading:
        """Raise ``BadLine`` with the line's damage, or because it is a workload."""
        read_workload(line)
        raise BadLine(WORKLOAD)


class MetaSchedule(LineFormat):
    """Databases of any TVM version."""

    name = FORMAT
    begins = re.compile(rb"\[\s*\d+\s*,\s*\[\s*\[\s*\[")
    extractor = "primitives"
    writes = frozenset({FORMAT})
    companion = MetaScheduleWorkloads.name

    def accepts(self, entry: Any) -> bool:
        return isinstance(entry, list)

    def reader(self, machine: str | None, beside: Any = None) -> MetaScheduleReader:
        return MetaScheduleReader(beside or Database(), machine)

    def together(self, reader: MetaScheduleReader) -> MetaScheduleBlocks | None:
        """Return a reader that parses recurring pieces once.

        ``None`` if a sidecar describes each record, or if the workload file is missing (the trace
        then identifies the task).
        """
        known = reader.database
        return None if known.trials or not known.workloads else MetaScheduleBlocks(reader)

    def space_sizes(self, reader: MetaScheduleReader) -> Mapping[str, int]:
        """Sizes that the collector stated, by task id."""
        sizes = reader.database.space_sizes
        return {task: sizes[w] for task, w in reader.workloads.items() if w in sizes}

    def beside(self, place: Place, companions: Sequence[Place]) -> Database:
        return read_database(place, workload_file(place, companions))

    def reopened(self, description: Any) -> Database:
        """Read a database's files again from their paths."""
        records, workloads = description
        return read_database(Place(Path(records)), workloads and Place(Path(workloads)))

    def write(self, selection: Selection, out: Path) -> dict[Path, bytes]:
        """Write a database, with the collector's sidecars if they hold information."""
        workloads: dict[str, int] = {}
        about: dict[int, dict[str, Any]] = {}
        records: list[bytes] = []
        trials: list[bytes] = []
        machines: set[str | None] = set()
        sources: dict[str, Mapping[str, str]] = {}
        timed = False
        for row in selection.rows:
            task = selection.tasks[row["task_id"]]
            if task.blob is None:
                raise LogError(
                    f"the workload of task {task.task_id} is lost: TVM could not read the database",
                    cure="ingest the records with their workload file, or select other tasks",
                )
            index = workloads.setdefault(task.blob, len(workloads))
            size = selection.space_sizes.get(task.task_id)
            about[index] = {"workload_index": index, "name": task.workload, "space_size": size}
            machines.add(task.machine)
            sources[row["source_id"]] = selection.labels.get(row["source_id"], {})
            records.append(metaschedule_line(row, task, index) + b"\n")
            told = {name: row[name] for name in ("elapsed_s", "timestamp", "state")}
            trials.append(orjson.dumps(told) + b"\n")
            timed = timed or row["elapsed_s"] is not None or row["timestamp"] is not None
        written = {
            out / "database_workload.json": "".join(f"{w}\n" for w in workloads).encode(),
            out / "database_tuning_record.json": b"".join(records),
        }
        # Sidecars of an earlier export are overwritten: they would describe these records.
        if timed or (out / "database_trials.jsonl").exists():
            written[out / "database_trials.jsonl"] = b"".join(trials)
        machine = machines.pop() if len(machines) == 1 else None
        if machine is not None or (out / "collection.json").exists():
            collection: dict[str, Any]
            collection = {"machine": machine, "protocol": {}, "tasks": list(about.values())}
            fingerprints = {labels.get(MACHINE_FINGERPRINT) for labels in sources.values()}
            emulators = {labels[EMULATOR] for labels in sources.values() if EMULATOR in labels}
            if len(fingerprints) == 1 and None not in fingerprints:
                collection[MACHINE_FINGERPRINT] = {"id": fingerprints.pop()}
            if emulators:
                known = collection.setdefault(MACHINE_FINGERPRINT, {})
                known[EMULATOR] = min(emulators)
            written[out / "collection.json"] = orjson.dumps(collection)
        return written


def metaschedule_line(row: Row, task: Task, workload: int) -> bytes:
    """Make a line of a MetaSchedule database's tuning records."""
    target: Any = task.target
    if target.startswith("{"):
        target = orjson.Fragment(target)
    costs = row["run_times_s"] or [FAILURE_S]
    record = [orjson.Fragment(row["schedule"]), costs, target, task.arguments]
    return orjson.dumps([workload, record])


def workload_file(records: Place, known: Iterable[Place] = ()) -> Place | None:
    """Find the workload file of a record file in its folder: by name, or the only one there."""
    beside = [place for place in known if place.folder == records.folder]
    if not beside:
        # Perhaps only the records were given: look beside them.
        beside = [place for place in records.siblings() if _holds_workloads(place)]
    partner = records.stem.replace("tuning_record", "workload")
    found = [place for place in beside if place.stem == partner][:1] or beside
    return found[0] if len(found) == 1 else None


def _holds_workloads(place: Place) -> bool:
    if "workload" not in place.name:
        return False
    try:
        with place.open() as stream:
            head = stream.read(2**16).removeprefix(BOM)
        workloads = MetaScheduleWorkloads()
        return any(workloads.recognises(line.strip(), None) for line in head.split(b"\n"))
    except (LogError, *DecompressionErrors):
        return False


def read_database(records: Place, workloads: Place | None) -> Database:
    """Read the files beside a database's records."""
    stem = records.stem
    prefix = stem.removesuffix("tuning_record") if stem.endswith("tuning_record") else "database_"
    trials = _sidecar(records, f"{prefix}trials.jsonl")
    collection = _sidecar(records, "collection.json")
    about = collection.json() if collection else {}
    tasks, machine = about.get("tasks"), about.get("machine")
    known = part(about, MACHINE_FINGERPRINT)
    of_machine = {MACHINE_FINGERPRINT: known.get("id"), EMULATOR: known.get(EMULATOR)}
    told = [
        (task["workload_index"], task.get("name"), task.get("space_size"))
        for task in (tasks if isinstance(tasks, list) else [])
        if isinstance(task, dict) and type(task.get("workload_index")) is int
    ]
    lines: Iterable[bytes] = workloads.lines() if workloads else ()
    return Database(
        workloads=[_read(read_workload, line) for line in lines if line.strip()],
        trials=[_read(orjson.loads, line) for line in trials.lines()] if trials else [],
        names={at: name for at, name, _ in told if isinstance(name, str)},
        space_sizes={at: size for at, _, size in told if type(size) is int},
        machine=machine if isinstance(machine, str) else None,
        labels={name: word for name, word in of_machine.items() if isinstance(word, str)},
        records=records,
        file=workloads,
    )


def _sidecar(records: Place, name: str) -> Place | None:
    wanted = {f"{name}{ending}" for ending in ("", ".gz", ".xz", ".zst", ".bz2")}
    return next((place for place in records.siblings() if place.name in wanted), None)


def _read(how: Callable[[bytes], Any], line: bytes) -> Any:
    """Return a line's content, or ``None`` if it is damaged (the indices of lines must stay)."""
    try:
        return how(line)
    except (BadLine, orjson.JSONDecodeError):
        return None
