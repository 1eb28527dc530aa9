"""One run of an ingest: files → blocks → results in order → store."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from toolkit.datasets.write.reading import Mark, Marks, SourceReading
from toolkit.datasets.write.report import SourceReport
from toolkit.datasets.write.sources import LogFile
from toolkit.datasets.write.store import Store
from toolkit.errors import LogError
from toolkit.logs.files.files import LineBlock
from toolkit.logs.files.places import Place
from toolkit.logs.formats import format_named
from toolkit.logs.read.detect import SIDECAR, WHY_NOT
from toolkit.logs.read.pool import Blocks, SourceSettings
from toolkit.logs.rows.base import BadLine
from toolkit.logs.rows.format import Beside, DocumentFormat, LineFormat, LogFormat
from toolkit.logs.rows.results import BlockResult, no_garbage_collection
from toolkit.records import content_id


@dataclass
class _Job:
    """A block under way; without one, the end of its source."""

    reading: SourceReading
    block: LineBlock | None = None
    mark: Mark | None = None
    result: Future[BlockResult] | None = None


class IngestRun:
    """One pass over files into an open store.

    Blocks are handed out ahead of the results that are taken in, so that other processes read
    while this one writes; results are taken in strictly in order.
    """

    def __init__(
        self,
        store: Store,
        files: Sequence[LogFile],
        blocks: Blocks,
        marks: Marks | None = None,
    ) -> None:
        self._store = store
        self._files = files
        self._blocks = blocks
        self._marks: Marks = {} if marks is None else marks
        self._places: dict[str, list[Place]] = {}
        for file in files:
            self._places.setdefault(file.kind, []).append(file.place)

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
        if job.block is None or job.result is None or job.mark is None:
            job.reading.finish()
            done(job.reading.entry)
            return
        job.reading.take(job.block, job.result.result(), job.mark)
        if self._store.full:
            self._store.commit()

    def _jobs(self, done: Callable[[SourceReport], None]) -> Iterator[_Job]:
        seen: set[str] = set()
        for file in self._files:
            if file.kind == SIDECAR or file.source_id in seen:
                continue
            seen.add(file.source_id)
            if file.kind in WHY_NOT:
                why = file.trouble or WHY_NOT[file.kind]
                done(SourceReport(str(file.place), file.kind, "skipped", message=why))
                continue
            found = format_named(file.kind)
            reading = self._open(file, found)
            if reading is None:
                done(SourceReport(str(file.place), file.kind, "unchanged"))
            elif isinstance(found, DocumentFormat):
                yield from self._document(reading, found)
            else:
                yield from self._lines(reading)

    def _lines(self, reading: SourceReading) -> Iterator[_Job]:
        index = reading.source.seen
        for block, mark in reading.blocks():
            future = self._blocks.submit(reading.settings, block, index)
            if not reading.settings.beside.portable:
                index += future.result().counted
            yield _Job(reading, block, mark, future)
        yield _Job(reading)

    def _document(self, reading: SourceReading, found: DocumentFormat) -> Iterator[_Job]:
        """Read a file that is one document: as a whole, and anew when it has changed."""
        result: Future[BlockResult] = Future()
        try:
            data, mark = reading.document()
            name = reading.place.name.split(".")[0]
            with no_garbage_collection():
                read = found.read(data, name, reading.settings.machine)
            if read.unfinished:
                reading.entry.outcome = "damaged"
                reading.entry.message = "the document is cut off or damaged"
            result.set_result(read)
            yield _Job(reading, LineBlock(b"", 0, 0, len(data)), mark, result)
        except (LogError, BadLine) as error:
            reading.entry.outcome, reading.entry.message = "damaged", str(error)
        yield _Job(reading)

    def _open(self, file: LogFile, found: LogFormat) -> SourceReading | None:
        """Prepare to read a file; ``None`` where it was read before and has not changed."""
        beside = Beside()
        if isinstance(found, LineFormat):
            beside = found.beside(file.place, self._places.get(found.companion, []))
        source = self._store.source(file.source_id, str(file.place))
        # What is known of a source stays until something else is said of it.
        labels = file.labels if file.ruled else source.labels
        machine = file.machine or beside.machine or source.machine
        context = content_id(machine or "", repr(sorted(labels.items())), beside.context)
        size = file.place.path.stat().st_size
        same = source.finished and source.context == context and source.size == size
        if same and source.sha256 == file.sha256:
            return None
        if source.context != context:
            self._store.forget(source)
        source.format, source.context, source.size = file.kind, context, size
        source.machine, source.labels = machine, labels
        settings = SourceSettings(file.kind, machine, beside)
        return SourceReading(self._store, source, settings, file, self._marks)
