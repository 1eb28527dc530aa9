"""Blocks of lines → rows, tasks, sketches and rejected lines; the work of one process."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from toolkit.logs.files.detect import Kind
from toolkit.logs.files.files import Block
from toolkit.logs.formats.ansor.blocks import AnsorBlocks
from toolkit.logs.formats.metaschedule.blocks import MetaScheduleBlocks
from toolkit.logs.formats.metaschedule.reader import Database
from toolkit.logs.read.line_reader import BLANK, COMMENT, TOO_LONG, LineReader
from toolkit.logs.rows.base import BadLine
from toolkit.logs.rows.rows import Rows
from toolkit.records import Sketch, Task

UNFINISHED = "unfinished: the file ends within this line"
REJECTED_BYTES = 4096
_REASON_CHARACTERS = 500


class Rejected(NamedTuple):
    """A line that is no record; ``content`` is cut at 4 KiB."""

    line: int
    offset: int
    reason: str
    content: bytes


@dataclass
class BlockResult:
    """What a block's lines gave.

    ``lines == len(rows) + len(rejected)``; ``counted`` are those that are neither blank nor
    comments; ``unfinished`` says that the last one is cut off by the end of the file.
    ``workloads`` maps MetaSchedule task ids to workload indices.
    """

    rows: Any
    lines: int
    counted: int
    rejected: list[Rejected] = field(default_factory=list)
    tasks: list[Task] = field(default_factory=list)
    sketches: list[Sketch] = field(default_factory=list)
    workloads: dict[str, int] = field(default_factory=dict)
    unfinished: bool = False


class BlockReader:
    """Reads the blocks of one source."""

    def __init__(self, kind: Kind, machine: str | None, database: Database | None = None) -> None:
        self._lines = LineReader(kind, machine, database)
        self._together: AnsorBlocks | MetaScheduleBlocks | None = None
        if kind is Kind.ANSOR:
            self._together = AnsorBlocks(self._lines.ansor)
        elif kind is Kind.METASCHEDULE and database is not None and not database.trials:
            self._together = MetaScheduleBlocks(self._lines.metaschedule)

    def read(self, block: Block, index: int) -> BlockResult:
        """Read a block; ``index`` is the number of counted lines of the source before it."""
        with no_garbage_collection():
            return self._read(block, index)

    def _read(self, block: Block, index: int) -> BlockResult:
        rows = Rows()
        rejected: list[Rejected] = []
        pieces = block.pieces()
        number, offset, counted = block.number, block.offset, 0
        unfinished = False
        waiting: Sequence[int] = range(len(pieces))
        if self._together is not None and block.complete and not block.oversize:
            waiting = self._together.read(pieces, number, rows)
            counted = len(pieces) - len(waiting)
        done = 0
        for place in waiting:
            offset += sum(map(len, pieces[done:place]))
            done, number = place + 1, block.number + place + 1
            piece = pieces[place].removesuffix(b"\n")
            try:
                if block.oversize:
                    raise BadLine(TOO_LONG)
                rows.add(self._lines.read(piece, index + counted), number)
                counted += 1
            except BadLine as bad:
                reason = str(bad)[:_REASON_CHARACTERS]
                if reason not in (BLANK, COMMENT):
                    if not block.complete:
                        reason, unfinished = UNFINISHED, True
                    else:
                        counted += 1
                rejected.append(Rejected(number, offset, reason, piece[:REJECTED_BYTES]))
            offset += len(pieces[place])
        return BlockResult(
            rows=rows.table(),
            lines=len(pieces),
            counted=counted,
            rejected=rejected,
            tasks=list(rows.tasks.values()),
            sketches=list(rows.sketches.values()),
            workloads={t: w for t, w in self._lines.workloads.items() if t in rows.tasks},
            unfinished=unfinished,
        )


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Keep the cycle collector from walking millions of young lists (ten times the time)."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
