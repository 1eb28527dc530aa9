"""Logs → dataset: every line accounted for, atomic, idempotent, in bounded memory."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from toolkit.datasets.write.lock import locked
from toolkit.datasets.write.reading import Marks
from toolkit.datasets.write.report import IngestReport, SourceReport
from toolkit.datasets.write.run import IngestRun
from toolkit.datasets.write.sources import LogFile, discover
from toolkit.datasets.write.store import Store
from toolkit.errors import LogError, ToolkitError
from toolkit.logs.files.files import shown
from toolkit.logs.read.detect import SIDECAR, WHY_NOT
from toolkit.logs.read.pool import Blocks, InProcess, WorkerPool
from toolkit.progress import SILENT, Progress

WORTH_WORKERS_BYTES = 4 * 2**20
"""Logs of this size on disk and more are read by several processes."""


def ingest(
    paths: Sequence[str | Path] | str | Path,
    dataset_dir: str | Path,
    *,
    machine: str | None = None,
    path_rule: str | None = None,
    workers: int | None = None,
    progress: Progress = SILENT,
    marks: Marks | None = None,
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
    workers
        Processes that read beside this one (0: none; by default as many as there are cores where
        the logs are large).
    marks
        What ``follow`` remembers from one ingest to the next.

    Raises
    ------
    LogError
        When a path does not exist or nothing at all could be read.
    DatasetError
        When the folder holds anything but a dataset, is damaged, or cannot be written.
    """
    begun = time.perf_counter()
    rule = _compiled(path_rule)
    if isinstance(paths, (str, Path)):
        paths = [paths]
    files = discover(paths, machine, rule)
    folder = Path(dataset_dir)
    for word in (machine, str(folder)):
        if word is not None and shown(word) != word:
            raise ToolkitError(f"{shown(word)!r} is not UTF-8", cure="choose another name")
    report = IngestReport(str(folder))
    with locked(folder), _blocks(files, workers) as blocks:
        store = Store(folder)
        with progress.step("reading logs", total=len(files)) as step:

            def done(entry: SourceReport) -> None:
                report.per_source.append(entry)
                step.advance(1, note=Path(entry.path).name)

            try:
                IngestRun(store, files, blocks, marks).run(done)
                store.close()
            except BaseException:
                store.abandon()
                raise
    report.seconds = time.perf_counter() - begun
    report.peak_rss_bytes = peak_rss_bytes(getattr(blocks, "workers", 0))
    report.total_records = sum(part.rows for part in store.manifest.records)
    report.total_tasks = len(store.tasks)
    report.machines_unknown = sum(task.machine is None for task in store.tasks.values())
    if report.nothing:
        raise nothing_read(report, paths)
    return report


@contextmanager
def _blocks(files: Sequence[LogFile], workers: int | None) -> Iterator[Blocks]:
    """Choose who reads: this process alone, or others beside it where that pays."""
    if workers is None:
        read = {file.place.path for file in files if file.kind not in {SIDECAR, *WHY_NOT}}
        sizes = sum(path.stat().st_size for path in read)
        workers = cores() if sizes >= WORTH_WORKERS_BYTES and cores() > 1 else 0
    if not workers:
        yield InProcess()
        return
    pool = WorkerPool(workers)
    try:
        yield pool
    finally:
        pool.close()


def cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


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
    unread = [source for source in report.per_source if not source.lines]
    if not unread:
        return LogError("there are no files", where=paths[0] if paths else None)
    first = unread[0]
    more = f" (and {len(unread) - 1} more files)" if len(unread) > 1 else ""
    return LogError(
        f"nothing could be read: {first.message}{more}",
        where=first.path,
        cure="give AutoTVM, Ansor, MetaSchedule or T4 logs, or folders that hold them",
    )


def peak_rss_bytes(workers: int = 0) -> int:
    """Peak resident memory so far, in bytes (0 where the system hides it).

    Of this process and of its reading processes, each of which is counted with the peak of the
    largest: an upper bound.
    """
    try:
        import resource
    except ImportError:
        return 0
    import sys

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if workers:
        peak += workers * resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return int(peak if sys.platform == "darwin" else peak * 1024)
