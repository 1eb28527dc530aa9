"""Whether the files of a dataset are what its manifest says: sizes always, bytes by checksum."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from toolkit.datasets import manifest as manifests
from toolkit.datasets.manifest import Part
from toolkit.errors import DatasetError

VERIFIED_BYTES = 64 * 2**20
"""A dataset of this size or less is verified whenever it is opened: a tenth of a second."""


def file_sha256(path: Path) -> str:
    """SHA-256 of a file as it lies on disk."""
    with path.open("rb") as stream:
        digest = hashlib.sha256()
        while chunk := stream.read(2**20):
            digest.update(chunk)
    return digest.hexdigest()


def verify(folder: Path, part: Part, *, content: bool = True) -> Path:
    """Compare a part's size, and its content, with what the manifest says; return its path.

    Raises
    ------
    FileNotFoundError
        When there is no such file.
    DatasetError
        When it is not what was written.
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
        raise DatasetError(
            "damaged: it is not what was written"
            if size == part.size
            else f"damaged: it has {size:,} bytes, {part.size:,} were written",
            where=path,
            cure="put it back from a copy, or ingest the logs anew into another folder",
        )
    return path


def verify_on_opening(folder: Path, parts: Iterable[Part]) -> None:
    """Compare parts with the manifest: their content where that takes no time (see ``verify``)."""
    parts = list(parts)
    small = sum(part.size for part in parts) <= VERIFIED_BYTES
    for part in parts:
        verify(folder, part, content=small)


def missing(folder: Path, error: FileNotFoundError) -> DatasetError:
    """What to say where a file that the manifest names is not there."""
    return DatasetError(
        "a file of the dataset is missing",
        where=error.filename or folder,
        cure="put it back from a copy, or ingest the logs anew into another folder",
    )


def check(folder: str | Path) -> dict[str, Any]:
    """Verify every file of a dataset against the checksums in its manifest.

    Returns
    -------
    dict
        ``dataset``, ``files`` and ``size_bytes`` that were compared, ``records``, and
        ``damaged``: a list of what is wrong, with ``file`` and ``why``.

    Raises
    ------
    DatasetError
        When there is no dataset, or its manifest is damaged itself.
    """
    folder = Path(folder)
    manifest = manifests.load(folder)
    damaged = []
    for part in manifest.parts():
        try:
            verify(folder, part)
        except FileNotFoundError:
            damaged.append({"file": part.file, "why": "it is missing"})
        except DatasetError as error:
            damaged.append({"file": part.file, "why": error.what})
    return {
        "dataset": str(folder),
        "files": len(manifest.parts()),
        "size_bytes": sum(part.size for part in manifest.parts()),
        "records": sum(part.rows for part in manifest.records),
        "damaged": damaged,
    }
