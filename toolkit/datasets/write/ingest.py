"""Ingest logs into a dataset: atomic, idempotent, in bounded memory; every line is counted."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa

from toolkit.children import available_processors
from toolkit.cluster import Cluster
from toolkit.datasets.urls import folder_at, is_remote
from toolkit.datasets.write.reading import Marks
from toolkit.datasets.write.report import IngestReport, SourceReport
from toolkit.datasets.write.run import LogFile, choose_shard, discover, read_into
from toolkit.datasets.write.store import writing_store
from toolkit.errors import LogError, ToolkitError
from toolkit.logs.files.files import find_logs, shown
from toolkit.logs.read.detect import SIDECAR, WHY_NOT
from toolkit.logs.read.pool import Blocks, ClusterBlocks, InProcess, WorkerPool
from toolkit.progress import SILENT, Progress

WORTH_WORKERS_BYTES = 4 * 2**20
"""Logs of this size on disk or more are read by several processes."""


def ingest(
    paths: Sequence[str | Path] | str | Path,
    dataset_dir: str | Path,
    *,
    machine: str | None = None,
    path_rule: str | None = None,
    workers: int | Cluster | None = None,
    shard: tuple[int, int] | None = None,
    progress: Progress = SILENT,
    marks: Marks | None = None,
) -> IngestReport:
    """Read logs into the dataset in ``dataset_dir``; create it if needed.

    Ingesting the same logs again changes nothing; only the new lines of a grown log are added. Each
    commit is atomic: a killed run leaves the last commit, and the next run continues from there.

    Parameters
    ----------
    paths
        Files and folders (walked). Formats are recognised by content.
    machine
        Name of the machine that was measured; the target does not give it.
    path_rule
        Regular expression searched in every path; its named groups become labels of the source,
        and the group ``machine`` names the machine.
    workers
        Number of processes that read in addition to this one, or a cluster. By default 0 if the
        logs are small, else one for each further core.
    shard
        (2, 5) reads the second of five shards of the files; ``merge`` joins their datasets.
    marks
        State that ``follow`` keeps from one ingest to the next.

    Raises
    ------
    LogError
        When a path does not exist or nothing at all could be read.
    DatasetError
        When the folder holds other files than a dataset, is damaged, or cannot be written.
    """
    begun = time.perf_counter()
    try:
        rule = None if path_rule is None else re.compile(path_rule)
    except re.error as error:
        raise ToolkitError(
            f"the path rule (--path-rule) is not a valid regular expression: {error}",
            cure="name groups like this: (?P<network>[^/]+)/(?P<tuner>[^/]+)/[^/]+$",
        ) from None
    if isinstance(paths, (str, Path)):
        paths = [paths]
    files = discover(paths, machine, rule)
    if shard is not None:
        choose_shard(files, *shard)
    folder = folder_at(dataset_dir)
    if is_remote(folder):
        raise ToolkitError(
            "logs can only be ingested into a folder on this machine",
            where=folder,
            cure="ingest into a local folder, then: toolkit merge FOLDER --out URL",
        )
    for word in (machine, str(folder)):
        if word is not None and shown(word) != word:
            raise ToolkitError(f"the name {shown(word)!r} is not UTF-8", cure="choose another name")
    told: list[SourceReport] = []
    with (
        _small_pages(),
        writing_store(folder) as store,
        _blocks(files, workers) as blocks,
        progress.step("reading logs", total=sum(not f.elsewhere for f in files)) as step,
    ):
        for entry in read_into(store, files, blocks, {} if marks is None else marks):
            told.append(entry)
            step.advance(1, note=Path(entry.path).name)
        # A shard without a log is a dataset, too: 'merge' expects one of each.
        store.changed |= shard is not None and not store.manifest.generation
    nothing = not any(entry.lines or entry.outcome in ("read", "unchanged") for entry in told)
    if nothing and shard is None:
        raise _nothing_read(told, paths)
    return IngestReport.of(told, store, begun, getattr(blocks, "workers", 0))


@contextmanager
def _small_pages() -> Iterator[None]:
    """Let Arrow use the C library's allocator.

    Arrow's own allocator requests huge pages, and the system may search a third of a second for
    them (docs/results/ingest.md).
    """
    before = pa.default_memory_pool()
    pa.set_memory_pool(pa.system_memory_pool())
    try:
        yield
    finally:
        pa.set_memory_pool(before)


@contextmanager
def _blocks(files: Sequence[LogFile], workers: int | Cluster | None) -> Iterator[Blocks]:
    """Yield what reads the blocks: this process alone, or further processes if that is faster."""
    if workers is None:
        read = {
            file.place.path
            for file in files
            if file.kind not in {SIDECAR, *WHY_NOT} and not file.elsewhere
        }
        size = 0
        for path in read:
            with suppress(FileNotFoundError):  # removed since it was found
                size += path.stat().st_size
        # This process reads, too, when the others have enough blocks.
        workers = available_processors() - 1 if size >= WORTH_WORKERS_BYTES else 0
    if isinstance(workers, Cluster):
        yield ClusterBlocks(workers)
        return
    if not workers:
        yield InProcess()
        return
    with closing(WorkerPool(workers)) as pool:
        yield pool


def _nothing_read(told: Sequence[SourceReport], paths: Sequence[str | Path]) -> LogError:
    """Return the error that says why nothing at all could be read."""
    if not told:
        return LogError("there are no files to read", where=paths[0] if paths else None)
    more = f" (and {len(told) - 1} more files)" if len(told) > 1 else ""
    return LogError(
        f"nothing could be read: {told[0].message}{more}",
        where=told[0].path,
        cure="give AutoTVM, Ansor, MetaSchedule or T4 logs, or folders that hold them",
    )


def follow(
    paths: Sequence[str | Path] | str | Path,
    dataset_dir: str | Path,
    *,
    machine: str | None = None,
    path_rule: str | None = None,
    workers: int | None = None,
    interval_s: float = 2.0,
    rounds: int | None = None,
    progress: Progress = SILENT,
) -> Iterator[IngestReport]:
    """Ingest logs again whenever they change; yield a report each time.

    Between rounds only sizes and times of files are checked. New files in followed folders are
    ingested. An incomplete last line is read again when it has grown.

    Parameters
    ----------
    interval_s
        Seconds between two checks.
    rounds
        Number of checks (default: no limit).

    Raises
    ------
    LogError
        When a path does not exist.
    """
    if isinstance(paths, (str, Path)):
        paths = [paths]
    known: dict[Path, tuple[int, int]] = {}
    marks: Marks = {}
    more: dict[str, Any] = {"machine": machine, "path_rule": path_rule, "workers": workers}
    looks: Iterable[int] = count() if rounds is None else range(rounds)
    for look in looks:
        if look:
            time.sleep(interval_s)
        changed = []
        for path in (found.path for found in find_logs(paths) if not found.trouble):
            with suppress(FileNotFoundError):  # removed since it was found
                about = path.stat()
                state = (about.st_size, about.st_mtime_ns)
                if known.get(path) != state:
                    known[path] = state
                    changed.append(path)
        if not changed:
            continue
        try:
            yield ingest(changed, dataset_dir, progress=progress, marks=marks, **more)
        except (LogError, FileNotFoundError):
            # There may be nothing to read yet: a tuner may just have created the file. And if a
            # file was removed since, the others were not read: try them again.
            if not all(path.exists() for path in changed):
                for path in changed:
                    known.pop(path, None)
