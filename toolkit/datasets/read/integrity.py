"""Verify the files of a dataset against its manifest, and open the tables of a commit.

Sizes are always compared, the content by checksum.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import polars as pl

from toolkit.datasets import manifest as manifests
from toolkit.datasets.manifest import Manifest, Part
from toolkit.datasets.urls import folder_at, is_remote, scan
from toolkit.errors import DatasetError
from toolkit.results import Result
from toolkit.schema import RECORDS, REJECTED, SKETCHES, TASKS

VERIFIED_BYTES = 64 * 2**20
"""A dataset of at most this size is verified by checksum when opened: it takes 0.1 s."""

HELD_FILES = 200
"""With more parts than this, files are not held open: systems limit the number of open files."""

_CURE = "restore this file from a copy, or ingest the logs again into another folder"


def file_sha256(path: Path) -> str:
    """SHA-256 of a file as it is on disk."""
    with path.open("rb") as stream:
        digest = hashlib.sha256()
        while chunk := stream.read(2**20):
            digest.update(chunk)
    return digest.hexdigest()


def verify(folder: Path, part: Part, *, content: bool = True) -> Path:
    """Return a part's path; raise ``DatasetError`` if its size or content has changed,
    ``FileNotFoundError`` if it is missing.
    """
    path = folder / part.file
    try:
        size = path.stat().st_size
        same = size == part.size and (not content or file_sha256(path) == part.sha256)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise DatasetError(f"cannot be read: {error.strerror or error}", where=path) from None
    if not same:
        why = "its content is not what was written"
        if size != part.size:
            why = f"it has {size:,} bytes, {part.size:,} were written"
        raise DatasetError(f"damaged: {why}", where=path, cure=_CURE)
    return path


def verify_on_opening(folder: Path, parts: Iterable[Part]) -> None:
    """Compare parts with the manifest: sizes, and the content of small datasets (``verify``).

    For remote datasets only the sizes: the content would have to be downloaded.
    """
    parts = list(parts)
    small = sum(part.size for part in parts) <= VERIFIED_BYTES and not is_remote(folder)
    for part in parts:
        verify(folder, part, content=small)


def missing(folder: Path, error: FileNotFoundError) -> DatasetError:
    """Return the error for a missing file that the manifest names."""
    where = error.filename or folder
    return DatasetError("a file of the dataset is missing", where=where, cure=_CURE)


@dataclass(frozen=True, repr=False)
class IntegrityReport(Result):
    """Result of ``check``; ``damaged`` lists entries with ``file`` and ``why``."""

    dataset: str
    files: int
    size_bytes: int
    records: int
    damaged: list[dict[str, str]]


def check(folder: str | Path) -> IntegrityReport:
    """Verify every file of a dataset against the checksums in its manifest.

    Raises
    ------
    DatasetError
        When there is no dataset, or its manifest is damaged.
    """
    folder = folder_at(folder)
    manifest = manifests.load(folder)
    parts, damaged = manifest.parts(), []
    for part in parts:
        try:
            verify(folder, part)
        except (FileNotFoundError, DatasetError) as error:
            why = error.what if isinstance(error, DatasetError) else "it is missing"
            damaged.append({"file": part.file, "why": why})
    return IntegrityReport(
        dataset=str(folder),
        files=len(parts),
        size_bytes=sum(part.size for part in parts),
        records=sum(part.rows for part in manifest.records),
        damaged=damaged,
    )


def open_tables(folder: Path) -> tuple[Manifest, dict[str, pl.LazyFrame]]:
    """Open the last commit's ``records``, ``rejected``, ``tasks`` and ``sketches``.

    Frames hold their files open (up to ``HELD_FILES``), so a writer may remove them later. If a
    writer removes files during the opening, a newer commit is opened. Raises as ``manifest.load``
    and ``verify`` do.
    """
    manifest = manifests.load(folder)
    while True:
        try:
            return manifest, _opened(folder, manifest)
        except FileNotFoundError as error:
            newer = manifests.load(folder)
            if newer.generation == manifest.generation:
                raise missing(folder, error) from None
            manifest = newer
        except OSError as error:
            raise DatasetError(
                f"cannot be read: {error.strerror or error}", where=error.filename or folder
            ) from None


def _opened(folder: Path, manifest: Manifest) -> dict[str, pl.LazyFrame]:
    read = [part for part in manifest.parts() if part not in manifest.duplicates]
    verify_on_opening(folder, read)
    with ExitStack() as streams:

        def frame(parts: list[Part | None], schema: dict[str, pl.DataType]) -> pl.LazyFrame:
            paths = [folder / part.file for part in parts if part is not None]
            if not paths:
                return pl.LazyFrame(schema=schema)
            if is_remote(folder):
                return scan(paths)
            if len(read) > HELD_FILES:
                return pl.scan_parquet(paths)
            held: list[IO[bytes]] = [streams.enter_context(path.open("rb")) for path in paths]
            return pl.scan_parquet(held)

        return {
            "records": frame([*manifest.records], RECORDS),
            "rejected": frame([*manifest.rejected], REJECTED),
            "tasks": frame([manifest.tasks], TASKS),
            "sketches": frame([manifest.sketches], SKETCHES),
        }
