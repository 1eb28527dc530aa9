"""MetaSchedule's databases as two formats: records, and the workloads beside them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from toolkit.logs.files.places import Place
from toolkit.logs.formats.metaschedule.blocks import MetaScheduleBlocks
from toolkit.logs.formats.metaschedule.databases import (
    looks_like_workload,
    read_database,
    workload_file,
)
from toolkit.logs.formats.metaschedule.reader import Database, MetaScheduleReader
from toolkit.logs.formats.metaschedule.trace import FORMAT
from toolkit.logs.formats.metaschedule.workload import WORKLOAD, read_workload
from toolkit.logs.rows.base import BadLine, Reading
from toolkit.logs.rows.format import FAILURE_S, LineFormat, Row, Selection
from toolkit.records import Task

_RECORD = re.compile(rb"\[\s*\d+\s*,\s*\[\s*\[\s*\[")


class MetaScheduleWorkloads(LineFormat):
    """The workloads of a database: its lines are kept with the tasks, and are no records."""

    name = "metaschedule-workload"

    def accepts(self, entry: Any) -> bool:
        """Whether it is a list."""
        return isinstance(entry, list)

    def recognises(self, line: bytes, entry: Any) -> bool:
        """Whether it begins with a hash; the line may be cut off."""
        return looks_like_workload(line)

    def reader(self, machine: str | None, beside: Any = None) -> _Workloads:
        """Return a reader of one source."""
        return _Workloads()


class _Workloads:
    def interpret(self, entry: Any, index: int, line: bytes) -> Reading:
        """Read a workload, and say that it is no record."""
        read_workload(line)
        raise BadLine(WORKLOAD)


class MetaSchedule(LineFormat):
    """Databases of any TVM version."""

    name = FORMAT
    extractor = "primitives"
    writes = frozenset({FORMAT})
    companion = MetaScheduleWorkloads.name

    def accepts(self, entry: Any) -> bool:
        """Whether it is a list."""
        return isinstance(entry, list)

    def recognises(self, line: bytes, entry: Any) -> bool:
        """Whether it begins like a record; the line may be cut off."""
        return _RECORD.match(line) is not None

    def reader(self, machine: str | None, beside: Any = None) -> MetaScheduleReader:
        """Return a reader of one source; ``beside`` is its ``Database``."""
        return MetaScheduleReader(beside or Database(), machine)

    def together(self, reader: MetaScheduleReader) -> MetaScheduleBlocks | None:
        """Pieces that recur are parsed once; not where a sidecar describes each record."""
        return None if reader.database.trials else MetaScheduleBlocks(reader)

    def space_sizes(self, reader: MetaScheduleReader) -> Mapping[str, int]:
        """What the collector stated, by task id."""
        sizes = reader.database.space_sizes
        return {task: sizes[w] for task, w in reader.workloads.items() if w in sizes}

    def beside(self, place: Place, companions: Sequence[Place]) -> Database:
        """Read the workloads, and what the collector said of the records."""
        return read_database(place, workload_file(place, companions))

    def reopened(self, description: Any) -> Database:
        """Read them anew from their paths."""
        records, workloads = description
        if workloads is None:
            return Database()
        return read_database(Place(Path(records)), Place(Path(workloads)))

    def write(self, selection: Selection, out: Path) -> dict[Path, bytes]:
        """A database, with the collector's sidecar where it has something to say."""
        workloads: dict[str, int] = {}
        about: dict[int, dict[str, Any]] = {}
        records: list[bytes] = []
        trials: list[bytes] = []
        machines: set[str | None] = set()
        timed = False
        for row in selection.rows:
            task = selection.tasks[row["task_id"]]
            index = workloads.setdefault(task.blob or "", len(workloads))
            size = selection.space_sizes.get(task.task_id)
            about[index] = {"workload_index": index, "name": task.workload, "space_size": size}
            machines.add(task.machine)
            records.append(metaschedule_line(row, task, index) + b"\n")
            told = {name: row[name] for name in ("elapsed_s", "timestamp", "state")}
            trials.append(orjson.dumps(told) + b"\n")
            timed = timed or row["elapsed_s"] is not None or row["timestamp"] is not None
        written = {
            out / "database_workload.json": "".join(f"{w}\n" for w in workloads).encode(),
            out / "database_tuning_record.json": b"".join(records),
        }
        if timed:
            written[out / "database_trials.jsonl"] = b"".join(trials)
        if machines != {None} and len(machines) == 1:
            collection: dict[str, Any]
            collection = {"machine": machines.pop(), "protocol": {}, "tasks": list(about.values())}
            written[out / "collection.json"] = orjson.dumps(collection)
        return written


def metaschedule_line(row: Row, task: Task, workload: int) -> bytes:
    """A line of a MetaSchedule database's tuning records."""
    target: Any = task.target
    if target.startswith("{"):
        target = orjson.Fragment(target)
    costs = row["run_times_s"] or [FAILURE_S]
    record = [orjson.Fragment(row["schedule"]), costs, target, task.arguments]
    return orjson.dumps([workload, record])
