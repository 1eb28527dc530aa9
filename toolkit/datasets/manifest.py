"""``dataset.json``: the one file that says what belongs to a dataset.

Parts are written under new names first; a commit is the atomic replacement of this file. What
it does not name does not exist, so a run that is killed leaves the last commit as it was.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import orjson

from toolkit.atomic import write_atomically
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


def refuse_foreign(folder: Path) -> None:
    """Refuse a folder with files of somebody else: a dataset has its folder for itself.

    Raises
    ------
    DatasetError
        When it holds anything but what a first run leaves that is killed before its first commit.
    """
    if (folder / FILE).exists() or not folder.exists():
        return
    for path in folder.iterdir():
        inside = list(path.iterdir()) if path.name in KINDS and path.is_dir() else [path]
        for entry in inside:
            name = entry.relative_to(folder).as_posix()
            if name != LOCK_FILE and not is_ours(name):
                raise DatasetError(
                    f"not empty, and no dataset: it holds {name}",
                    where=folder,
                    cure="name a new folder, or an empty one, with --dataset",
                )


def is_part(name: str) -> bool:
    """Whether a path inside a dataset's folder is one that the toolkit gives to a part."""
    return _PART.fullmatch(name) is not None


def is_ours(name: str) -> bool:
    """Whether a path inside a dataset's folder names a part, or what a killed commit left."""
    return is_part(name) or _DEBRIS.fullmatch(name) is not None


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
    """One Parquet file of the dataset, its checksum, and the sources whose rows it holds."""

    file: str
    rows: int
    sources: list[str]
    size: int
    sha256: str


@dataclass
class Manifest:
    """Everything that belongs to a dataset.

    ``digest`` is the sum of all record ids modulo 2**64: it does not depend on order or paths.
    ``space_sizes`` tells the sizes of spaces, by task id, where a collector stated them.
    ``settled`` is false while rows or tasks may belong elsewhere (``Store.close`` sees to it).
    """

    schema_version: int = SCHEMA_VERSION
    generation: int = 0
    digest: int = 0
    sources: list[Source] = field(default_factory=list)
    records: list[Part] = field(default_factory=list)
    duplicates: list[Part] = field(default_factory=list)
    rejected: list[Part] = field(default_factory=list)
    tasks: Part | None = None
    sketches: Part | None = None
    space_sizes: dict[str, int] = field(default_factory=dict)
    settled: bool = True

    def of(self, kind: Kind) -> list[Part]:
        """The parts of a kind."""
        parts: list[Part] = getattr(self, kind)
        return parts

    def parts(self) -> list[Part]:
        """All files that belong to the dataset."""
        tables = [part for part in (self.tasks, self.sketches) if part is not None]
        return [*self.records, *self.duplicates, *self.rejected, *tables]


def load(folder: Path) -> Manifest:
    """Read the manifest of a dataset, and check that it can be true.

    Raises
    ------
    DatasetError
        When there is none, it is damaged or was edited, or it is of another schema version.
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
        raise _damaged(path, str(error)) from None
    if not isinstance(data, dict):
        raise _damaged(path, "no JSON object")
    version = data.get("schema_version")
    if version != SCHEMA_VERSION:
        raise DatasetError(
            f"has schema version {version}, this toolkit reads {SCHEMA_VERSION}",
            where=path,
            cure="ingest the logs anew into another folder",
        )
    if data.pop("checksum", None) != _checksum(data):
        raise _damaged(path, "it is not as the toolkit wrote it")
    try:
        manifest = Manifest(
            schema_version=version,
            generation=data["generation"],
            digest=int(data["digest"], 16),
            sources=[Source(**source) for source in data["sources"]],
            **{kind: [Part(**part) for part in data[kind]] for kind in KINDS},
            tasks=data["tasks"] and Part(**data["tasks"]),
            sketches=data["sketches"] and Part(**data["sketches"]),
            space_sizes=data["space_sizes"],
            settled=data["settled"],
        )
        why = _contradiction(manifest)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _damaged(path, repr(error)) from None
    if why:
        raise _damaged(path, why)
    return manifest


def _damaged(path: Path, why: str) -> DatasetError:
    cure = "the manifest is not to be edited; ingest the logs anew into another folder"
    return DatasetError(f"damaged: {why}", where=path, cure=cure)


def _contradiction(manifest: Manifest) -> str | None:
    """What in a manifest cannot be: names that lead elsewhere, files named twice, wrong sums."""
    for part in manifest.parts():
        if [type(value) for value in vars(part).values()] != [str, int, list, int, str]:
            return "a part is not described as it should be"
    if not all(type(s.path) is str and type(s.labels) is dict for s in manifest.sources):
        return "a source is not described as it should be"
    names = [part.file for part in manifest.parts()]
    for kind in KINDS:
        for part in manifest.of(kind):
            if not (is_part(part.file) and part.file.startswith(f"{kind}/")):
                return f"{part.file!r} is no file of {kind}"
        rows = sum(part.rows for part in manifest.of(kind))
        if rows != sum(getattr(source, kind) for source in manifest.sources):
            return f"parts and sources disagree on the number of {kind}"
    for table in (manifest.tasks, manifest.sketches):
        if table is not None and not (is_part(table.file) and "/" not in table.file):
            return f"{table.file!r} is no table of the dataset"
    if len(set(names)) < len(names):
        return "a file is named twice"
    for source in manifest.sources:
        if source.lines != source.records + source.duplicates + source.rejected:
            return f"the lines of {source.path} do not add up"
    return None


def save(folder: Path, manifest: Manifest) -> None:
    """Commit: replace the manifest atomically, after everything it names is on disk."""
    data = {**asdict(manifest), "digest": f"{manifest.digest:016x}"}
    data["checksum"] = _checksum(data)
    try:
        write_atomically(folder / FILE, orjson.dumps(data, option=orjson.OPT_INDENT_2))
    except OSError as error:
        raise cannot_write(folder / FILE, error) from None


def cannot_write(path: Path, error: OSError) -> DatasetError:
    """What to say where a dataset's file cannot be written."""
    return DatasetError(
        f"cannot be written: {error.strerror or error}",
        where=path,
        cure="what was committed before is kept; make room and ingest again",
    )


def _checksum(data: dict[str, Any]) -> str:
    """SHA-256 of the manifest's content, however it is laid out."""
    return hashlib.sha256(orjson.dumps(data, option=orjson.OPT_SORT_KEYS)).hexdigest()
