"""One run of an ingest: files → blocks → readings in order → store."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import IO

from toolkit.datasets.manifest import Source
from toolkit.datasets.report import SourceReport
from toolkit.datasets.sources import LogFile
from toolkit.datasets.store import Store
from toolkit.errors import LogError
from toolkit.logs.base import BadLine
from toolkit.logs.block_reader import BlockResult
from toolkit.logs.databases import read_database, workload_file
from toolkit.logs.detect import DOCUMENTS, READABLE, WHY_NOT, Kind
from toolkit.logs.documents import MAX_DOCUMENT_BYTES, read_document
from toolkit.logs.files import Block, DecompressionErrors, read_blocks
from toolkit.logs.metaschedule import Database
from toolkit.logs.places import Place
from toolkit.logs.pool import Blocks, SourceSettings
from toolkit.records import content_id

BARREN_LINES = 1_000_000
"""After so many lines without a record a source is given up: it is damaged or a trap."""


@dataclass
class _Job:
    """A block under way; where ``block`` is ``None`` the end of its source."""

    reading: _Reading
    block: Block | None = None
    digest: str = ""
    result: Future[BlockResult] | None = None


class Run:
    """One pass over files into an open store.

    Blocks are handed out ahead of the results that are taken in, so that other processes read
    while this one writes; results are taken in strictly in order.
    """

    def __init__(self, store: Store, files: Sequence[LogFile], blocks: Blocks) -> None:
        self._store = store
        self._files = files
        self._blocks = blocks
        self._workload_files = [f.place for f in files if f.kind is Kind.METASCHEDULE_WORKLOAD]

    def run(self, done: Callable[[SourceReport], None]) -> None:
        """Ingest all files; ``done`` is told of each when its last line is taken in."""
        waiting: deque[_Job] = deque()
        for job in self._jobs(done):
            waiting.append(job)
            while len(waiting) > self._blocks.window:
                self._take(waiting.popleft(), done)
        while waiting:
            self._take(waiting.popleft(), done)

    def _take(self, job: _Job, done: Callable[[SourceReport], None]) -> None:
        if job.block is None or job.result is None:
            job.reading.finish()
            done(job.reading.entry)
            return
        job.reading.take(job.block, job.result.result(), job.digest)
        if self._store.full:
            self._store.commit()

    def _jobs(self, done: Callable[[SourceReport], None]) -> Iterator[_Job]:
        seen: set[str] = set()
        for file in self._files:
            if file.kind is Kind.SIDECAR or file.source_id in seen:
                continue
            seen.add(file.source_id)
            if file.kind not in READABLE:
                why = file.trouble or WHY_NOT[file.kind]
                done(SourceReport(str(file.place), file.kind.value, "skipped", message=why))
                continue
            reading = self._open(file)
            if reading is None:
                done(SourceReport(str(file.place), file.kind.value, "unchanged"))
                continue
            if file.kind in DOCUMENTS:
                yield from self._document(reading)
                continue
            index = reading.source.seen
            for block, digest in reading.blocks():
                future = self._blocks.submit(reading.settings, block, index)
                if not reading.settings.portable:
                    index += future.result().counted
                yield _Job(reading, block, digest, future)
            yield _Job(reading)

    def _document(self, reading: _Reading) -> Iterator[_Job]:
        """Read a file that is one document: as a whole, and anew when it has changed."""
        result: Future[BlockResult] = Future()
        try:
            data, digest = reading.document()
            name = reading.place.name.split(".")[0]
            settings = reading.settings
            result.set_result(read_document(data, settings.kind, name, settings.machine))
            yield _Job(reading, Block(b"", 0, 0, len(data)), digest, result)
        except (LogError, BadLine) as error:
            reading.entry.outcome, reading.entry.message = "damaged", str(error)
        yield _Job(reading)

    def _open(self, file: LogFile) -> _Reading | None:
        """Prepare to read a file; ``None`` where it was read before and has not changed."""
        database, workloads = Database(), None
        if file.kind is Kind.METASCHEDULE:
            workloads = workload_file(file.place, self._workload_files)
            database = read_database(file.place, workloads)
        source = self._store.source(file.source_id, str(file.place))
        labels = file.labels if file.ruled else source.labels
        machine = file.machine or database.machine or source.machine
        context = content_id(machine or "", repr(sorted(labels.items())), str(workloads))
        sha256 = file.sha256
        if source.finished and source.sha256 == sha256 and source.context == context:
            return None
        if source.context != context:
            self._store.forget(source)
        source.format, source.context = file.kind.value, context
        source.machine, source.labels = machine, labels
        settings = SourceSettings(file.kind, machine, database, file.place, workloads)
        return _Reading(self._store, source, settings, file, sha256)


class _Reading:
    """One source being read: where it stands, and what its lines give."""

    def __init__(
        self,
        store: Store,
        source: Source,
        settings: SourceSettings,
        file: LogFile,
        sha256: str,
    ) -> None:
        self.source, self.settings = source, settings
        self.entry = SourceReport(str(file.place), file.kind.value, "read")
        self._store, self._file, self._sha256 = store, file, sha256
        self._digest = hashlib.sha256()
        self._before = _counts(source)
        self._barren = 0

    @property
    def place(self) -> Place:
        """The file."""
        return self._file.place

    def document(self) -> tuple[bytes, str]:
        """The whole file and its hash; what was read of it before is forgotten."""
        self._store.forget(self.source)
        self._before = _counts(self.source)
        try:
            with self.place.open() as stream:
                data = stream.read(MAX_DOCUMENT_BYTES + 1)
        except DecompressionErrors as error:
            raise LogError(f"the data is damaged: {error}") from None
        if len(data) > MAX_DOCUMENT_BYTES:
            raise LogError(f"a JSON document of more than {MAX_DOCUMENT_BYTES >> 20} MiB")
        return data, hashlib.sha256(data).hexdigest()

    def blocks(self) -> Iterator[tuple[Block, str]]:
        """Give what is new in the file, with the hash of all bytes up to each block's end."""
        source = self.source
        try:
            with self.place.open() as stream:
                if self._skip(stream):
                    self._store.withdraw_unfinished(source)
                    self._before = _counts(source)
                    yield from self._blocks_of(stream)
                    return
            self._store.forget(source)
            self._before, self._digest = _counts(source), hashlib.sha256()
            with self.place.open() as stream:
                yield from self._blocks_of(stream)
        except LogError as error:
            self.entry.outcome, self.entry.message = "damaged", error.what

    def _blocks_of(self, stream: IO[bytes]) -> Iterator[tuple[Block, str]]:
        source = self.source
        blocks = read_blocks(
            stream, number=source.lines, offset=source.consumed, tap=self._digest.update
        )
        for block in blocks:
            if self._barren > BARREN_LINES:
                raise LogError(f"no record in {BARREN_LINES:,} lines: reading stopped")
            rest = self._behind_open_end(block)
            if rest is not None:
                yield rest, self._digest.hexdigest()

    def _skip(self, stream: IO[bytes]) -> bool:
        """Read over what was read before; whether it still is the same."""
        left = self.source.consumed
        while left and (chunk := stream.read(min(left, 2**20))):
            self._digest.update(chunk)
            left -= len(chunk)
        known = not self.source.consumed or self._digest.hexdigest() == self.source.consumed_sha256
        return known and not left

    def _behind_open_end(self, block: Block) -> Block | None:
        """Cut off the end of a line that was read before its newline was written."""
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
            source.consumed_sha256 = self._digest.hexdigest()
            return None
        return block._replace(body=rest, offset=source.consumed)

    def take(self, block: Block, result: BlockResult, digest: str) -> None:
        """Take in a block's result; called in the order of the blocks."""
        source = self.source
        self._store.add(source, result)
        source.seen += result.counted
        self._barren = 0 if len(result.rows) else self._barren + result.lines
        if result.unfinished:
            source.unfinished = 1
        else:
            source.consumed, source.consumed_sha256 = block.end, digest
            source.open_end = not block.complete
        reasons = self.entry.reasons
        for rejected in result.rejected:
            reasons[rejected.reason] = reasons.get(rejected.reason, 0) + 1
        for task_id, workload in result.workloads.items():
            size = self.settings.database.space_sizes.get(workload)
            if size is not None:
                self._store.manifest.space_sizes[task_id] = size

    def finish(self) -> None:
        """Close the books of this source."""
        source, entry = self.source, self.entry
        source.sha256, source.size = self._sha256, source.consumed
        source.finished = True
        self._store.changed()
        entry.lines, entry.records, entry.duplicates, entry.rejected = (
            now - then for now, then in zip(_counts(source), self._before, strict=True)
        )


def _counts(source: Source) -> tuple[int, int, int, int]:
    return source.lines, source.records, source.duplicates, source.rejected
