"""Builders here, devices elsewhere: programs are built ahead while others are measured."""

from __future__ import annotations

import contextlib
import queue
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from toolkit.errors import LiveError
from toolkit.live.measure.device import Device
from toolkit.live.measure.program import MeasureResult, Program
from toolkit.live.measure.protocol import Protocol
from toolkit.records import TrialState

# Built programs that wait for each device.
AHEAD = 4

# A program that fails on so many fresh connections is itself at fault.
TRIES = 2

# A tracker that does not answer for so many seconds is none.
ANSWER_S = 5.0

# A device that is not back at the tracker after so many seconds is lost.
RECONNECT_S = 15.0


@dataclass(frozen=True, slots=True)
class Remote:
    """Devices of one key behind an RPC tracker."""

    host: str
    port: int
    key: str

    @classmethod
    def parse(cls, text: str) -> Remote:
        """Read ``rpc HOST:PORT KEY``; raise ``LiveError`` for anything else."""
        words = text.split()
        host, _, port = words[1].rpartition(":") if len(words) == 3 else ("", "", "")
        if len(words) != 3 or words[0] != "rpc" or not host or not port.isdigit():
            raise LiveError(
                f"{text!r} names no device", cure="example: --device 'rpc 127.0.0.1:9190 my-board'"
            )
        return cls(host, int(port), words[2])

    def _summary(self) -> dict[str, Any]:
        """What the tracker says; raise whatever TVM does where it says nothing in time."""
        from tvm import rpc

        # TVM itself would try again for a minute, and wait for an answer for ever.
        socket.create_connection((self.host, self.port), timeout=ANSWER_S).close()
        before = socket.getdefaulttimeout()
        socket.setdefaulttimeout(ANSWER_S)
        try:
            said: dict[str, Any] = rpc.connect_tracker(self.host, self.port).summary()
            return said
        finally:
            socket.setdefaulttimeout(before)

    def count(self) -> int:
        """Number of servers of the key that the tracker knows; raise ``LiveError`` when none."""
        try:
            summary = self._summary()
        except Exception as error:
            said = (str(error) or type(error).__name__).splitlines()[0][:120]
            raise LiveError(
                f"no tracker answers at {self.host}:{self.port}: {said}",
                cure="start one: python -m tvm.exec.rpc_tracker --host 0.0.0.0 --port 9190",
            ) from None
        wanted = f"server:{self.key}"
        servers = len([info for info in summary["server_info"] if info["key"] == wanted])
        if servers == 0:
            known = sorted({str(info["key"]).partition(":")[2] for info in summary["server_info"]})
            raise LiveError(
                f"the tracker knows no device of the key {self.key!r}",
                cure=f"known keys: {', '.join(known) or 'none'}; start one on the device: "
                f"python -m tvm.exec.rpc_server --tracker HOST:{self.port} --key {self.key}",
            )
        return servers

    def free(self) -> int:
        """Number of devices of the key that nobody holds; 0 when the tracker does not answer."""
        try:
            queues = self._summary()["queue_info"]
        except Exception:
            return 0
        return int(queues.get(self.key, {}).get("free", 0))


@dataclass
class _Job:
    position: int
    program: Program
    path: str = ""
    build_s: float = 0.0
    tries: int = 0


class ApartEngine:
    """Build processes, and one measuring process a device that takes what is built.

    A program whose measurement fails with its connection is measured again on a fresh one (on
    another device if there is one). A device that does not come back is left; what it was
    measuring goes to the others. ``lost`` says how many were left.
    """

    def __init__(
        self,
        target: str,
        protocol: Protocol,
        *,
        builders: int = 1,
        max_builds: int = 400,
        remote: Remote | None = None,
    ) -> None:
        self.protocol = protocol
        self.lost = 0
        rpc = (
            None
            if remote is None
            else {"host": remote.host, "port": remote.port, "key": remote.key}
        )
        count = 1 if remote is None else remote.count()
        self._folder = tempfile.TemporaryDirectory(prefix="toolkit-built-")
        self._builders = [Device(target, protocol, max_builds=max_builds) for _ in range(builders)]
        self._runners = [Device(target, protocol, max_builds=10**9, rpc=rpc) for _ in range(count)]
        self.remote = remote
        self._pool = ThreadPoolExecutor(builders)
        self._starting: list[Future[None]] = []

    def __enter__(self) -> ApartEngine:
        # They import TVM while the caller generates spaces and asks for the first candidates.
        self._starting = [self._pool.submit(builder.start) for builder in self._builders]
        return self

    def __exit__(self, *raised: object) -> None:
        self._pool.shutdown(cancel_futures=True)
        for device in (*self._builders, *self._runners):
            device.close()
        self._folder.cleanup()

    @property
    def devices(self) -> int:
        """Devices that are left."""
        return len(self._runners)

    def measure_many(
        self, programs: Sequence[Program], bar: Callable[[], float | None] = lambda: None
    ) -> Iterator[tuple[int, MeasureResult]]:
        """Build ahead and measure on all devices; readings come as they are done.

        Raises ``LiveError`` when the last device is lost, or a builder does not start; readings
        given before that are whole.
        """
        if not self._runners:
            raise LiveError("no device is left", cure="bring one back and run the command again")
        while self._starting:
            self._starting.pop().result()
        batch = _Batch(self, programs, bar)
        try:
            yield from batch.readings()
        finally:
            batch.stop()

    def drop(self, runner: Device) -> None:
        """Leave a device that does not come back."""
        self.lost += 1
        with contextlib.suppress(ValueError):
            self._runners.remove(runner)
        runner.close()


class _Batch:
    """One call of ``measure_many``: its queues and threads."""

    def __init__(
        self, engine: ApartEngine, programs: Sequence[Program], bar: Callable[[], float | None]
    ) -> None:
        self._engine = engine
        self._bar = bar
        self._count = len(programs)
        self._programs = programs
        self._to_build: queue.Queue[int] = queue.Queue()
        for position in range(len(programs)):
            self._to_build.put(position)
        # Bounded, so that builders are never far ahead: files would pile up.
        self._room = threading.Semaphore(AHEAD * len(engine._runners))
        self._to_run: queue.Queue[_Job] = queue.Queue()
        self._done: queue.Queue[tuple[int, MeasureResult] | BaseException] = queue.Queue()
        self._stopped = threading.Event()
        self._alive = len(engine._runners)
        self._lock = threading.Lock()
        workers: list[tuple[Callable[[Device], None], Device]] = [
            *((self._build, builder) for builder in engine._builders),
            *((self._run, runner) for runner in engine._runners),
        ]
        self._threads = [
            threading.Thread(target=self._guarded, args=(work, device), daemon=True)
            for work, device in workers
        ]
        for thread in self._threads:
            thread.start()

    def readings(self) -> Iterator[tuple[int, MeasureResult]]:
        for _ in range(self._count):
            found = self._done.get()
            if isinstance(found, BaseException):
                raise found
            yield found

    def stop(self) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join()

    def _guarded(self, work: Callable[[Device], None], device: Device) -> None:
        try:
            work(device)
        except BaseException as error:
            # Whoever waits for readings must hear of it.
            self._done.put(error)

    def _build(self, builder: Device) -> None:
        while not self._stopped.is_set():
            if not self._room.acquire(timeout=0.1):
                continue
            try:
                position = self._to_build.get_nowait()
            except queue.Empty:
                self._room.release()
                return
            job = _Job(position, self._programs[position])
            job.path = str(
                Path(self._engine._folder.name) / f"{job.program.key}-{job.position}.tar"
            )
            reading = builder.export(job.program, job.path)
            if reading.state is not TrialState.OK:
                self._room.release()
                self._done.put((job.position, reading))
                continue
            job.build_s = reading.build_s
            self._to_run.put(job)

    def _run(self, runner: Device) -> None:
        while not self._stopped.is_set():
            try:
                job = self._to_run.get(timeout=0.1)
            except queue.Empty:
                continue
            if not self._connected(runner):
                self._to_run.put(job)
                self._leave(runner)
                return
            reading = runner.run_artifact(job.program, job.path, bar_s=self._bar())
            if reading.state is not TrialState.OK and self._engine.remote is not None:
                # The program's fault or the connection's: another connection tells.
                job.tries += 1
                runner.stop()
                if job.tries < TRIES:
                    self._to_run.put(job)
                    continue
            self._finish(job, reading)

    def _finish(self, job: _Job, reading: MeasureResult) -> None:
        self._room.release()
        Path(job.path).unlink(missing_ok=True)
        run_s = reading.build_s + reading.run_s
        self._done.put((job.position, replace(reading, build_s=job.build_s, run_s=run_s)))

    def _connected(self, runner: Device) -> bool:
        """Whether a runner has its device, or gets one within ``RECONNECT_S``."""
        remote = self._engine.remote
        deadline = time.monotonic() + RECONNECT_S
        while remote is not None and not runner.running and remote.free() == 0:
            if self._stopped.wait(0.2):
                return True  # nothing is left to do: whether it comes back is seen next time
            if time.monotonic() > deadline:
                return False
        try:
            runner.start()
        except LiveError:
            return False
        return True

    def _leave(self, runner: Device) -> None:
        self._engine.drop(runner)
        with self._lock:
            self._alive -= 1
            if self._alive == 0:
                self._done.put(
                    LiveError(
                        "the last device is lost",
                        cure="what was measured is kept: bring a device back and run the same "
                        "command again",
                    )
                )
