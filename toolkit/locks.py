"""A lock for one writer per folder; it ends with its process, however that ends."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import wraps
from inspect import signature
from pathlib import Path
from typing import IO, ParamSpec, TypeVar

from toolkit.atomic import sweep
from toolkit.errors import ToolkitError

LOCK_FILE = ".lock"

Given = ParamSpec("Given")
Result = TypeVar("Result")


def one_writer(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """Decorate a function that writes into its argument ``out``: lock that folder (``writing``).

    With ``out=None`` nothing is locked.
    """
    parameters = signature(function)

    @wraps(function)
    def run(*args: Given.args, **kwargs: Given.kwargs) -> Result:
        out = parameters.bind(*args, **kwargs).arguments.get("out")
        with nullcontext() if out is None else writing(Path(out)):
            return function(*args, **kwargs)

    return run


@contextmanager
def writing(folder: Path, *, wait: bool = False) -> Iterator[None]:
    """Lock a folder for writing; create it if needed. Its file ``.lock`` holds the process id.

    Temporary files of killed writers are removed. With ``wait`` a second writer waits for the
    first.

    Raises
    ------
    ToolkitError
        When another process writes there, unless ``wait``.
    """
    made = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / LOCK_FILE
    stream = _taken(path, wait)
    try:
        sweep(folder)
        yield
    finally:
        # Unlink while the lock is held: a waiting writer then sees that the file is gone or new.
        path.unlink(missing_ok=True)
        stream.close()
        if made:
            with suppress(OSError):
                folder.rmdir()  # nothing was written


def _taken(path: Path, wait: bool) -> IO[bytes]:
    try:
        import fcntl
    except ImportError:  # no advisory locks on this system: the user must run one writer at a time
        return path.open("ab")
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)  # a writer that wrote nothing removes it
        stream = path.open("ab+")
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                return stream  # a file system without locks
            stream.seek(0)
            holder = stream.read(20).decode("ascii", errors="replace").strip()
            stream.close()
            raise ToolkitError(
                f"process {holder or '(id unknown)'} is writing here",
                where=path.parent,
                cure="wait until it is done, or give another folder with --out",
            ) from None
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(stream.fileno()), path.stat()):
                stream.truncate(0)
                stream.write(str(os.getpid()).encode())
                stream.flush()
                return stream
        stream.close()  # the holder ended in between and removed the file
