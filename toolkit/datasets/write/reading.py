"""Reading one source: its new blocks of lines, and the position up to which it was read."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, Any, NamedTuple

from toolkit.datasets.manifest import Source
from toolkit.datasets.read.integrity import file_sha256
from toolkit.datasets.write.report import COUNTS, SourceReport
from toolkit.datasets.write.store import Store
from toolkit.errors import LogError
from toolkit.logs.files.files import DecompressionErrors, LineBlock, read_blocks
from toolkit.logs.files.places import Place
from toolkit.logs.read.pool import SourceSettings
from toolkit.logs.rows.results import BlockResult

BARREN_LINES = 1_000_000
"""Reading stops after so many lines without a record: the file is damaged or a trap."""

TAIL_BYTES = 2**16

MAX_DOCUMENT_BYTES = 96 * 2**20
"""A document is read as a whole; larger ones are refused to bound memory."""


class Mark(NamedTuple):
    """A position in a file: the hash (its state) of all bytes before it, and the last of them."""

    place: int
    digest: Any
    tail: bytes


Marks = dict[str, Mark]
"""Marks by source id, so that ``follow`` does not read again what it has read before."""


@dataclass
class SourceReading:
    """Gives the new blocks of one source, and adds their results to the store.

    ``sha256`` is the file's hash; it is empty for a plain file, which is hashed while it is read.
    """

    store: Store
    source: Source
    settings: SourceSettings
    place: Place
    sha256: str
    marks: Marks
    outcome: str = "read"
    message: str | None = None

    def __post_init__(self) -> None:
        self._reasons: Counter[str] = Counter()
        self._last: Mark | None = None
        self._barren = 0
        self._left = False
        self._begin()

    def _begin(self) -> None:
        self._before = _counts(self.source)
        self._digest: Any = hashlib.sha256()
        self._tail = b""

    def document(self) -> tuple[bytes, Mark]:
        """Read the whole file; if that works, remove what was read of it before."""
        try:
            with self.place.open() as stream:
                data = stream.read(MAX_DOCUMENT_BYTES + 1)
        except DecompressionErrors as error:
            raise LogError(f"the data is damaged: {error}") from None
        if len(data) > MAX_DOCUMENT_BYTES:
            raise LogError(f"it is a JSON document of more than {MAX_DOCUMENT_BYTES >> 20} MiB")
        self._start_anew()
        self._tap(data)
        return data, Mark(len(data), self._digest.copy(), b"")

    def blocks(self) -> Iterator[tuple[LineBlock, Mark]]:
        """Yield the new blocks of the file, each with the mark at its end."""
        try:
            with self.place.open() as stream:
                if self._jump(stream) or self._skip(stream):
                    self.store.withdraw_unfinished(self.source)
                    self._before = _counts(self.source)
                    yield from self._blocks_of(stream)
                    return
            self._start_anew()
            with self.place.open() as stream:
                yield from self._blocks_of(stream)
        except LogError as error:
            self.outcome, self.message = "damaged", error.what

    def _start_anew(self) -> None:
        self.store.forget(self.source)
        self._begin()

    def _blocks_of(self, stream: IO[bytes]) -> Iterator[tuple[LineBlock, Mark]]:
        source = self.source
        blocks = read_blocks(stream, number=source.lines, offset=source.consumed, tap=self._tap)
        for block in blocks:
            if self._barren > BARREN_LINES:
                self._left = True
                raise LogError(f"no record in {BARREN_LINES:,} lines: reading stopped")
            rest = self._behind_open_end(block)
            if rest is not None:
                yield rest, Mark(rest.end, self._digest.copy(), self._tail)

    def _tap(self, data: bytes) -> None:
        self._digest.update(data)
        if not self.sha256:
            self._tail = (self._tail + data[-TAIL_BYTES:])[-TAIL_BYTES:]

    def _jump(self, stream: IO[bytes]) -> bool:
        """Skip what this process has read before; return whether its last bytes are unchanged."""
        mark = self.marks.get(self.source.source_id)
        if self.sha256 or mark is None or mark.place != self.source.consumed:
            return False
        stream.seek(mark.place - len(mark.tail))
        if stream.read(len(mark.tail)) != mark.tail:
            stream.seek(0)
            return False
        self._digest, self._tail = mark.digest.copy(), mark.tail
        return True

    def _skip(self, stream: IO[bytes]) -> bool:
        """Read again what was read before; return whether it is unchanged."""
        left = self.source.consumed
        try:
            while left and (chunk := stream.read(min(left, 2**20))):
                self._tap(chunk)
                left -= len(chunk)
        except DecompressionErrors:
            return False
        known = not self.source.consumed or self._digest.hexdigest() == self.source.consumed_sha256
        return known and not left

    def _behind_open_end(self, block: LineBlock) -> LineBlock | None:
        """Remove the end of a line that was read before its newline was written."""
        source = self.source
        if not source.open_end or block.offset != source.consumed:
            return block
        end, newline, rest = block.body.partition(b"\n")
        if end.strip():
            source.open_end = False
            return block
        source.open_end = not newline
        source.consumed += len(end) + len(newline)
        if not rest:
            self._stand(Mark(source.consumed, self._digest.copy(), self._tail))
            return None
        return block._replace(body=rest, offset=source.consumed)

    def take(self, block: LineBlock, result: BlockResult, mark: Mark) -> None:
        """Add a block's result to the store; called in the order of the blocks."""
        source = self.source
        self.store.add(source, result)
        source.seen += result.counted
        self._barren = 0 if len(result.rows) else self._barren + result.lines
        if result.unfinished:
            source.unfinished = 1
        else:
            self._stand(mark)
            source.open_end = not block.complete
        self._reasons.update(rejected.reason for rejected in result.rejected)
        self.store.manifest.space_sizes.update(result.space_sizes)

    def _stand(self, mark: Mark) -> None:
        self.source.consumed = mark.place
        self.source.consumed_sha256 = mark.digest.hexdigest()
        self._last = mark

    def finish(self) -> SourceReport:
        """Complete the entry of this source, and return its report."""
        source = self.source
        source.sha256 = self.sha256 or self._digest.hexdigest()
        if self._left and not self.sha256:
            # Hash the whole file: it is not read again while it stays the same.
            with suppress(FileNotFoundError):
                source.sha256 = file_sha256(self.place.path)
        source.finished = True
        if self._last is not None and not self.sha256:
            self.marks[source.source_id] = self._last
        self.store.changed = True
        counts = zip(COUNTS, _counts(source), self._before, strict=True)
        return SourceReport(
            path=str(self.place),
            format=source.format,
            outcome=self.outcome,
            **{name: now - before for name, now, before in counts},
            message=self.message,
            reasons=dict(sorted(self._reasons.items())),
        )


def _counts(source: Source) -> list[int]:
    return [getattr(source, name) for name in COUNTS]
