"""What a reading process and its parent say to each other, as frames of bytes.

A frame is an 8-byte length, a JSON head, another 8-byte length and a body. No pickle: a frame
can only hold values.
"""

from __future__ import annotations

import base64
from dataclasses import asdict
from typing import IO, Any

import orjson
import pyarrow as pa

from toolkit.logs.rows.results import BlockResult, Rejected
from toolkit.records import Knob, Sketch, Task


def write_frame(stream: IO[bytes], head: Any, body: bytes | memoryview = b"") -> None:
    """Write one frame."""
    text = orjson.dumps(head)
    stream.write(len(text).to_bytes(8, "little"))
    stream.write(text)
    stream.write(len(body).to_bytes(8, "little"))
    stream.write(body)
    stream.flush()


def read_frame(stream: IO[bytes]) -> tuple[Any, bytes] | None:
    """Read one frame; ``None`` where the stream has ended."""
    parts: list[bytes] = []
    for _ in range(2):
        length = stream.read(8)
        if len(length) < 8:
            return None
        size = int.from_bytes(length, "little")
        part = stream.read(size)
        if len(part) < size:
            return None
        parts.append(part)
    return orjson.loads(parts[0]), parts[1]


def encode_result(result: BlockResult) -> tuple[Any, memoryview]:
    """A block's result as a frame's head and body."""
    head = {
        "lines": result.lines,
        "counted": result.counted,
        "unfinished": result.unfinished,
        "space_sizes": result.space_sizes,
        "rejected": [
            [line, offset, reason, base64.b64encode(content).decode()]
            for line, offset, reason, content in result.rejected
        ],
        "tasks": [asdict(task) for task in result.tasks],
        "sketches": [asdict(sketch) for sketch in result.sketches],
    }
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, result.rows.schema) as writer:
        writer.write_table(result.rows)
    return head, memoryview(sink.getvalue())


def decode_result(head: Any, body: bytes) -> BlockResult:
    """The way back from ``encode_result``."""
    with pa.ipc.open_stream(pa.py_buffer(body)) as reader:
        rows = reader.read_all()
    return BlockResult(
        rows=rows,
        lines=head["lines"],
        counted=head["counted"],
        unfinished=head["unfinished"],
        space_sizes=head["space_sizes"],
        rejected=[
            Rejected(line, offset, reason, base64.b64decode(content))
            for line, offset, reason, content in head["rejected"]
        ],
        tasks=[_task(entry) for entry in head["tasks"]],
        sketches=[_sketch(entry) for entry in head["sketches"]],
    )


def _task(entry: dict[str, Any]) -> Task:
    return Task(**{**entry, "extents": tuple(entry["extents"])})


def _sketch(entry: dict[str, Any]) -> Sketch:
    knobs = tuple(
        Knob(
            **{
                **knob,
                "choices": None if knob["choices"] is None else tuple(knob["choices"]),
                "labels": tuple((code, word) for code, word in knob["labels"]),
            }
        )
        for knob in entry["knobs"]
    )
    return Sketch(**{**entry, "knobs": knobs})
