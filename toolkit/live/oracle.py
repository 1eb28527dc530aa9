"""The device as an oracle: builds, runs, writes every measurement down at once."""

from __future__ import annotations

import time
from collections.abc import Sequence

from toolkit.live.database import DatabaseWriter
from toolkit.live.device import Device
from toolkit.live.programs import entry_arguments, timed_program, trace_json
from toolkit.live.space import MetaScheduleSpace
from toolkit.records import Candidate, Trial, TrialState


class DeviceOracle:
    """Measures candidates of a live space on a device.

    With a writer, every trial is appended to its database before the next begins.
    """

    def __init__(
        self, space: MetaScheduleSpace, device: Device, writer: DatabaseWriter | None = None
    ) -> None:
        self.space = space
        self.device = device
        self.writer = writer
        self._index = None if writer is None else writer.workload_index(space.design.module)

    def measure(self, candidates: Sequence[Candidate]) -> list[Trial]:
        """Build and run in order; one trial each."""
        return [self._measure(candidate) for candidate in candidates]

    def _measure(self, candidate: Candidate) -> Trial:
        started = time.perf_counter()
        design = self.space.realise(candidate)
        if design is None:
            elapsed = time.perf_counter() - started
            state = TrialState.INSTANTIATION
            return Trial(candidate, state, (), elapsed, time.time(), "TVM refuses its schedule")
        reading = self.device.measure(timed_program(design.schedule, self.space.design.inputs))
        if self.writer is not None and self._index is not None:
            self.writer.add(
                self._index,
                trace_json(design.schedule.trace),
                entry_arguments(design.schedule.mod, as_timed=True),
                reading,
                threads=self.device.protocol.threads,
            )
        return Trial(
            candidate=candidate,
            state=reading.state,
            run_times_s=reading.run_times_s,
            elapsed_s=time.perf_counter() - started,
            timestamp=time.time(),
            error=reading.error,
        )
