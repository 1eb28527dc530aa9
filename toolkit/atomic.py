"""Atomic writes: a file or folder exists as a whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

_TEMPORARY = re.compile(r"\..+\.(\d+)\.tmp", re.DOTALL)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside ``path``; rename what was written there to ``path`` at the end.

    Only this process uses the temporary path. If writing fails, it is removed and ``path`` stays
    unchanged. A folder that holds files is not replaced. Neither is a device or a pipe.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        raise OSError(errno.EINVAL, "is a device or a pipe: name a file", str(path))
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        temporary.replace(path)
    except BaseException as error:
        _remove(temporary)
        if isinstance(error, OSError) and error.filename in (None, str(temporary)):
            error.filename = str(path)
        raise


def write_atomically(path: Path, data: bytes) -> None:
    """Write a temporary file, sync it to disk, then rename it to ``path``."""
    write_together({path: data})


def write_together(files: Mapping[Path, bytes]) -> None:
    """Write all files as temporary files, then rename them; if one write fails, rename none."""
    with ExitStack() as stack:
        for path, data in files.items():
            with stack.enter_context(replacing(path)).open("wb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
    for folder in {path.parent for path in files}:
        sync_folder(folder)


def sync_folder(folder: Path) -> None:
    """Sync a folder's entries to disk (POSIX systems only)."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sweep(folder: Path) -> None:
    """Remove temporary files that killed processes left in a folder."""
    for path in folder.glob(".*.tmp"):
        found = _TEMPORARY.fullmatch(path.name)
        if found and not running(int(found[1])):
            _remove(path)


def running(pid: int) -> bool:
    """Whether a process with this id exists (true for this process, too)."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
