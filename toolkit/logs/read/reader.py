"""Read the lines of one source into rows, tasks, sketches and rejected lines, in one process."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import orjson

from toolkit.logs.files.files import LineBlock
from toolkit.logs.formats import format_named, line_formats
from toolkit.logs.rows.base import TOO_DEEP, BadLine, Reading, refuse_deep
from toolkit.logs.rows.format import LineFormat
from toolkit.logs.rows.json_text import count_keys, refuse_repeated
from toolkit.logs.rows.results import REJECTED_BYTES, BlockResult, Rejected, no_garbage_collection
from toolkit.logs.rows.rows import Rows

COMMENT = "a comment"
BLANK = "a blank line"
TOO_LONG = "the line has more than 32 MiB"
UNFINISHED = "unfinished: the file ends within this line"
_REASON_CHARACTERS = 500


class LineReader:
    """Reads single lines of one source, whose format was recognised by its first lines."""

    def __init__(self, kind: str, machine: str | None, beside: Any = None) -> None:
        self._kind, self._machine = kind, machine
        named = format_named(kind)
        self.format = named if isinstance(named, LineFormat) else None
        self.reader = None if self.format is None else self.format.reader(machine, beside)

    @cached_property
    def _readers(self) -> list[tuple[LineFormat, Any]]:
        """Formats with their readers, the source's own first: a file may mix lines of several.

        Loaded on first use: most blocks need no other format, and loading all formats takes as
        long as reading two blocks.
        """
        own = [] if self.format is None else [(self.format, self.reader)]
        others = (found for found in line_formats() if found.name != self._kind)
        return [*own, *((found, found.reader(self._machine, None)) for found in others)]

    def read(self, data: bytes, index: int) -> Reading:
        """Read one line; ``index`` counts earlier lines that are neither blank nor comments.

        Raises ``BadLine`` with the reason if the line is no record.
        """
        text = data.strip()
        if not text:
            raise BadLine(BLANK)
        if text.startswith(b"#"):
            raise BadLine(COMMENT)
        try:
            entry: Any = orjson.loads(text)
        except orjson.JSONDecodeError as error:
            raise BadLine(_why_not_json(text, error)) from None
        try:
            refuse_deep(text)
            refuse_repeated(text, _keys(entry))
            for found, reader in self._readers:
                if found.accepts(entry):
                    read: Reading = reader.interpret(entry, index, text)
                    return read
        except (RecursionError, orjson.JSONEncodeError):
            raise BadLine(TOO_DEEP) from None
        raise BadLine("JSON, but not a tuning record")


def _keys(entry: Any) -> int:
    """Number of keys in the usual places of objects; other lines get a slower check."""
    if isinstance(entry, list):
        record = entry[1] if len(entry) == 2 else None
        return count_keys(record[2:]) if isinstance(record, list) else 0
    if not isinstance(entry, dict):
        return 0
    inner = [value[-1] if type(value) is list and value else value for value in entry.values()]
    return len(entry) + sum(len(value) for value in inner if type(value) is dict)


def _why_not_json(text: bytes, error: orjson.JSONDecodeError) -> str:
    try:
        text.decode()
    except UnicodeDecodeError as wrong:
        return f"damaged bytes: not UTF-8 at byte {wrong.start}"
    odd = " (NaN or Infinity)" if b"NaN" in text or b"Infinity" in text else ""
    return f"not JSON{odd}: {str(error).split(':', 1)[0]}"


class BlockReader:
    """Reads the blocks of one source."""

    def __init__(self, kind: str, machine: str | None, beside: Any = None) -> None:
        self._lines = LineReader(kind, machine, beside)
        found = self._lines.format
        self._together = None if found is None else found.together(self._lines.reader)

    @no_garbage_collection()
    def read(self, block: LineBlock, index: int) -> BlockResult:
        """Read a block; ``index`` is the number of counted lines of the source before the block."""
        rows = Rows()
        pieces = block.pieces()
        result = BlockResult(None, len(pieces), 0)
        waiting: Sequence[int] = range(len(pieces))
        if self._together is not None and block.complete and not block.oversize:
            waiting = self._together.read(pieces, block.number, rows)
            result.counted = len(pieces) - len(waiting)
        offset, done = block.offset, 0
        for place in waiting:
            offset += sum(map(len, pieces[done:place]))
            number, piece = block.number + place + 1, pieces[place].removesuffix(b"\n")
            try:
                if block.oversize:
                    raise BadLine(TOO_LONG)
                rows.add(self._lines.read(piece, index + result.counted), number)
                result.counted += 1
            except BadLine as bad:
                reason = str(bad)[:_REASON_CHARACTERS]
                if reason not in (BLANK, COMMENT):
                    if block.complete:
                        result.counted += 1
                    else:
                        reason, result.unfinished = UNFINISHED, True
                rejected = Rejected(number, offset, reason, piece[:REJECTED_BYTES])
                result.rejected.append(rejected)
            offset += len(pieces[place])
            done = place + 1
        result.rows = rows.table()
        result.tasks, result.sketches = list(rows.tasks.values()), list(rows.sketches.values())
        if self._lines.format is not None:
            sizes = self._lines.format.space_sizes(self._lines.reader)
            result.space_sizes = {task: size for task, size in sizes.items() if task in rows.tasks}
        return result
