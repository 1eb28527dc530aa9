"""Blocks of lines read in several processes, their results in order."""

from __future__ import annotations

import contextlib
import queue
import subprocess
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from threading import Lock
from typing import Any

from toolkit import children
from toolkit.cluster import AHEAD, Cluster
from toolkit.errors import ToolkitError
from toolkit.logs.files.files import LineBlock
from toolkit.logs.formats import FORMATS
from toolkit.logs.read.reader import BlockReader
from toolkit.logs.read.worker import decode_result, read_block, read_frame, write_frame
from toolkit.logs.rows.format import Beside
from toolkit.logs.rows.results import BlockResult

PIPE_BYTES = 2**20

READ_HERE = 8
"""So many blocks that this process read may wait for one before them."""


@dataclass(frozen=True)
class SourceSettings:
    """What a reader must know of a source: its format, its machine, what stands beside it."""

    kind: str
    machine: str | None
    beside: Beside


class InProcess:
    """Reads every block at once, in this process."""

    window = 0

    def __init__(self) -> None:
        self._settings: SourceSettings | None = None
        self._reader: BlockReader | None = None

    def submit(self, settings: SourceSettings, block: LineBlock, index: int) -> Future[BlockResult]:
        if self._reader is None or self._settings is not settings:
            self._reader = BlockReader(settings.kind, settings.machine, settings.beside)
            self._settings = settings
        future: Future[BlockResult] = Future()
        future.set_result(self._reader.read(block, index))
        return future


class WorkerPool:
    """Reads blocks in worker processes; each is fed and heard by a thread of this one.

    This process reads while they start, and where each has a block and another one waits. The
    first blocks are its own, so that they are written while the others are read.
    """

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.window = 2 * workers + READ_HERE
        self._unread = self._ready = 0
        self._count = Lock()
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="ingest")
        self._idle: queue.SimpleQueue[_Process] = queue.SimpleQueue()
        self._processes = [_Process() for _ in range(workers)]
        for process in self._processes:
            self._threads.submit(self._add_when_ready, process)
        self._local = InProcess()

    def submit(self, settings: SourceSettings, block: LineBlock, index: int) -> Future[BlockResult]:
        if not settings.beside.portable or settings.kind in FORMATS.added:
            return self._local.submit(settings, block, index)
        with self._count:
            have_enough = self._unread >= 2 * self._ready
            self._unread += not have_enough
        if have_enough:
            return self._local.submit(settings, block, index)
        return self._threads.submit(self._read, settings, block)

    def _add_when_ready(self, process: _Process) -> None:
        process.wait_until_ready()
        self._idle.put(process)
        with self._count:
            self._ready += 1

    def _read(self, settings: SourceSettings, block: LineBlock) -> BlockResult:
        process = self._idle.get()
        try:
            return process.read(settings, block)
        finally:
            self._idle.put(process)
            with self._count:
                self._unread -= 1

    def close(self) -> None:
        for process in self._processes:
            process.kill()
        self._threads.shutdown(wait=True, cancel_futures=True)
        for process in self._processes:
            process.close()


class ClusterBlocks:
    """Reads blocks on a cluster, but for those that need a file which lies beside their log."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.window = AHEAD * max(1, cluster.workers)
        self._local = InProcess()

    def submit(self, settings: SourceSettings, block: LineBlock, index: int) -> Future[BlockResult]:
        beside = settings.beside
        if not beside.portable or beside.description() or settings.kind in FORMATS.added:
            return self._local.submit(settings, block, index)
        return self._cluster.submit(read_block, (settings.kind, settings.machine), block)


Blocks = InProcess | WorkerPool | ClusterBlocks
"""Reads blocks, now or later: results are futures."""


class _Process:
    def __init__(self) -> None:
        self._settings: SourceSettings | None = None
        environment = {
            "OMP_NUM_THREADS": "1",
            # They would spin for 0.1 s when NumPy is loaded.
            "OPENBLAS_NUM_THREADS": "1",
            # glibc gives large arrays back to the system at every turn unless told to keep them.
            "MALLOC_MMAP_THRESHOLD_": str(2**26),
            "MALLOC_TRIM_THRESHOLD_": str(2**27),
        }
        command = children.python("toolkit.logs.read.worker")
        pipe = subprocess.PIPE
        self._process = children.start(command, environment=environment, stdin=pipe, stdout=pipe)
        # Pipes hold more than their usual 64 KiB, where the system can: fewer turns for a block.
        with contextlib.suppress(ImportError, AttributeError, OSError):
            import fcntl

            for end in filter(None, (self._process.stdin, self._process.stdout)):
                fcntl.fcntl(end, fcntl.F_SETPIPE_SZ, PIPE_BYTES)

    def wait_until_ready(self) -> None:
        """Wait until its libraries are loaded, or it has ended: its first block tells then."""
        if self._process.stdout is not None:
            read_frame(self._process.stdout)

    def read(self, settings: SourceSettings, block: LineBlock) -> BlockResult:
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            raise ToolkitError("a reading process has no pipes")
        answer: tuple[Any, bytes] | None = None
        with contextlib.suppress(BrokenPipeError, ValueError):
            if settings is not self._settings:
                source = {"kind": settings.kind, "machine": settings.machine}
                source["beside"] = settings.beside.description()
                write_frame(stdin, {"source": source})
                self._settings = settings
            place = block._asdict()
            body = place.pop("body")
            write_frame(stdin, {"block": place}, body)
            answer = read_frame(stdout)
        if answer is None:
            raise ToolkitError(
                f"a reading process ended early (exit code {self._process.poll()})",
                cure="what was committed before is kept; ingest again, or with --workers 0",
            )
        return decode_result(*answer)

    def kill(self) -> None:
        # It holds nothing that is to be kept, and libraries take a fifth of a second to go.
        self._process.kill()

    def close(self) -> None:
        children.end(self._process)
