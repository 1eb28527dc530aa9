"""One run of an ingest: find and recognise files, read their blocks, add results to the store."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from toolkit.datasets.read.integrity import file_sha256
from toolkit.datasets.write.reading import Mark, Marks, SourceReading
from toolkit.datasets.write.report import SourceReport
from toolkit.datasets.write.store import Store
from toolkit.errors import LogError
from toolkit.logs.files.archives import Archive, is_archive
from toolkit.logs.files.files import (
    DecompressionErrors,
    Found,
    LineBlock,
    find_logs,
    is_compressed,
    open_log,
)
from toolkit.logs.files.places import Place
from toolkit.logs.formats import format_named
from toolkit.logs.read.detect import FOREIGN, SIDECAR, WHY_NOT, detect, read_head, why_foreign
from toolkit.logs.read.pool import Blocks, SourceSettings
from toolkit.logs.rows.base import BadLine
from toolkit.logs.rows.format import DocumentFormat
from toolkit.logs.rows.results import BlockResult, no_garbage_collection
from toolkit.records import content_id


@dataclass
class LogFile:
    """One file to ingest, or one member of an archive.

    ``ruled``: a path rule was given (without one, the source keeps its labels). ``elsewhere``:
    another shard reads this file.
    """

    place: Place
    kind: str
    labels: dict[str, str] = field(default_factory=dict)
    machine: str | None = None
    trouble: str | None = None
    ruled: bool = False
    elsewhere: bool = False

    @property
    def source_id(self) -> str:
        """Identity of the file in a dataset: its resolved path."""
        return content_id("source", self.place.identity)

    @cached_property
    def sha256(self) -> str:
        """SHA-256 of the file (of an archive: the whole) as it lies on disk."""
        return file_sha256(self.place.path)


def discover(
    paths: Iterable[str | Path], machine: str | None, rule: re.Pattern[str] | None
) -> list[LogFile]:
    """Find and recognise all files in ``paths``; folders and archives are walked.

    ``rule`` is searched in every path; its groups become labels. Raises as ``find_logs`` does.
    """
    files = [file for found in find_logs(paths) for file in _look(found)]
    for file in files:
        if file.kind == FOREIGN:
            continue
        file.machine, file.ruled = machine, rule is not None
        path, member = file.place.path, file.place.member
        text = path.as_posix() if member is None else f"{path}/{member}"
        if rule is not None and (match := rule.search(text)):
            file.labels = {k: v for k, v in match.groupdict().items() if v is not None}
            named = file.labels.pop("machine", None)
            file.machine = machine or named
    return files


def choose_shard(files: Iterable[LogFile], number: int, of: int) -> None:
    """Mark files that are not in shard ``number`` (from 1) as read elsewhere."""
    for place, file in enumerate(file for file in files if file.kind != SIDECAR):
        file.elsewhere = place % of != number - 1


def _look(found: Found) -> Iterator[LogFile]:
    """Recognise a file, or the members of an archive."""
    path, trouble = found.path, found.trouble
    if not trouble:
        try:
            with open_log(path) as stream:
                head = read_head(stream)
        except LogError as error:
            trouble = error.what
        except (OSError, *DecompressionErrors) as error:
            trouble = f"cannot be read: {error}"
    if trouble:
        yield LogFile(Place(path), FOREIGN, trouble=trouble)
    elif is_archive(head):
        yield from _unpack(path)
    else:
        yield _recognised(Place(path), head)


def _unpack(path: Path) -> Iterator[LogFile]:
    archive, trouble = Archive(path), None
    files: dict[str, LogFile] = {}
    try:
        for name, head, why in archive.members(read_head):
            files[name] = _recognised(Place(path, name, archive), head)
            if why:
                files[name].kind, files[name].trouble = FOREIGN, why
    except LogError as error:
        trouble = error.what
    digest = file_sha256(path)
    folders: dict[tuple[Path, str | None], list[str]] = {}
    for name, file in files.items():
        folders.setdefault(file.place.folder, []).append(name)
    for name, file in files.items():
        file.place = Place(path, name, archive, tuple(folders[file.place.folder]))
        file.__dict__["sha256"] = digest
        yield file
    if trouble:
        yield LogFile(Place(path), FOREIGN, trouble=trouble)


def _recognised(place: Place, head: bytes) -> LogFile:
    kind = detect(head, place.name)
    return LogFile(place, kind, trouble=why_foreign(head) if kind == FOREIGN else None)


class _Block(NamedTuple):
    """A block that is being read."""

    reading: SourceReading
    block: LineBlock
    mark: Mark
    result: Future[BlockResult]


_Job = _Block | SourceReading | SourceReport
"""A block, the end of a source, or the report of a file that is not read."""


def read_into(
    store: Store, files: Sequence[LogFile], blocks: Blocks, marks: Marks
) -> Iterator[SourceReport]:
    """Read files into an open store; yield the report of each when its last line is stored.

    Blocks are submitted ahead of time, so that other processes read while this one writes. Results
    are stored strictly in order, each as soon as it is there: otherwise this process would be left
    with much to write at the end, when the others have nothing to do.
    """
    waiting: deque[_Job] = deque()
    for job in _jobs(store, files, blocks, marks):
        waiting.append(job)
        while waiting and (len(waiting) > blocks.window or _is_there(waiting[0])):
            yield from _taken(store, waiting.popleft(), blocks)
    while waiting:
        yield from _taken(store, waiting.popleft(), blocks)


def _is_there(job: _Job) -> bool:
    return not isinstance(job, _Block) or job.result.done()


def _taken(store: Store, job: _Job, blocks: Blocks) -> Iterator[SourceReport]:
    if isinstance(job, SourceReport):
        yield job
    elif isinstance(job, SourceReading):
        yield job.finish()
    else:
        while not job.result.done() and blocks.help():
            pass
        job.reading.take(job.block, job.result.result(), job.mark)
        store.commit_full()


def _jobs(store: Store, files: Sequence[LogFile], blocks: Blocks, marks: Marks) -> Iterator[_Job]:
    places: dict[str, list[Place]] = {}
    for file in files:
        places.setdefault(file.kind, []).append(file.place)
    seen: set[str] = set()
    for file in files:
        if file.kind == SIDECAR or file.elsewhere or file.source_id in seen:
            continue
        seen.add(file.source_id)
        path, kind = str(file.place), file.kind
        if kind in WHY_NOT:
            why = file.trouble or WHY_NOT[kind]
            yield SourceReport(path=path, format=kind, outcome="skipped", message=why)
            continue
        try:
            reading = _open(store, file, places, marks)
        except FileNotFoundError:
            why = "the file was removed before it was read"
            yield SourceReport(path=path, format=kind, outcome="skipped", message=why)
            continue
        if reading is None:
            yield SourceReport(path=path, format=kind, outcome="unchanged", message=None)
            continue
        document = format_named(kind)
        if isinstance(document, DocumentFormat):
            yield from _document(reading, document)
        else:
            yield from _lines(reading, blocks)
        yield reading


def _open(
    store: Store, file: LogFile, places: dict[str, list[Place]], marks: Marks
) -> SourceReading | None:
    """Prepare to read a file; ``None`` if it was read before and has not changed."""
    size = file.place.path.stat().st_size
    found = format_named(file.kind)
    beside = found.beside(file.place, places.get(found.companion, []))
    source = store.source(file.source_id, str(file.place))
    # A source keeps its labels and machine until new ones are given.
    labels = {**(file.labels if file.ruled else source.labels), **beside.labels}
    machine = file.machine or beside.machine or source.machine
    context = content_id(machine or "", repr(sorted(labels.items())), beside.context)
    same = source.finished and source.context == context and source.size == size
    if same and source.sha256 == file.sha256:
        return None
    if source.context != context:
        store.forget(source)
    source.format, source.context, source.size = file.kind, context, size
    source.machine, source.labels = machine, labels
    # A compressed file is hashed as it lies on disk; a plain one while it is read.
    plain = file.place.member is None and not is_compressed(file.place.path)
    settings, sha256 = SourceSettings(file.kind, machine, beside), "" if plain else file.sha256
    return SourceReading(store, source, settings, file.place, sha256, marks, message=beside.note)


def _lines(reading: SourceReading, blocks: Blocks) -> Iterator[_Block]:
    index = reading.source.seen
    for block, mark in reading.blocks():
        future = blocks.submit(reading.settings, block, index)
        if not reading.settings.beside.portable:
            index += future.result().counted
        yield _Block(reading, block, mark, future)


def _document(reading: SourceReading, found: DocumentFormat) -> Iterator[_Block]:
    """Read a file that is one document: always as a whole."""
    result: Future[BlockResult] = Future()
    try:
        data, mark = reading.document()
        name = reading.place.name.split(".")[0]
        with no_garbage_collection():
            read = found.read(data, name, reading.settings.machine, reading.settings.beside)
    except (LogError, BadLine) as error:
        reading.outcome, reading.message = "damaged", str(error)
        return
    if read.unfinished:
        reading.outcome, reading.message = "damaged", "the document is cut off or damaged"
    result.set_result(read)
    yield _Block(reading, LineBlock(b"", 0, 0, len(data)), mark, result)
