"""Blocks of lines read in several processes, their results in order."""

from __future__ import annotations

import queue
import subprocess
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import IO, Any, Protocol

from toolkit import children
from toolkit.errors import ToolkitError
from toolkit.logs.files.files import LineBlock
from toolkit.logs.formats import FORMATS
from toolkit.logs.read.block_reader import BlockReader
from toolkit.logs.read.transfer import decode_result, read_frame, write_frame
from toolkit.logs.rows.format import Beside
from toolkit.logs.rows.results import BlockResult

PIPE_BYTES = 2**20


@dataclass(frozen=True)
class SourceSettings:
    """What a reader must know of a source: its format, its machine, what stands beside it."""

    kind: str
    machine: str | None
    beside: Beside


class Blocks(Protocol):
    """Reads blocks, now or later."""

    window: int

    def submit(self, settings: SourceSettings, block: LineBlock, index: int) -> Future[BlockResult]:
        """Begin to read a block."""
        ...


class InProcess:
    """Reads every block at once, in this process."""

    window = 0

    def __init__(self) -> None:
        self._settings: SourceSettings | None = None
        self._reader: BlockReader | None = None

    def submit(self, settings: SourceSettings, block: LineBlock, index: int) -> Future[BlockResult]:
        """Read a block and return its finished future."""
        if self._reader is None or self._settings is not settings:
            self._reader = BlockReader(settings.kind, settings.machine, settings.beside)
            self._settings = settings
        future: Future[BlockResult] = Future()
        future.set_result(self._reader.read(block, index))
        return future


class WorkerPool:
    """Reads blocks in worker processes; each is fed and heard by a thread of this one."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.window = 2 * workers
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="ingest")
        self._idle: queue.SimpleQueue[_Process] = queue.SimpleQueue()
        self._processes = [_Process() for _ in range(workers)]
        for process in self._processes:
            self._idle.put(process)
        self._local = InProcess()

    def submit(self, settings: SourceSettings, block: LineBlock, index: int) -> Future[BlockResult]:
        """Hand a block to the next idle worker."""
        if not settings.beside.portable or settings.kind in FORMATS.added:
            return self._local.submit(settings, block, index)
        return self._threads.submit(self._read, settings, block)

    def _read(self, settings: SourceSettings, block: LineBlock) -> BlockResult:
        process = self._idle.get()
        try:
            return process.read(settings, block)
        finally:
            self._idle.put(process)

    def close(self) -> None:
        """End the workers."""
        for process in self._processes:
            process.kill()
        self._threads.shutdown(wait=True, cancel_futures=True)
        for process in self._processes:
            process.close()


class _Process:
    def __init__(self) -> None:
        self._settings: SourceSettings | None = None
        environment = {
            "OMP_NUM_THREADS": "1",
            # glibc gives large arrays back to the system at every turn unless told to keep them.
            "MALLOC_MMAP_THRESHOLD_": str(2**26),
            "MALLOC_TRIM_THRESHOLD_": str(2**27),
        }
        self._process = children.start(
            children.python("toolkit.logs.read.worker"),
            environment=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for pipe in (self._process.stdin, self._process.stdout):
            _widen(pipe)

    def read(self, settings: SourceSettings, block: LineBlock) -> BlockResult:
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            raise ToolkitError("a reading process has no pipes")
        answer: tuple[Any, bytes] | None = None
        try:
            if settings is not self._settings:
                description = settings.beside.description()
                source = {"kind": settings.kind, "machine": settings.machine}
                write_frame(stdin, {"source": {**source, "beside": description}})
                self._settings = settings
            place = block._asdict()
            body = place.pop("body")
            write_frame(stdin, {"block": place}, body)
            answer = read_frame(stdout)
        except (BrokenPipeError, ValueError):
            pass
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


def _widen(pipe: IO[bytes] | None) -> None:
    """Let a pipe hold more than its usual 64 KiB, where the system can: fewer turns for a block."""
    try:
        import fcntl

        if pipe is not None:
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    except (ImportError, AttributeError, OSError):  # other systems, or the user's limit
        pass
