"""``dataset.json``, the manifest: the list of all files that belong to a dataset.

Parts are written under new names first. A commit then replaces the manifest atomically. Files that
the manifest does not name are ignored, so a killed run leaves the last commit unchanged.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import orjson

from toolkit.atomic import write_atomically
from toolkit.datasets.urls import store_errors
from toolkit.errors import DatasetError
from toolkit.locks import LOCK_FILE
from toolkit.schema import SCHEMA_VERSION

FILE = "dataset.json"

Kind = Literal["records", "duplicates", "rejected"]
KINDS: tuple[Kind, ...] = ("records", "duplicates", "rejected")
"""Folders of parts."""

_PART = re.compile(
    rf"(({'|'.join(KINDS)})/(part|merged)-\d{{6,}}(-\d+)?|(tasks|sketches)-\d{{6,}})\.parquet"
)
_DEBRIS = re.compile(rf"\.{re.escape(FILE)}\.\d+\.tmp")


def is_ours(name: str) -> bool:
    """Whether a path inside a dataset's folder is a part, or a leftover of a killed commit."""
    return bool(_PART.fullmatch(name) or _DEBRIS.fullmatch(name))


def dataset_around(path: Path) -> Path | None:
    """The dataset whose folder this path is, or is inside of; ``None`` if there is none."""
    whole = path.resolve()
    return next((at for at in (whole, *whole.parents) if (at / FILE).exists()), None)


def refuse_foreign(folder: Path) -> None:
    """Raise ``DatasetError`` if a folder holds files that are not a dataset's.

    Leftovers of a first run that was killed before its first commit are allowed.
    """
    if (folder / FILE).exists() or not folder.exists():
        return
    for path in folder.iterdir():
        inside = list(path.iterdir()) if path.name in KINDS and path.is_dir() else [path]
        for name in (entry.relative_to(folder).as_posix() for entry in inside):
            if name != LOCK_FILE and not is_ours(name):
                raise DatasetError(
                    f"the folder is not empty, and no dataset: it holds {name}",
                    where=folder,
                    cure="choose a new or empty folder with --dataset",
                )


@dataclass
class Source:
    """One ingested file, with the counts of its lines.

    ``lines == records + duplicates + rejected`` at every commit.
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
    consumed: int = 0  # (decompressed) bytes that were read and committed
    consumed_sha256: str = ""
    finished: bool = False  # whether the whole file was read
    unfinished: int = 0  # 1 while the last line was rejected as incomplete: it may grow
    open_end: bool = False  # whether the last line was whole but had no newline
    seen: int = 0  # lines that are neither blank nor comments
    context: str = ""  # hash of what else its records depend on (machine, labels, companions)


@dataclass
class Part:
    """One Parquet file of the dataset, its checksum, and the sources whose rows it holds."""

    file: str
    rows: int
    sources: list[str]
    size: int
    sha256: str


@dataclass
class Manifest:
    """Everything that belongs to a dataset."""

    schema_version: int = SCHEMA_VERSION
    generation: int = 0
    digest: int = 0  # sum of all record ids modulo 2**64: independent of order and paths
    sources: list[Source] = field(default_factory=list)
    records: list[Part] = field(default_factory=list)
    duplicates: list[Part] = field(default_factory=list)
    rejected: list[Part] = field(default_factory=list)
    tasks: Part | None = None
    sketches: Part | None = None
    space_sizes: dict[str, int] = field(default_factory=dict)  # by task, if the collector gave it
    settled: bool = True  # false while records may belong to another source (``Store.close``)

    def of(self, kind: Kind) -> list[Part]:
        """The parts of a kind."""
        parts: list[Part] = getattr(self, kind)
        return parts

    def parts(self) -> list[Part]:
        """All files that belong to the dataset."""
        tables = [part for part in (self.tasks, self.sketches) if part is not None]
        return [*self.records, *self.duplicates, *self.rejected, *tables]


def load(folder: Path) -> Manifest:
    """Read the manifest of a dataset; raise ``DatasetError`` if it is missing, contradicts itself,
    was edited, or has another schema version.
    """
    path = folder / FILE
    try:
        with store_errors(folder):
            data: dict[str, Any] = orjson.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        raise DatasetError(
            "there is no dataset", where=folder, cure="make one with: toolkit ingest LOGS"
        ) from None
    except OSError as error:
        raise DatasetError(f"cannot be read: {error.strerror or error}", where=path) from None
    except orjson.JSONDecodeError as error:
        raise _damaged(path, str(error)) from None
    if not isinstance(data, dict):
        raise _damaged(path, "it is not a JSON object")
    version = data.get("schema_version")
    if version != SCHEMA_VERSION:
        raise DatasetError(
            f"has schema version {version}, but this toolkit reads version {SCHEMA_VERSION}",
            where=path,
            cure="ingest the logs again into another folder",
        )
    if data.pop("checksum", None) != _checksum(data):
        raise _damaged(path, "it is not as the toolkit wrote it")
    try:
        data["digest"] = int(data["digest"], 16)
        data["sources"] = [Source(**source) for source in data["sources"]]
        for kind in KINDS:
            data[kind] = [Part(**part) for part in data[kind]]
        for table in ("tasks", "sketches"):
            data[table] = data[table] and Part(**data[table])
        manifest = Manifest(**data)
        why = _contradiction(manifest)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _damaged(path, repr(error)) from None
    if why:
        raise _damaged(path, why)
    return manifest


def _damaged(path: Path, why: str) -> DatasetError:
    cure = "this file must not be edited; ingest the logs again into another folder"
    return DatasetError(f"damaged: {why}", where=path, cure=cure)


def _contradiction(manifest: Manifest) -> str | None:
    """Return what is impossible in a manifest: paths elsewhere, duplicate files, wrong sums."""
    for part in manifest.parts():
        if [type(value) for value in vars(part).values()] != [str, int, list, int, str]:
            return "the entry of a part has a value of the wrong type"
    if not all(type(s.path) is str and type(s.labels) is dict for s in manifest.sources):
        return "the entry of a source has a value of the wrong type"
    for kind in KINDS:
        for part in manifest.of(kind):
            if not (_PART.fullmatch(part.file) and part.file.startswith(f"{kind}/")):
                return f"{part.file!r} is no file of {kind}"
        rows = sum(part.rows for part in manifest.of(kind))
        if rows != sum(getattr(source, kind) for source in manifest.sources):
            return f"parts and sources disagree on the number of {kind}"
    for table in (manifest.tasks, manifest.sketches):
        if table is not None and not (_PART.fullmatch(table.file) and "/" not in table.file):
            return f"{table.file!r} is no table of the dataset"
    names = [part.file for part in manifest.parts()]
    if len(set(names)) < len(names):
        return "a file is named twice"
    for source in manifest.sources:
        if source.lines != source.records + source.duplicates + source.rejected:
            return f"the lines of {source.path} do not add up"
    return None


def save(folder: Path, manifest: Manifest) -> None:
    """Commit: replace the manifest atomically. All files that it names must be on disk."""
    data = {**asdict(manifest), "digest": f"{manifest.digest:016x}"}
    data["checksum"] = _checksum(data)
    try:
        write_atomically(folder / FILE, orjson.dumps(data, option=orjson.OPT_INDENT_2))
    except OSError as error:
        raise cannot_write(folder / FILE, error) from None


def cannot_write(
    path: str | Path,
    error: OSError,
    cure: str = "earlier commits are kept; make room on the disk and ingest again",
) -> DatasetError:
    """Return the error for a file that cannot be written (by default: one of a dataset)."""
    return DatasetError(f"cannot be written: {error.strerror or error}", where=path, cure=cure)


def _checksum(data: dict[str, Any]) -> str:
    """SHA-256 of the manifest's content, independent of its layout."""
    return hashlib.sha256(orjson.dumps(data, option=orjson.OPT_SORT_KEYS)).hexdigest()
