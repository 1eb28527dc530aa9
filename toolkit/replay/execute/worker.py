"""A working process of ``replay.execute.processes``: started with the number of its pipe."""

from __future__ import annotations

import sys
from multiprocessing.connection import Connection
from typing import Any


def serve(pipe: Connection[Any, Any]) -> None:
    """Answer until the other side is gone."""
    sys.path[:] = [folder for folder in pipe.recv() if folder]
    start, arguments = pipe.recv()
    failed: Exception | None = None
    try:
        start(*arguments)
    except Exception as error:
        failed = error
    while True:
        try:
            work, item = pipe.recv()
        except EOFError:
            return
        if failed is not None:
            pipe.send((None, failed))
            continue
        try:
            pipe.send((work(*item), None))
        except Exception as error:
            pipe.send((None, error))


if __name__ == "__main__":
    serve(Connection(int(sys.argv[1])))
