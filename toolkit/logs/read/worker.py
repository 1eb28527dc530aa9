"""A reading process: ``python -m toolkit.logs.read.worker`` reads blocks from its standard input.

It is started as a command, not forked: forking a process whose libraries run threads is unsafe, and
``multiprocessing`` would import the caller's main module again. It and its parent exchange frames:
an 8-byte length, a JSON head, another 8-byte length and a body. Pickle is not used: a frame can
hold only values.
"""

from __future__ import annotations

import base64
import contextlib
import os
import queue
import sys
from functools import lru_cache
from threading import Thread
from typing import IO, Any

import orjson
import pyarrow as pa

from toolkit.logs.files.files import LineBlock
from toolkit.logs.formats import FORMATS
from toolkit.logs.read.reader import BlockReader
from toolkit.logs.rows.identity import sketch_of, task_of
from toolkit.logs.rows.results import BlockResult, Rejected
from toolkit.records import Sketch, Task

MACHINES = 8
"""Number of readers that are kept, one per format and machine."""


def write_frame(stream: IO[bytes], head: Any, body: bytes | memoryview = b"") -> None:
    """Write one frame; dataclasses in its head become JSON objects."""
    for part in (orjson.dumps(head), body):
        stream.write(len(part).to_bytes(8, "little"))
        stream.write(part)
    stream.flush()


def read_frame(stream: IO[bytes]) -> tuple[Any, bytes] | None:
    """Read one frame; ``None`` if the stream has ended."""
    parts: list[bytes] = []
    for _ in range(2):
        if len(length := stream.read(8)) < 8:
            return None
        size = int.from_bytes(length, "little")
        if len(part := stream.read(size)) < size:
            return None
        parts.append(part)
    return orjson.loads(parts[0]), parts[1]


def encode_result(result: BlockResult) -> tuple[Any, memoryview]:
    """Encode a block's result as a frame's head and body."""
    head = {name: value for name, value in vars(result).items() if name != "rows"}
    head["rejected"] = [
        [*rejected[:3], base64.b64encode(rejected.content).decode()] for rejected in result.rejected
    ]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, result.rows.schema) as writer:
        writer.write_table(result.rows)
    return head, memoryview(sink.getvalue())


def decode_result(head: Any, body: bytes) -> BlockResult:
    """Decode what ``encode_result`` made."""
    with pa.ipc.open_stream(pa.py_buffer(body)) as reader:
        rows = reader.read_all()
    rejected = [
        Rejected(line, offset, reason, base64.b64decode(content))
        for line, offset, reason, content in head["rejected"]
    ]
    tasks = [task_of(entry) for entry in head["tasks"]]
    sketches = [sketch_of(entry) for entry in head["sketches"]]
    return BlockResult(
        **{**head, "rows": rows, "rejected": rejected, "tasks": tasks, "sketches": sketches}
    )


class Worker:
    """Answers frames: a source's description opens a reader, which then reads blocks."""

    _reader: BlockReader
    _told: dict[str, Task | Sketch]

    def open(self, source: dict[str, Any]) -> None:
        kind, machine = source["kind"], source["machine"]
        found = FORMATS.get(kind)()
        if found.learns:
            # Tasks and shapes of lines recur in the files of a folder: keep the reader.
            self._reader = _kept_reader(kind, machine)
        else:
            self._reader = BlockReader(kind, machine, found.reopened(source["beside"]))
        self._told = {}

    def read(self, place: dict[str, Any], body: bytes) -> BlockResult:
        """Read one block; return tasks and sketches once per source, and again if they changed."""
        result = self._reader.read(LineBlock(body, **place), 0)
        result.tasks = [t for t in result.tasks if self._told.get(t.task_id) != t]
        result.sketches = [s for s in result.sketches if self._told.get(s.sketch_id) != s]
        self._told.update((task.task_id, task) for task in result.tasks)
        self._told.update((sketch.sketch_id, sketch) for sketch in result.sketches)
        return result


@lru_cache(maxsize=MACHINES)
def _kept_reader(kind: str, machine: str | None) -> BlockReader:
    return BlockReader(kind, machine, FORMATS.get(kind)().reopened(None))


def read_block(source: tuple[str, str | None], block: LineBlock) -> BlockResult:
    """Read a block of a source (format, machine) that needs no files beside it."""
    return _kept_reader(*source).read(block, 0)


def main() -> None:
    """Report that it is ready, then read frames until the parent closes the pipe (or dies).

    Threads receive frames and send answers while a block is read: the parent is slow to do so.
    """
    # Arrow's own allocator asks for huge pages, and the system looks for them for long.
    pa.set_memory_pool(pa.system_memory_pool())
    stdin, stdout = sys.stdin.buffer, sys.stdout.buffer
    worker = Worker()
    frames: queue.Queue[tuple[Any, bytes] | None] = queue.Queue(1)
    answers: queue.Queue[tuple[Any, memoryview] | None] = queue.Queue(1)

    def listen() -> None:
        while (frame := read_frame(stdin)) is not None:
            frames.put(frame)
        frames.put(None)

    def answer() -> None:
        with contextlib.suppress(BrokenPipeError):
            while (result := answers.get()) is not None:
                write_frame(stdout, *result)
            return
        os._exit(1)  # The parent has closed the pipe.

    write_frame(stdout, None)
    Thread(target=listen, daemon=True).start()
    speaker = Thread(target=answer)
    speaker.start()
    try:
        while (frame := frames.get()) is not None:
            head, body = frame
            if "source" in head:
                worker.open(head["source"])
            else:
                answers.put(encode_result(worker.read(head["block"], body)))
    finally:
        answers.put(None)
        speaker.join()


if __name__ == "__main__":
    main()
