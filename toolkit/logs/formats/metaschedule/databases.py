"""The files of a MetaSchedule database: which belong together, and what they say."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import orjson

from toolkit.errors import LogError
from toolkit.logs.files.files import BOM, DecompressionErrors, read_blocks
from toolkit.logs.files.places import Place
from toolkit.logs.formats.metaschedule.reader import Database
from toolkit.logs.formats.metaschedule.workload import LoggedWorkload, read_workload
from toolkit.logs.rows.base import BadLine
from toolkit.logs.rows.format import Beside

_ENDINGS = r"(\.json)?(\.(gz|xz|zst))?$"
_WORKLOAD = re.compile(rb'\[\s*"\d+"\s*,\s*"')
_HEAD_BYTES = 2**16


class Files(Beside):
    """What stands beside a database's records, and the files that say it."""

    def __init__(self, database: Database, records: Place, workloads: Place | None) -> None:
        self.database = database
        self.machine = database.machine
        self._records, self._workloads = records, workloads
        # Where records are described by their place in the source (a collector's sidecar), that
        # follows from all blocks before; another process cannot open what lies in an archive.
        has_trials = callable(database.trials) or len(database.trials) > 0
        packed = workloads is not None and workloads.member is not None
        self.portable = not has_trials and not packed

    @property
    def context(self) -> str:
        """The file of workloads, and whether a sidecar describes the records."""
        return f"{self._workloads} {bool(self.database.trials)}"

    def description(self) -> Any:
        """The paths of both files."""
        workloads = self._workloads
        return [str(self._records), None if workloads is None else str(workloads)]


def looks_like_workload(line: bytes) -> bool:
    """Whether a line begins like a workload; it may be cut off."""
    return _WORKLOAD.match(line) is not None


def workload_file(records: Place, known: Iterable[Place] = ()) -> Place | None:
    """Find the workload file of a records file: in its folder, by name, or the only one there."""
    beside = [place for place in known if place.folder == records.folder]
    if not beside:
        # The records may have been named alone: look beside them.
        beside = [place for place in records.siblings() if _holds_workloads(place)]
    partner = _stem(records).replace("tuning_record", "workload")
    for place in beside:
        if _stem(place) == partner:
            return place
    return beside[0] if len(beside) == 1 else None


def _stem(place: Place) -> str:
    return re.sub(_ENDINGS, "", place.name)


def _holds_workloads(place: Place) -> bool:
    if "workload" not in place.name:
        return False
    try:
        with place.open() as stream:
            head = stream.read(_HEAD_BYTES).removeprefix(BOM)
        return any(looks_like_workload(line.strip()) for line in head.split(b"\n"))
    except (LogError, OSError, *DecompressionErrors):
        return False


def read_files(records: Place, workloads: Place | None) -> Files:
    """Read what stands beside a database's records, and keep where it stands."""
    return Files(read_database(records, workloads), records, workloads)


def read_database(records: Place, workloads: Place | None) -> Database:
    """Read what stands beside a database's records."""
    stem = _stem(records)
    prefix = stem[: -len("tuning_record")] if stem.endswith("tuning_record") else "database_"
    trials = _sidecar(records, f"{prefix}trials.jsonl")
    names, sizes, machine = _collection(_sidecar(records, "collection.json"))
    return Database(
        workloads=[] if workloads is None else _read_workloads(workloads),
        trials=[] if trials is None else _read_trials(trials),
        names=names,
        space_sizes=sizes,
        machine=machine,
    )


def _sidecar(records: Place, name: str) -> Place | None:
    wanted = {f"{name}{ending}" for ending in ("", ".gz", ".xz", ".zst")}
    return next((place for place in records.siblings() if place.name in wanted), None)


def _collection(place: Place | None) -> tuple[dict[int, str], dict[int, int], str | None]:
    """Task names and sizes of spaces by workload index, and the machine."""
    names: dict[int, str] = {}
    sizes: dict[int, int] = {}
    if place is None:
        return names, sizes, None
    try:
        with place.open() as stream:
            about = orjson.loads(stream.read())
    except (LogError, OSError, orjson.JSONDecodeError, *DecompressionErrors):
        return names, sizes, None
    if not isinstance(about, dict):
        return names, sizes, None
    tasks = about.get("tasks")
    for task in tasks if isinstance(tasks, list) else []:
        index = task.get("workload_index") if isinstance(task, dict) else None
        if type(index) is not int:
            continue
        if isinstance(task.get("name"), str):
            names[index] = task["name"]
        if type(task.get("space_size")) is int:
            sizes[index] = task["space_size"]
    machine = about.get("machine")
    return names, sizes, machine if isinstance(machine, str) else None


def _read_workloads(place: Place) -> list[LoggedWorkload | None]:
    found: list[LoggedWorkload | None] = []
    for line in _lines(place):
        if line.strip():
            try:
                found.append(read_workload(line))
            except BadLine:
                found.append(None)
    return found


def _read_trials(place: Place) -> list[Any]:
    rows: list[Any] = []
    for line in _lines(place):
        try:
            rows.append(orjson.loads(line))
        except orjson.JSONDecodeError:
            rows.append(None)
    return rows


def _lines(place: Place) -> Iterable[bytes]:
    """Lines of a file as far as it can be read; its damage is reported where it is a source."""
    try:
        with place.open() as stream:
            for block in read_blocks(stream):
                yield from (piece.removesuffix(b"\n") for piece in block.pieces())
    except (LogError, OSError):
        return
