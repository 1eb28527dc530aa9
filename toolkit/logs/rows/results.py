"""The result of reading lines: rows, rejected lines, tasks and sketches."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from toolkit.records import Sketch, Task

REJECTED_BYTES = 4096


class Rejected(NamedTuple):
    """A line that is no record; ``content`` is cut at 4 KiB."""

    line: int
    offset: int
    reason: str
    content: bytes


@dataclass
class BlockResult:
    """The result of a block's lines.

    ``lines == len(rows) + len(rejected)``. ``counted`` is the number of lines that are neither
    blank nor comments. ``unfinished``: the end of the file cuts off the last line. ``space_sizes``
    has the number of candidates of a task's whole space, if the log states it.
    """

    rows: Any
    lines: int
    counted: int
    rejected: list[Rejected] = field(default_factory=list)
    tasks: list[Task] = field(default_factory=list)
    sketches: list[Sketch] = field(default_factory=list)
    space_sizes: dict[str, int] = field(default_factory=dict)
    unfinished: bool = False


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Turn off the cycle collector: with it, millions of new lists take ten times as long."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
