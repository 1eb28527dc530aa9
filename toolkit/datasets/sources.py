"""What files are, before they are read: kinds, identities, companions."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from toolkit.errors import LogError
from toolkit.logs.base import BadLine
from toolkit.logs.detect import Kind, detect
from toolkit.logs.files import DecompressionErrors, open_log, read_blocks
from toolkit.logs.metaschedule import Database
from toolkit.logs.metaschedule_workload import Workload, read_workload
from toolkit.records import content_id

HEAD_BYTES = 2**18
_ENDINGS = r"(\.json)?(\.(gz|xz|zst))?$"


@dataclass
class LogFile:
    """One file that was asked for."""

    path: Path
    kind: Kind
    labels: dict[str, str] = field(default_factory=dict)
    machine: str | None = None
    trouble: str | None = None

    @property
    def source_id(self) -> str:
        """Identity of the file in a dataset: its resolved path."""
        return content_id("source", str(self.path.resolve()))


def inspect(path: Path, machine: str | None, path_rule: re.Pattern[str] | None) -> LogFile:
    """Recognise a file and read its labels off its path."""
    labels: dict[str, str] = {}
    if path_rule is not None and (match := path_rule.search(path.as_posix())):
        labels = {k: v for k, v in match.groupdict().items() if v is not None}
    named = labels.pop("machine", None)
    try:
        with open_log(path) as stream:
            kind = detect(stream.read(HEAD_BYTES), path.name)
    except LogError as error:
        return LogFile(path, Kind.FOREIGN, labels, trouble=error.what)
    except (OSError, *DecompressionErrors) as error:
        return LogFile(path, Kind.FOREIGN, labels, trouble=f"cannot be read: {error}")
    return LogFile(path, kind, labels, machine or named)


def sha256_of(path: Path) -> str:
    """SHA-256 of a file as it lies on disk."""
    with path.open("rb") as stream:
        digest = hashlib.sha256()
        while chunk := stream.read(2**20):
            digest.update(chunk)
    return digest.hexdigest()


def database_of(records: Path, workload_files: list[Path]) -> tuple[Database, Path | None]:
    """Find and read what stands beside a MetaSchedule database's records."""
    path = _workload_file(records, workload_files)
    workloads = [] if path is None else _read_workloads(path)
    stem = re.sub(_ENDINGS, "", records.name)
    prefix = stem[: -len("tuning_record")] if stem.endswith("tuning_record") else "database_"
    trials = _sidecar(records.parent, f"{prefix}trials.jsonl")
    collection: Any = {}
    about = _sidecar(records.parent, "collection.json")
    if about is not None:
        with open_log(about) as stream:
            try:
                collection = orjson.loads(stream.read())
            except orjson.JSONDecodeError:
                collection = {}
    names: dict[int, str] = {}
    sizes: dict[int, int] = {}
    if isinstance(collection, dict):
        for task in collection.get("tasks") or []:
            index = task.get("workload_index")
            if isinstance(task.get("name"), str):
                names[index] = task["name"]
            if isinstance(task.get("space_size"), int):
                sizes[index] = task["space_size"]
    machine = collection.get("machine") if isinstance(collection, dict) else None
    return (
        Database(
            workloads=workloads,
            trials=[] if trials is None else _read_trials(trials),
            names=names,
            space_sizes=sizes,
            machine=machine if isinstance(machine, str) else None,
        ),
        path,
    )


def _workload_file(records: Path, candidates: list[Path]) -> Path | None:
    beside = [path for path in candidates if path.parent == records.parent]
    if not beside:
        # The records may have been named alone: look beside them.
        for path in sorted(records.parent.iterdir()):
            if path.is_file() and "workload" in path.name:
                try:
                    with open_log(path) as stream:
                        if detect(stream.read(HEAD_BYTES), path.name) is Kind.METASCHEDULE_WORKLOAD:
                            beside.append(path)
                except (LogError, OSError, *DecompressionErrors):
                    continue
    stem = re.sub(_ENDINGS, "", records.name)
    matching = [p for p in beside if re.sub(_ENDINGS, "", p.name) == _partner(stem)]
    if matching:
        return matching[0]
    return beside[0] if len(beside) == 1 else None


def _partner(stem: str) -> str:
    return stem.replace("tuning_record", "workload")


def _read_workloads(path: Path) -> list[Workload | None]:
    found: list[Workload | None] = []
    with open_log(path) as stream:
        try:
            for block in read_blocks(stream):
                for line in block.pieces():
                    if not line.strip():
                        continue
                    try:
                        found.append(read_workload(line))
                    except BadLine:
                        found.append(None)
        except LogError:
            pass  # the workload file is a source too, and reports its damage there
    return found


def _sidecar(folder: Path, name: str) -> Path | None:
    for ending in ("", ".gz", ".xz", ".zst"):
        path = folder / f"{name}{ending}"
        if path.is_file():
            return path
    return None


def _read_trials(path: Path) -> list[Any]:
    rows: list[Any] = []
    with open_log(path) as stream:
        for block in read_blocks(stream):
            for line in block.pieces():
                try:
                    rows.append(orjson.loads(line))
                except orjson.JSONDecodeError:
                    rows.append(None)
    return rows
