"""``dataset.json``: the one file that says what belongs to a dataset.

Parts are written under new names first; a commit is the atomic replacement of this file. What
it does not name does not exist, so a run that is killed leaves the last commit as it was.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import orjson

from toolkit.errors import DatasetError
from toolkit.schema import SCHEMA_VERSION

FILE = "dataset.json"


@dataclass
class Source:
    """One ingested file: what it is, and what became of its lines.

    ``lines == records + duplicates + rejected`` at every commit. ``consumed`` is the number of
    (decompressed) bytes that were read and committed; ``finished`` whether that is all of it.
    ``context`` stands for what else its records depend on (machine, labels, companions).
    ``seen`` counts lines that are neither blank nor comments. ``unfinished`` is 1 while the last
    rejected line is one without an end: it is read again when the file has grown. ``open_end``
    says that the last line was whole but had no newline.
    """

    source_id: str
    path: str
    sha256: str
    format: str
    size: int
    machine: str | None = None
    labels: dict[str, str] = field(default_factory=dict)
    lines: int = 0
    records: int = 0
    duplicates: int = 0
    rejected: int = 0
    consumed: int = 0
    consumed_sha256: str = ""
    finished: bool = False
    unfinished: int = 0
    open_end: bool = False
    seen: int = 0
    context: str = ""


@dataclass
class Part:
    """One Parquet file of the dataset and the sources whose rows it holds."""

    file: str
    rows: int
    sources: list[str]


@dataclass
class Manifest:
    """Everything that belongs to a dataset.

    ``digest`` is the sum of all record ids modulo 2**64: it does not depend on order or paths.
    ``space_sizes`` tells the sizes of spaces, by task id, where a collector stated them.
    """

    schema_version: int = SCHEMA_VERSION
    generation: int = 0
    digest: int = 0
    sources: list[Source] = field(default_factory=list)
    records: list[Part] = field(default_factory=list)
    rejected: list[Part] = field(default_factory=list)
    tasks: str | None = None
    sketches: str | None = None
    space_sizes: dict[str, int] = field(default_factory=dict)

    def files(self) -> set[str]:
        """Relative paths of all files that belong to the dataset."""
        named = {part.file for part in (*self.records, *self.rejected)}
        return named | {name for name in (self.tasks, self.sketches) if name}

    def source(self, source_id: str) -> Source | None:
        """Return the source with that id."""
        return next((s for s in self.sources if s.source_id == source_id), None)


def load(folder: Path) -> Manifest:
    """Read the manifest of a dataset.

    Raises
    ------
    DatasetError
        When there is none, it is damaged, or of another schema version.
    """
    path = folder / FILE
    try:
        data: dict[str, Any] = orjson.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        raise DatasetError(
            "there is no dataset", where=folder, cure="make one with: toolkit ingest LOGS"
        ) from None
    except OSError as error:
        raise DatasetError(f"cannot be read: {error.strerror or error}", where=path) from None
    except orjson.JSONDecodeError as error:
        raise DatasetError(f"damaged: {error}", where=path, cure="ingest the logs anew") from None
    if not isinstance(data, dict):
        raise DatasetError("damaged: no JSON object", where=path, cure="ingest the logs anew")
    version = data.get("schema_version")
    if version != SCHEMA_VERSION:
        raise DatasetError(
            f"has schema version {version}, this toolkit reads {SCHEMA_VERSION}",
            where=path,
            cure="ingest the logs anew into another folder",
        )
    try:
        return Manifest(
            schema_version=version,
            generation=data["generation"],
            digest=int(data["digest"], 16),
            sources=[Source(**source) for source in data["sources"]],
            records=[Part(**part) for part in data["records"]],
            rejected=[Part(**part) for part in data["rejected"]],
            tasks=data["tasks"],
            sketches=data["sketches"],
            space_sizes=data["space_sizes"],
        )
    except (KeyError, TypeError, ValueError) as error:
        raise DatasetError(f"damaged: {error!r}", where=path, cure="ingest the logs anew") from None


def save(folder: Path, manifest: Manifest) -> None:
    """Commit: replace the manifest atomically, after everything it names is on disk."""
    data = {**asdict(manifest), "digest": f"{manifest.digest:016x}"}
    write_atomically(folder / FILE, orjson.dumps(data, option=orjson.OPT_INDENT_2))


def write_atomically(path: Path, content: bytes) -> None:
    """Write beside the target, bring it to disk, then rename over it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with temporary.open("wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
    temporary.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Bring a folder's entries to disk, where the system can."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
