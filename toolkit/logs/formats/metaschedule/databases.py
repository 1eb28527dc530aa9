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

_ENDINGS = r"(\.json)?(\.(gz|xz|zst))?$"
_WORKLOAD = re.compile(rb'\[\s*"\d+"\s*,\s*"')
_HEAD_BYTES = 2**16


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


def read_database(records: Place, workloads: Place | None) -> Database:
    """Read what stands beside a database's records."""
    stem = _stem(records)
    prefix = stem[: -len("tuning_record")] if stem.endswith("tuning_record") else "database_"
    trials = _sidecar(records, f"{prefix}trials.jsonl")
    about = _collection(_sidecar(records, "collection.json"))
    tasks, machine = about.get("tasks"), about.get("machine")
    told = [
        (task["workload_index"], task.get("name"), task.get("space_size"))
        for task in (tasks if isinstance(tasks, list) else [])
        if isinstance(task, dict) and type(task.get("workload_index")) is int
    ]
    lines = [] if workloads is None else _lines(workloads)
    return Database(
        workloads=[_workload(line) for line in lines if line.strip()],
        trials=[] if trials is None else [_trial(line) for line in _lines(trials)],
        names={at: name for at, name, _ in told if isinstance(name, str)},
        space_sizes={at: size for at, _, size in told if type(size) is int},
        machine=machine if isinstance(machine, str) else None,
        records=records,
        file=workloads,
    )


def _sidecar(records: Place, name: str) -> Place | None:
    wanted = {f"{name}{ending}" for ending in ("", ".gz", ".xz", ".zst")}
    return next((place for place in records.siblings() if place.name in wanted), None)


def _collection(place: Place | None) -> dict[str, Any]:
    """What the collector said of the tasks and their machine."""
    if place is None:
        return {}
    try:
        with place.open() as stream:
            about = orjson.loads(stream.read())
    except (LogError, OSError, orjson.JSONDecodeError, *DecompressionErrors):
        return {}
    return about if isinstance(about, dict) else {}


def _workload(line: bytes) -> LoggedWorkload | None:
    try:
        return read_workload(line)
    except BadLine:
        return None


def _trial(line: bytes) -> Any:
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        return None


def _lines(place: Place) -> Iterable[bytes]:
    """Lines of a file as far as it can be read; its damage is reported where it is a source."""
    try:
        with place.open() as stream:
            for block in read_blocks(stream):
                yield from (piece.removesuffix(b"\n") for piece in block.pieces())
    except (LogError, OSError):
        return
