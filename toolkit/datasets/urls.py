"""Folders on this machine, or on an object store by their URL (fsspec's pathlib)."""

from __future__ import annotations

import errno
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import polars as pl

from toolkit.errors import ToolkitError, first_line

_INSTALL = "pip install 'tvm-tuning-toolkit[cloud]' (s3://); for gs:// also: pip install gcsfs"


def folder_at(text: str | Path) -> Path:
    """A folder by its path, or by a URL such as ``s3://bucket/dataset`` or ``gs://bucket/model``.

    A URL's folder answers what a ``Path`` answers; what it holds is read when it is asked for.
    Raises ``ToolkitError`` where what reads such URLs is not installed, or nothing does.
    """
    if isinstance(text, Path) or "://" not in str(text):
        return Path(text)
    try:
        from upath import UPath

        found = UPath(str(text))
        _ = found.fs
    except ImportError as error:
        raise ToolkitError(f"cannot be read: {error}", where=str(text), cure=_INSTALL) from None
    except ValueError as error:
        raise ToolkitError(str(error), where=str(text), cure="such as s3://bucket/folder") from None
    return cast("Path", found)


def is_remote(folder: Path) -> bool:
    """Whether a folder is a URL's (``folder_at``)."""
    return not isinstance(folder, Path)


def local_folder(folder: str | Path) -> Path:
    """A folder to write a dataset into; raise ``ToolkitError`` where it is elsewhere."""
    found = folder_at(folder)
    if is_remote(found):
        raise ToolkitError(
            "logs are read into a folder of this machine",
            where=found,
            cure="ingest into a folder, then: toolkit merge FOLDER --out URL",
        )
    return found


@contextmanager
def store_errors(folder: Path) -> Iterator[None]:
    """Turn what a store's own library raises (no address, no key) into an ``OSError``."""
    try:
        yield
    except (OSError, ToolkitError):
        raise
    except Exception as error:
        if not is_remote(folder):
            raise
        raise OSError(errno.EIO, first_line(error), str(folder)) from None


def scan(paths: Sequence[Path]) -> pl.LazyFrame:
    """Parquet files of one store as one lazy frame: only the columns that are asked for travel."""
    import pyarrow.dataset

    store: Any = paths[0]
    names = [cast("Any", path).path for path in paths]
    return pl.scan_pyarrow_dataset(pyarrow.dataset.dataset(names, filesystem=store.fs))


@contextmanager
def local_copy(folder: Path) -> Iterator[Path]:
    """A folder on this machine, for as long as it is needed: a copy where it is elsewhere."""
    if not is_remote(folder):
        yield folder
        return
    store: Any = folder
    with tempfile.TemporaryDirectory(prefix="toolkit-") as made:
        copy = Path(made) / "copy"
        with store_errors(folder):
            store.fs.get(store.path, str(copy), recursive=True)
        yield copy


def upload(folder: Path, out: Path, last: str) -> None:
    """Copy a folder's files to a URL's, and one of them last: who finds that one finds all."""
    store: Any = out
    with store_errors(out):
        files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
        for path in sorted(files, key=lambda path: path == folder / last):
            name = path.relative_to(folder).as_posix()
            store.fs.put_file(str(path), cast("Any", out / name).path)
