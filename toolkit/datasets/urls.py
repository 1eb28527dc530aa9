"""Folders on this machine, or on an object store by URL (fsspec's ``UPath``)."""

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
    """Return a folder by its path, or by a URL such as ``s3://bucket/dataset``.

    The folder of a URL has the interface of ``Path``; files are read on access. Raises
    ``ToolkitError`` if the library for this kind of URL is not installed or does not exist.
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
        raise ToolkitError(
            str(error), where=str(text), cure="use a URL such as s3://bucket/folder"
        ) from None
    return cast("Path", found)


def is_remote(folder: Path) -> bool:
    """Whether a folder was given as a URL (``folder_at``)."""
    return not isinstance(folder, Path)


@contextmanager
def store_errors(folder: Path) -> Iterator[None]:
    """Turn errors of an object store's library (no address, no key) into ``OSError``."""
    try:
        yield
    except (OSError, ToolkitError):
        raise
    except Exception as error:
        if not is_remote(folder):
            raise
        raise OSError(errno.EIO, first_line(error), str(folder)) from None


def scan(paths: Sequence[Path]) -> pl.LazyFrame:
    """Return Parquet files of one store as one lazy frame: only needed columns are transferred."""
    import pyarrow.dataset

    store: Any = paths[0]
    names = [cast("Any", path).path for path in paths]
    return pl.scan_pyarrow_dataset(pyarrow.dataset.dataset(names, filesystem=store.fs))


@contextmanager
def local_copy(folder: Path) -> Iterator[Path]:
    """Yield a local folder: the folder itself, or a temporary copy of a URL's folder."""
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
    """Copy a folder's files to a URL; the file ``last`` comes last, when all others are there."""
    store: Any = out
    with store_errors(out):
        files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
        for path in sorted(files, key=lambda path: path == folder / last):
            name = path.relative_to(folder).as_posix()
            store.fs.put_file(str(path), cast("Any", out / name).path)
