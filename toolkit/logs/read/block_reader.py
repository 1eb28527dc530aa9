"""Blocks of lines → rows, tasks, sketches and rejected lines; the work of one process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toolkit.logs.files.files import LineBlock
from toolkit.logs.read.line_reader import BLANK, COMMENT, TOO_LONG, LineReader
from toolkit.logs.rows.base import BadLine
from toolkit.logs.rows.results import (
    REJECTED_BYTES,
    BlockResult,
    Rejected,
    no_garbage_collection,
)
from toolkit.logs.rows.rows import Rows

UNFINISHED = "unfinished: the file ends within this line"
_REASON_CHARACTERS = 500


class BlockReader:
    """Reads the blocks of one source."""

    def __init__(self, kind: str, machine: str | None, beside: Any = None) -> None:
        self._lines = LineReader(kind, machine, beside)
        self._format, self._own = self._lines.formats[0], self._lines.readers.get(kind)
        self._together = None if self._own is None else self._format.together(self._own)

    def read(self, block: LineBlock, index: int) -> BlockResult:
        """Read a block; ``index`` is the number of counted lines of the source before it."""
        with no_garbage_collection():
            return self._read(block, index)

    def _read(self, block: LineBlock, index: int) -> BlockResult:
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
            space_sizes=self._space_sizes(rows),
            unfinished=unfinished,
        )

    def _space_sizes(self, rows: Rows) -> dict[str, int]:
        if self._own is None:
            return {}
        sizes = self._format.space_sizes(self._own)
        return {task: size for task, size in sizes.items() if task in rows.tasks}
