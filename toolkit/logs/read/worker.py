"""A reading process: ``python -m toolkit.logs.read.worker`` reads blocks from its standard input.

It is started as a command, not forked: forking a process whose libraries run threads is unsafe,
and other ways would import the caller's main module again.
"""

from __future__ import annotations

import sys
from typing import Any

from toolkit.logs.files.files import LineBlock
from toolkit.logs.formats import FORMATS
from toolkit.logs.read.block_reader import BlockReader
from toolkit.logs.read.transfer import encode_result, read_frame, write_frame
from toolkit.logs.rows.results import BlockResult
from toolkit.records import Sketch, Task

MACHINES = 8
"""Readers of so many machines are kept."""


class Worker:
    """Answers frames: a source's description opens a reader, a block is read by it."""

    def __init__(self) -> None:
        self._reader = BlockReader("", None)
        self._learned: dict[tuple[str, str | None], BlockReader] = {}
        self._tasks: dict[str, Task] = {}
        self._sketches: dict[str, Sketch] = {}

    def open(self, source: dict[str, Any]) -> None:
        """Begin another source."""
        kind, machine = source["kind"], source["machine"]
        found = FORMATS.get(kind)()
        if found.learns:
            # Tasks and the shapes of lines recur in the files of a folder: learn them once.
            if len(self._learned) >= MACHINES:
                self._learned.clear()
            known = self._learned.get((kind, machine))
            self._reader = known or BlockReader(kind, machine)
            self._learned[kind, machine] = self._reader
        else:
            self._reader = BlockReader(kind, machine, found.reopened(source["beside"]))
        self._tasks, self._sketches = {}, {}

    def read(self, place: dict[str, Any], body: bytes) -> BlockResult:
        """Read one block; tasks and sketches are told once a source, unless more is known."""
        result = self._reader.read(LineBlock(body, **place), 0)
        result.tasks = [t for t in result.tasks if self._tasks.get(t.task_id) != t]
        self._tasks.update((task.task_id, task) for task in result.tasks)
        result.sketches = [s for s in result.sketches if self._sketches.get(s.sketch_id) != s]
        self._sketches.update((sketch.sketch_id, sketch) for sketch in result.sketches)
        return result


def main() -> None:
    """Read frames until the parent closes the pipe (or dies)."""
    stdin, stdout = sys.stdin.buffer, sys.stdout.buffer
    worker = Worker()
    try:
        while (frame := read_frame(stdin)) is not None:
            head, body = frame
            if "source" in head:
                worker.open(head["source"])
            else:
                write_frame(stdout, *encode_result(worker.read(head["block"], body)))
    except (KeyboardInterrupt, BrokenPipeError):
        pass


if __name__ == "__main__":
    main()
