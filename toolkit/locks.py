"""One writer at a time: a lock that ends with its process, whatever ends that."""

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
    """Make a function that writes into its argument ``out`` the only one that does (``writing``).

    With ``out=None`` nothing is written, and nothing locked.
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
    """Be the only writer in a folder, which is made; the file ``.lock`` in it says who that is.

    What writers that were killed left half written is removed. With ``wait`` a second writer
    waits for the first.

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
        # While it is still held: whoever waits finds that the name is gone, or another file's.
        path.unlink(missing_ok=True)
        stream.close()
        if made:
            with suppress(OSError):
                folder.rmdir()  # nothing was written


def _taken(path: Path, wait: bool) -> IO[bytes]:
    try:
        import fcntl
    except ImportError:  # no advisory locks on this system: one writer is the user's care
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
                f"process {holder or 'of another command'} is writing here",
                where=path.parent,
                cure="wait until it is done, or give another --out",
            ) from None
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(stream.fileno()), path.stat()):
                stream.truncate(0)
                stream.write(str(os.getpid()).encode())
                stream.flush()
                return stream
        stream.close()  # its holder ended in between and took the file with it
