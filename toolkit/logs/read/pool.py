"""Read blocks of lines in this process, in several processes, or on a cluster."""

from __future__ import annotations

import contextlib
import queue
import subprocess
from concurrent.futures import Future
from dataclasses import dataclass
from threading import Semaphore, Thread
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

EACH = 3
"""Blocks that a reading process has: one is being read, one is being sent, one waits."""

WAITING = 3
"""Blocks that no process has yet: this process reads the first of them where there are more."""

READ_HERE = 8
"""Number of blocks read by this process that may wait for an earlier block."""


@dataclass(frozen=True)
class SourceSettings:
    """What a reader must know about a source: its format, its machine, the files beside it."""

    kind: str
    machine: str | None
    beside: Beside


_Job = tuple[SourceSettings, LineBlock, "Future[BlockResult]"]


class InProcess:
    """Reads every block immediately, in this process."""

    window = 0
    _reader: BlockReader
    _settings: SourceSettings | None = None

    def submit(self, settings: SourceSettings, block: LineBlock, index: int) -> Future[BlockResult]:
        if self._settings is not settings:
            self._reader = BlockReader(settings.kind, settings.machine, settings.beside)
            self._settings = settings
        future: Future[BlockResult] = Future()
        future.set_result(self._reader.read(block, index))
        return future

    def help(self) -> bool:
        return False


class WorkerPool:
    """Reads blocks in worker processes, and in this one.

    Blocks wait in one queue. A process takes the first one as soon as it has room, whatever this
    process is doing. This process takes it while the workers start, where many wait, and when it
    needs a result that is not there yet.
    """

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.window = EACH * workers + WAITING + READ_HERE
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._processes = [_Process(self._jobs) for _ in range(workers)]
        self._local = InProcess()

    def submit(self, settings: SourceSettings, block: LineBlock, index: int) -> Future[BlockResult]:
        if not settings.beside.portable or settings.kind in FORMATS.added:
            return self._local.submit(settings, block, index)
        future: Future[BlockResult] = Future()
        self._jobs.put((settings, block, future))
        if self._jobs.qsize() > WAITING:
            self.help()
        return future

    def help(self) -> bool:
        """Read a block that no process has yet; return whether there was one."""
        try:
            job = self._jobs.get_nowait()
        except queue.Empty:
            return False
        assert job is not None, "the pool is closed"
        settings, block, future = job
        future.set_result(self._local.submit(settings, block, 0).result())
        return True

    def close(self) -> None:
        # All are stopped before one is waited for: any of them may take the mark of the end.
        for process in self._processes:
            process.stop()
        for process in self._processes:
            process.close()


class ClusterBlocks:
    """Reads blocks on a cluster, except blocks that need a file beside their log."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.window = AHEAD * max(1, cluster.workers)
        self._local = InProcess()

    def submit(self, settings: SourceSettings, block: LineBlock, index: int) -> Future[BlockResult]:
        beside = settings.beside
        if not beside.portable or beside.description() or settings.kind in FORMATS.added:
            return self._local.submit(settings, block, index)
        return self._cluster.submit(read_block, (settings.kind, settings.machine), block)

    def help(self) -> bool:
        return False


Blocks = InProcess | WorkerPool | ClusterBlocks
"""What reads blocks; results are futures. Whoever waits for one calls ``help`` first."""


class _Process:
    """A reading process. One thread sends it blocks, another receives its answers, both in order.

    This process is busy, and a thread needs several turns for a block or an answer of some MiB. So
    the next blocks are sent before the last one is answered.
    """

    def __init__(self, jobs: queue.SimpleQueue[_Job | None]) -> None:
        environment = {
            "OMP_NUM_THREADS": "1",
            # OpenBLAS threads would spin for 0.1 s when NumPy is loaded.
            "OPENBLAS_NUM_THREADS": "1",
            # Without these two, glibc returns large arrays to the system again and again.
            "MALLOC_MMAP_THRESHOLD_": str(2**26),
            "MALLOC_TRIM_THRESHOLD_": str(2**27),
        }
        command = children.python("toolkit.logs.read.worker")
        pipe = subprocess.PIPE
        self._process = children.start(command, environment=environment, stdin=pipe, stdout=pipe)
        # Larger pipes than the usual 64 KiB, if the system allows it: fewer turns for a block.
        with contextlib.suppress(ImportError, AttributeError, OSError):
            import fcntl

            for end in filter(None, (self._process.stdin, self._process.stdout)):
                fcntl.fcntl(end, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        self.ready = False
        """Whether its libraries are loaded."""
        self._jobs, self._closing = jobs, False
        self._room = Semaphore(0)
        self._waiting: queue.SimpleQueue[Future[BlockResult] | None] = queue.SimpleQueue()
        self._threads = [Thread(target=run, daemon=True) for run in (self._send, self._hear)]
        for thread in self._threads:
            thread.start()

    def _send(self) -> None:
        stdin, known = self._process.stdin, None
        assert stdin is not None
        while (job := self._next()) is not None:
            settings, block, future = job
            self._waiting.put(future)
            # If the process has ended, '_hear' reports it.
            with contextlib.suppress(BrokenPipeError, ValueError):
                if settings is not known:
                    beside = settings.beside.description()
                    source = {"kind": settings.kind, "machine": settings.machine, "beside": beside}
                    write_frame(stdin, {"source": source})
                    known = settings
                place = block._asdict()
                body = place.pop("body")
                write_frame(stdin, {"block": place}, body)
        self._waiting.put(None)

    def _next(self) -> _Job | None:
        """The next block for this process, once it has room; ``None`` when it is closed."""
        self._room.acquire()
        return None if self._closing else self._jobs.get()

    def _hear(self) -> None:
        self.ready = self._answer() is not None
        if self.ready:
            self._room.release(EACH)
        while (future := self._waiting.get()) is not None:
            try:
                answer = self._answer()
                if answer is None:
                    raise ToolkitError(
                        f"a reading process ended early (exit code {self._process.poll()})",
                        cure="earlier commits are kept; ingest again, if needed with --workers 0",
                    )
                future.set_result(decode_result(*answer))
            except Exception as error:  # The future raises it when the result is read.
                future.set_exception(error)
            self._room.release()

    def _answer(self) -> tuple[Any, bytes] | None:
        assert self._process.stdout is not None
        with contextlib.suppress(ValueError):
            return read_frame(self._process.stdout)
        return None

    def kill(self) -> None:
        # It holds nothing to keep, and an orderly exit of its libraries takes 0.2 s.
        self._process.kill()

    def stop(self) -> None:
        """Let its threads end; call this for all processes of a queue before ``close``."""
        self.kill()
        self._closing = True
        self._room.release()
        self._jobs.put(None)

    def close(self) -> None:
        for thread in self._threads:
            thread.join()
        children.end(self._process)
