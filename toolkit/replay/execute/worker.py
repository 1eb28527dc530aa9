"""Worker process of ``replay.execute.work``; its argument is the descriptor of its pipe."""

from __future__ import annotations

import sys
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any


def serve(pipe: Connection[Any, Any]) -> None:
    """Ask for work (``None``), and answer with the name of each piece that is done."""
    sys.path[:] = [folder for folder in pipe.recv() if folder]
    try:
        context = pipe.recv()
        while True:
            pipe.send(None)
            for name in pipe.recv().do(context):
                pipe.send(name)
    except Exception as error:
        with suppress(OSError):  # the other side may be gone, which ends the work
            pipe.send(error)


if __name__ == "__main__":
    serve(Connection(int(sys.argv[1])))
