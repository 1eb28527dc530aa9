"""Build processes on this machine, devices elsewhere: builders work ahead of the measurements."""

from __future__ import annotations

import queue
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from itertools import count as count_up
from pathlib import Path
from typing import TypeVar

from toolkit.errors import LiveError
from toolkit.live.measure.device import Device
from toolkit.live.measure.program import MeasureResult, Program
from toolkit.live.measure.protocol import Protocol
from toolkit.live.measure.remote import Remote, linker_for
from toolkit.live.measure.worker import suffix_of
from toolkit.records import TrialState

# Built programs that may wait for each device.
AHEAD = 4

# A program that fails on so many fresh connections has failed itself.
TRIES = 2

# A device is lost if the tracker does not list it again within so many seconds.
RECONNECT_S = 15.0

# The last device gets more time: no other device can take its work, and a board may be rebooting.
LAST_RECONNECT_S = 60.0


Pool = TypeVar("Pool", bound="BuildPool")


class BuildPool:
    """Processes that build on this machine; a context manager.

    They import TVM while the caller generates design spaces and the first candidates.
    """

    def __init__(
        self,
        target: str,
        protocol: Protocol,
        *,
        builders: int = 1,
        patience: float | None = None,
        linker: str | None = None,
    ) -> None:
        if builders < 1:
            raise LiveError(f"cannot build with {builders} processes", cure="give at least 1")
        self.protocol = protocol
        self._builders = [
            Device(target, protocol, patience=patience, settings={"linker": linker})
            for _ in range(builders)
        ]
        self._pool = ThreadPoolExecutor(builders)
        self._starting: list[Future[None]] = []
        self._free: queue.SimpleQueue[Device] = queue.SimpleQueue()
        self._work: Callable[[], None] | None = None

    def __enter__(self: Pool) -> Pool:
        self._starting = [self._pool.submit(self._start, builder) for builder in self._builders]
        return self

    def _start(self, builder: Device) -> None:
        try:
            builder.start()
        finally:
            self._free.put(builder)

    def __exit__(self, *raised: object) -> None:
        self._pool.shutdown(cancel_futures=True)
        for builder in self._builders:
            builder.close()

    def try_build(self, program: Program) -> Future[MeasureResult]:
        """Build a program in a free process, only to learn whether it builds in time."""

        def build() -> MeasureResult:
            builder = self._free.get()
            try:
                return builder.build(program)
            finally:
                self._free.put(builder)

        return self._pool.submit(build)

    def meanwhile(self, work: Callable[[], None]) -> None:
        """Do ``work`` in this thread while the next programs are built."""
        self._work = work

    def _work_meanwhile(self) -> None:
        work, self._work = self._work, None
        if work is not None:
            work()

    def _started(self) -> None:
        """Wait until the processes have started; raise ``LiveError`` if one does not start."""
        while self._starting:
            self._starting.pop().result()


class ApartEngine(BuildPool):
    """Build processes, and one measuring process for each device, which runs what they build.

    On a remote device, a program that fails is measured once more on a fresh connection, on
    another device if there is one. A device that does not come back is given up; its program goes
    to the other devices.
    """

    def __init__(
        self,
        target: str,
        protocol: Protocol,
        *,
        builders: int = 1,
        patience: float | None = None,
        remote: Remote | None = None,
    ) -> None:
        rpc = None if remote is None else asdict(remote)
        count = 1 if remote is None else remote.count()
        linker = None if remote is None else linker_for(target)
        super().__init__(target, protocol, builders=builders, patience=patience, linker=linker)
        self.remote, self.suffix = remote, suffix_of(linker)
        self.runners = [Device(target, protocol, max_builds=10**9, rpc=rpc) for _ in range(count)]
        self._folder = tempfile.TemporaryDirectory(prefix="toolkit-built-")
        self._numbers = count_up()

    def __exit__(self, *raised: object) -> None:
        super().__exit__(*raised)
        for runner in self.runners:
            runner.close()
        self._folder.cleanup()

    def release(self) -> None:
        """Give the devices back to the tracker until the next measurement."""
        for runner in self.runners:
            runner.stop()

    def new_file(self, key: str) -> Path:
        """Return a new path: a device still holds open the file of an earlier program."""
        return Path(self._folder.name) / f"{key}-{next(self._numbers)}.{self.suffix}"

    def measure_many(
        self, programs: Sequence[Program], bar: Callable[[], float | None] = lambda: None
    ) -> Iterator[tuple[int, MeasureResult]]:
        """Build ahead, measure on all devices, and yield each reading when it is done.

        Raises ``LiveError`` when the last device is lost or a builder does not start. Readings
        yielded before that are complete.
        """
        if not self.runners:
            raise LiveError("no device is left", cure="start a device and run the command again")
        self._started()
        batch = _Batch(self, programs, bar)
        try:
            self._work_meanwhile()
            for _ in range(len(programs)):
                found = batch.done.get()
                if isinstance(found, BaseException):
                    raise found
                yield found
        finally:
            batch.stop()


@dataclass
class _Job:
    position: int
    program: Program
    path: Path
    build_s: float = 0.0
    tries: int = 0


class _Batch:
    """One call of ``measure_many``: its queues, and a thread for each builder and device."""

    def __init__(
        self, engine: ApartEngine, programs: Sequence[Program], bar: Callable[[], float | None]
    ) -> None:
        self._engine, self._programs, self._bar = engine, programs, bar
        self._to_build = deque(range(len(programs)))
        # Bounded, so that not too many built files wait for a device.
        self._room = threading.Semaphore(AHEAD * len(engine.runners))
        self._to_run: queue.Queue[_Job] = queue.Queue()
        self.done: queue.Queue[tuple[int, MeasureResult] | BaseException] = queue.Queue()
        self._stopped = threading.Event()
        self._threads = [
            threading.Thread(target=self._guarded, args=(work, device), daemon=True)
            for work, devices in ((self._build, engine._builders), (self._run, engine.runners))
            for device in devices
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join()

    def _guarded(self, work: Callable[[Device], None], device: Device) -> None:
        try:
            work(device)
        except BaseException as error:
            # Raised by ``measure_many``, which waits for readings.
            self.done.put(error)

    def _build(self, builder: Device) -> None:
        while not self._stopped.is_set():
            if not self._room.acquire(timeout=0.1):
                continue
            try:
                position = self._to_build.popleft()
            except IndexError:
                self._room.release()
                return
            program = self._programs[position]
            path = self._engine.new_file(program.key)
            reading = builder.export(program, str(path))
            if reading.state is TrialState.OK:
                self._to_run.put(_Job(position, program, path, reading.build_s))
            else:
                self._room.release()
                self.done.put((position, reading))

    def _run(self, runner: Device) -> None:
        while not self._stopped.is_set():
            try:
                job = self._to_run.get(timeout=0.1)
            except queue.Empty:
                continue
            fault = self._connect(runner)
            if self._stopped.is_set():
                return  # no one needs the result, and a request for a device may take minutes
            if fault is not None:
                self._to_run.put(job)
                self._leave(runner, fault)
                return
            reading = runner.run_artifact(job.program, str(job.path), bar_s=self._bar())
            if reading.state is not TrialState.OK and self._engine.remote is not None:
                # Program or connection may be at fault: a fresh connection will show it.
                job.tries += 1
                runner.stop()
                if job.tries < TRIES:
                    self._to_run.put(job)
                    continue
            self._room.release()
            job.path.unlink(missing_ok=True)
            run_s = reading.build_s + reading.run_s
            self.done.put((job.position, replace(reading, build_s=job.build_s, run_s=run_s)))

    def _connect(self, runner: Device) -> str | None:
        """Connect a runner to its device; return the reason if that fails within its time."""
        remote, since = self._engine.remote, time.monotonic()
        fault = ""
        while True:
            if remote is None or runner.running or remote.free() > 0:
                try:
                    runner.start()
                    return None
                except LiveError as error:
                    fault = error.what
                if remote is None:
                    return fault
            if self._stopped.wait(0.2):
                return None  # all work is done: the next call checks the device
            waited_s = time.monotonic() - since
            is_last = len(self._engine.runners) == 1
            if waited_s > (LAST_RECONNECT_S if is_last else RECONNECT_S):
                return fault or f"it was not back at the tracker after {waited_s:.0f} s"

    def _leave(self, runner: Device, fault: str) -> None:
        self._engine.runners.remove(runner)
        runner.close()
        if not self._engine.runners:
            cure = "start a device and run the same command again: finished measurements are kept"
            self.done.put(LiveError(f"the last device is lost: {fault}", cure=cure))
