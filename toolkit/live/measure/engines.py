"""Engines, which build and measure: on one machine in turn, or elsewhere at the same time.

Building and measuring never overlap on the same processor. On a local CPU several processes build
at the same time, then they are suspended while one process at a time measures. If the device is
not the build machine (a GPU, devices of a tracker), builders work ahead while the devices measure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from toolkit.live.measure.apart import ApartEngine, BuildPool
from toolkit.live.measure.device import Device
from toolkit.live.measure.machine import physical_cores, runs_on_cpu
from toolkit.live.measure.program import MeasureResult, Program
from toolkit.live.measure.protocol import Protocol
from toolkit.live.measure.remote import Remote
from toolkit.records import TrialState

# Programs that one process builds before measuring begins. A kill can lose so many builds. After
# each group, all processes wait for the slowest one, so fewer groups are better.
BUILT_AHEAD = 16


def open_engine(
    target: str,
    protocol: Protocol,
    *,
    device: str | None = None,
    builders: int | None = None,
    patience: float | None = None,
) -> LocalEngine | ApartEngine:
    """Open an engine: a context manager with ``measure_many`` (see ``toolkit.live.space.oracle``).

    ``device`` is this machine (``None``), or all devices of an RPC tracker with one key (``rpc
    HOST:PORT KEY``). ``builders`` is the number of build processes (default: one for each core).
    ``patience`` is passed to each of them (``Device``).

    Raises ``LiveError`` when ``device`` cannot be read, or the tracker has no device with this key.
    """
    count = builders or physical_cores()
    if device is None and runs_on_cpu(target):
        return LocalEngine(target, protocol, builders=count, patience=patience)
    remote = None if device is None else Remote.parse(device)
    return ApartEngine(target, protocol, builders=count, patience=patience, remote=remote)


def engine_options(device: str | None, builders: int | None) -> dict[str, Any]:
    """Return the options of ``open_engine`` that are not ``None``."""
    given = {"device": device, "builders": builders}
    return {name: value for name, value in given.items() if value is not None}


def device_for_checks(engine: Any, target: str, protocol: Protocol) -> Device:
    """Return a process on the engine's device that runs programs once, to compare their outputs."""
    remote = engine.remote if isinstance(engine, ApartEngine) else None
    if remote is None:
        return Device(target, protocol)
    engine.release()
    return remote.open(target, protocol)


class LocalEngine(BuildPool):
    """Processes on this CPU that build at the same time, and measure one at a time."""

    def measure_many(
        self, programs: Sequence[Program], bar: Callable[[], float | None] = lambda: None
    ) -> Iterator[tuple[int, MeasureResult]]:
        """Build a group of programs at the same time, measure each alone, then the next group."""
        self._started()
        if len(self._builders) == 1:
            self._work_meanwhile()
            yield from self._builders[0].measure_many(programs, bar)
            return
        size = BUILT_AHEAD * len(self._builders)
        for begin in range(0, len(programs), size):
            yield from self._group(programs, range(len(programs))[begin : begin + size], bar)

    def _group(
        self, programs: Sequence[Program], places: range, bar: Callable[[], float | None]
    ) -> Iterator[tuple[int, MeasureResult]]:
        # Each process takes the next program when it is free: a slow build delays no others.
        waiting = deque(places)

        def build(device: Device) -> list[tuple[int, Program, MeasureResult]]:
            built: list[tuple[int, Program, MeasureResult]] = []
            while True:
                try:
                    place = waiting.popleft()
                except IndexError:
                    return built
                program = programs[place]
                built.append((place, program, device.build(program)))

        building = [self._pool.submit(build, builder) for builder in self._builders]
        try:
            # Now, because nothing is measured yet.
            self._work_meanwhile()
            built = [each.result() for each in building]
        finally:
            waiting.clear()  # after an interrupt: do not start the remaining builds
        for device, mine in zip(self._builders, built, strict=True):
            for place, program, build_reading in mine:
                if build_reading.state is not TrialState.OK:
                    yield place, build_reading
                    continue
                reading = device.measure(program, bar_s=bar())
                yield place, replace(reading, build_s=build_reading.build_s + reading.build_s)
