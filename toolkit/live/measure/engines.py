"""What builds and measures: here in turn, or builders here and devices elsewhere at the same time.

Building and measuring never overlap on the same processor. On a local CPU several processes build
side by side, then stand still while one of them at a time measures. Where the device is not the
build machine (a GPU, a tracker's devices), builders work ahead while the devices measure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import orjson

from toolkit.errors import LiveError
from toolkit.live.measure.apart import ApartEngine, Remote
from toolkit.live.measure.device import Device
from toolkit.live.measure.machine import physical_cores
from toolkit.live.measure.program import MeasureResult, Program
from toolkit.live.measure.protocol import Protocol
from toolkit.records import TrialState

# Programs that one process builds before measuring begins: what a kill can cost. When they are
# built, processes wait for the slowest: the fewer times the better.
BUILT_AHEAD = 16


def target_kind(target: str) -> str:
    """Kind of a target, ``llvm`` or ``cuda`` for example."""
    text = target.strip()
    kind = orjson.loads(text)["kind"] if text[:1] == "{" else text.split()[0]
    return str(kind)


def open_engine(
    target: str,
    protocol: Protocol,
    *,
    device: str | None = None,
    builders: int | None = None,
    max_builds: int = 400,
) -> LocalEngine | ApartEngine:
    """Open an engine: a context manager with ``measure_many`` (see ``toolkit.live.space.oracle``).

    Parameters
    ----------
    device
        ``None``: this machine. ``rpc HOST:PORT KEY``: all devices of a key of an RPC tracker.
    builders
        Processes that build; as many as there are cores where it is not given.
    max_builds
        A process is replaced after so many builds: a compiler's memory only grows.

    Raises
    ------
    LiveError
        When ``device`` is not understood, or no device of the key is free.
    """
    count = builders or physical_cores()
    if device is not None:
        remote = Remote.parse(device)
        return ApartEngine(target, protocol, builders=count, max_builds=max_builds, remote=remote)
    if target_kind(target) in ("llvm", "c"):
        return LocalEngine(target, protocol, builders=count, max_builds=max_builds)
    return ApartEngine(target, protocol, builders=count, max_builds=max_builds)


class LocalEngine:
    """Processes on this CPU that build side by side, and measure one at a time."""

    def __init__(
        self, target: str, protocol: Protocol, *, builders: int = 1, max_builds: int = 400
    ) -> None:
        if builders < 1:
            raise LiveError(f"{builders} build processes", cure="give at least 1")
        self.protocol = protocol
        self._devices = [Device(target, protocol, max_builds=max_builds) for _ in range(builders)]
        self._pool = ThreadPoolExecutor(builders)
        self._starting: list[Future[None]] = []

    def __enter__(self) -> LocalEngine:
        # They import TVM while the caller generates spaces and asks for the first candidates.
        self._starting = [self._pool.submit(device.start) for device in self._devices]
        return self

    def __exit__(self, *raised: object) -> None:
        self._pool.shutdown(cancel_futures=True)
        for device in self._devices:
            device.close()

    @property
    def restarts(self) -> int:
        """Processes that had to be killed."""
        return sum(device.restarts for device in self._devices)

    def measure_many(
        self, programs: Sequence[Program], bar: Callable[[], float | None] = lambda: None
    ) -> Iterator[tuple[int, MeasureResult]]:
        """Build some side by side, measure each of them alone, and so on."""
        while self._starting:
            self._starting.pop().result()
        if len(programs) == 1 or len(self._devices) == 1:
            yield from self._devices[0].measure_many(programs, bar)
            return
        size = BUILT_AHEAD * len(self._devices)
        for begin in range(0, len(programs), size):
            yield from self._group(programs, range(len(programs))[begin : begin + size], bar)

    def _group(
        self, programs: Sequence[Program], places: range, bar: Callable[[], float | None]
    ) -> Iterator[tuple[int, MeasureResult]]:
        # A process takes the next program when it has built one: a slow build holds up no others.
        waiting = list(places)[::-1]
        built: list[list[tuple[int, Program, MeasureResult]]] = [[] for _ in self._devices]

        def work(number: int) -> None:
            device = self._devices[number]
            while True:
                try:
                    place = waiting.pop()
                except IndexError:
                    return
                program = programs[place]
                built[number].append((place, program, device.build(program)))

        list(self._pool.map(work, range(len(self._devices))))
        for device, mine in zip(self._devices, built, strict=True):
            for place, program, build in mine:
                if build.state is not TrialState.OK:
                    yield place, build
                    continue
                reading = device.measure(program, bar_s=bar())
                yield place, replace(reading, build_s=build.build_s + reading.build_s)


def engine_options(device: str | None, builders: int | None) -> dict[str, Any]:
    """Options of ``open_engine`` that were given."""
    given = {"device": device, "builders": builders}
    return {name: value for name, value in given.items() if value is not None}
