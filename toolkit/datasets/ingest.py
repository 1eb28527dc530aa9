"""Logs → dataset: every line accounted for, atomic, idempotent, in bounded memory."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO

from toolkit.datasets.manifest import Source
from toolkit.datasets.report import IngestReport, SourceReport
from toolkit.datasets.sources import LogFile, database_of, inspect, sha256_of
from toolkit.datasets.store import Store, locked
from toolkit.errors import LogError, ToolkitError
from toolkit.logs.block_reader import BlockReader, BlockResult
from toolkit.logs.detect import LINE_FORMATS, WHY_NOT, Kind
from toolkit.logs.files import Block, find_logs, open_log, read_blocks
from toolkit.logs.metaschedule import Database
from toolkit.progress import SILENT, Progress
from toolkit.records import content_id


def ingest(
    paths: Sequence[str | Path] | str | Path,
    dataset_dir: str | Path,
    *,
    machine: str | None = None,
    path_rule: str | None = None,
    progress: Progress = SILENT,
) -> IngestReport:
    """Read logs into the dataset in ``dataset_dir``, which is made where there is none.

    Ingesting the same logs again changes nothing; of a log that has grown only what is new is
    read. Each commit is atomic: a run that is killed leaves the last one, and the next run goes
    on from there.

    Parameters
    ----------
    paths
        Files and folders (walked). Formats are recognised by content.
    machine
        Name of the machine that was measured; the target does not tell it.
    path_rule
        Regular expression searched in every path; its named groups become labels of the source,
        the group ``machine`` names the machine.

    Raises
    ------
    LogError
        When a path does not exist or nothing at all could be read.
    """
    begun = time.perf_counter()
    rule = _compiled(path_rule)
    if isinstance(paths, (str, Path)):
        paths = [paths]
    files = [inspect(path, machine, rule) for path in find_logs(paths)]
    folder = Path(dataset_dir)
    report = IngestReport(str(folder))
    with locked(folder):
        store = Store(folder)
        run = _Run(store, files)
        with progress.step("reading logs", total=len(files)) as step:
            for file in files:
                step.advance(0, note=file.path.name)
                entry = run.take(file)
                if entry is not None:
                    report.per_source.append(entry)
                step.advance(1)
        store.close()
    report.seconds = time.perf_counter() - begun
    report.peak_rss_bytes = peak_rss_bytes()
    report.total_records = sum(part.rows for part in store.manifest.records)
    report.total_tasks = len(store.tasks)
    report.machines_unknown = sum(task.machine is None for task in store.tasks.values())
    if report.sources == 0:
        raise nothing_read(report, paths)
    return report


class _Run:
    """One pass over files into an open store."""

    def __init__(self, store: Store, files: Iterable[LogFile]) -> None:
        self._store = store
        self._workload_files = [f.path for f in files if f.kind is Kind.METASCHEDULE_WORKLOAD]

    def take(self, file: LogFile) -> SourceReport | None:
        """Ingest one file; ``None`` for sidecars, which are read with their database."""
        if file.kind is Kind.SIDECAR:
            return None
        path = str(file.path)
        if file.kind not in LINE_FORMATS:
            why = file.trouble or WHY_NOT[file.kind]
            return SourceReport(path, file.kind.value, "skipped", message=why)
        database, companion = Database(), None
        if file.kind is Kind.METASCHEDULE:
            database, companion = database_of(file.path, self._workload_files)
        machine = file.machine or database.machine
        context = content_id(machine or "", repr(sorted(file.labels.items())), str(companion))
        source = self._store.source(file.source_id, path)
        sha256 = sha256_of(file.path)
        if source.finished and source.sha256 == sha256 and source.context == context:
            return SourceReport(path, source.format, "unchanged")
        entry = SourceReport(path, file.kind.value, "read")
        if source.context != context:
            self._store.forget(source)
        source.format, source.context = file.kind.value, context
        source.machine, source.labels = machine, file.labels
        before = _counts(source)
        reading = _Reading(self._store, source, BlockReader(file.kind, machine, database), entry)
        try:
            with open_log(file.path) as stream:
                if not reading.resume(stream):
                    self._store.forget(source)
            before = _counts(source)
            with open_log(file.path) as stream:
                reading.run(stream)
        except LogError as error:
            entry.outcome, entry.message = "damaged", error.what
        source.sha256, source.size, source.finished = sha256, file.path.stat().st_size, True
        self._store.changed()
        after = _counts(source)
        entry.lines, entry.records, entry.duplicates, entry.rejected = (
            now - then for now, then in zip(after, before, strict=True)
        )
        self._learn_sizes(reading, database)
        return entry

    def _learn_sizes(self, reading: _Reading, database: Database) -> None:
        """Keep the sizes of spaces that a collector stated, by task."""
        for task_id, workload in reading.workloads.items():
            size = database.space_sizes.get(workload)
            if size is not None:
                self._store.manifest.space_sizes[task_id] = size


class _Reading:
    """One source being read: where it stands, and what its lines give."""

    def __init__(
        self, store: Store, source: Source, reader: BlockReader, entry: SourceReport
    ) -> None:
        self._store, self._source, self._reader, self._entry = store, source, reader, entry
        self._digest = hashlib.sha256()
        self.workloads: dict[str, int] = {}

    def resume(self, stream: IO[bytes]) -> bool:
        """Whether the stream begins with what was read before; if so, go on behind it."""
        source = self._source
        digest = hashlib.sha256()
        left = source.consumed
        while left and (chunk := stream.read(min(left, 2**20))):
            digest.update(chunk)
            left -= len(chunk)
        same = not left and (not source.consumed or digest.hexdigest() == source.consumed_sha256)
        if same:
            self._store.withdraw_unfinished(source)
        return same

    def run(self, stream: IO[bytes]) -> None:
        """Read on from where the source stands, committing whenever enough has gathered."""
        source = self._source
        left = source.consumed
        while left and (chunk := stream.read(min(left, 2**20))):
            self._digest.update(chunk)
            left -= len(chunk)
        blocks = read_blocks(
            stream, number=source.lines, offset=source.consumed, tap=self._digest.update
        )
        for block in blocks:
            rest = self._behind_open_end(block)
            if rest is not None:
                self._take(rest, self._reader.read(rest, source.seen), self._digest.hexdigest())
            if self._store.full:
                self._store.commit()

    def _behind_open_end(self, block: Block) -> Block | None:
        """Cut off the end of a line that was read before its newline was written."""
        source = self._source
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

    def _take(self, block: Block, result: BlockResult, digest: str) -> None:
        source = self._source
        self._store.add(source, result)
        self.workloads.update(result.workloads)
        source.seen += result.counted
        if result.unfinished:
            source.unfinished = 1
        else:
            source.consumed, source.consumed_sha256 = block.end, digest
            source.open_end = not block.complete
        for rejected in result.rejected:
            reasons = self._entry.reasons
            reasons[rejected.reason] = reasons.get(rejected.reason, 0) + 1


def _counts(source: Source) -> tuple[int, int, int, int]:
    return source.lines, source.records, source.duplicates, source.rejected


def _compiled(path_rule: str | None) -> re.Pattern[str] | None:
    if path_rule is None:
        return None
    try:
        return re.compile(path_rule)
    except re.error as error:
        raise ToolkitError(
            f"the path rule is no regular expression: {error}",
            cure="name groups like this: (?P<network>[^/]+)/(?P<tuner>[^/]+)/[^/]+$",
        ) from None


def nothing_read(report: IngestReport, paths: Sequence[str | Path]) -> LogError:
    """Say why nothing at all could be read."""
    skipped = report.skipped
    if not skipped:
        return LogError("there are no files", where=paths[0] if paths else None)
    first = skipped[0]
    more = f" (and {len(skipped) - 1} more files)" if len(skipped) > 1 else ""
    return LogError(
        f"nothing could be read: {first.message}{more}",
        where=first.path,
        cure="give AutoTVM, Ansor or MetaSchedule logs, or folders that hold them",
    )


def peak_rss_bytes() -> int:
    """Peak resident memory of this process so far, in bytes (0 where the system hides it)."""
    try:
        import resource
    except ImportError:
        return 0
    import sys

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak if sys.platform == "darwin" else peak * 1024)
