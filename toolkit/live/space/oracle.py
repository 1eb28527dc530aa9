"""The device as an oracle: it builds and runs programs, and writes every measurement at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any
from typing import Protocol as Role

from toolkit.live.measure.program import REFUSED, MeasureResult, Program
from toolkit.live.measure.protocol import Protocol
from toolkit.live.space.database import DatabaseWriter
from toolkit.live.space.design import Design
from toolkit.live.space.programs import entry_arguments, timed_program, trace_json
from toolkit.live.space.space import MetaScheduleSpace
from toolkit.records import Candidate, Trial


class Engine(Role):
    """An engine that builds and measures programs: one process, several, or devices elsewhere."""

    protocol: Protocol

    def meanwhile(self, work: Callable[[], None]) -> None:
        """Do ``work`` in this thread while the next programs are built, or at once."""

    def measure_many(
        self, programs: Sequence[Program], bar: Callable[[], float | None]
    ) -> Iterable[tuple[int, MeasureResult]]:
        """Measure programs; yield (position, reading) as each is done, in any order.

        Each program is read from the sequence once, when it is built, perhaps in another thread.
        ``bar`` returns the best latency so far in seconds, for protocols that drop slower programs.
        """


class Programs(Sequence[Program]):
    """Programs of candidates, each made when it is read: builders do not wait for all of them.

    A program that TVM refuses is ``REFUSED``. Builders read in their own threads.
    """

    def __init__(self, space: MetaScheduleSpace, candidates: Sequence[Candidate]) -> None:
        self._space = space
        self._candidates = candidates
        self._designs: dict[int, Design | None] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._candidates)

    def __getitem__(self, place: Any) -> Any:
        """Return the program at a place, from 0; engines do not use slices."""
        with self._lock:
            if place not in self._designs:
                self._designs[place] = self._space.realise(self._candidates[place])
            design = self._designs[place]
            if design is None:
                return REFUSED
            return timed_program(design.schedule, self._space.design.inputs)

    def taken(self, place: int) -> Design | None:
        """Return the design of a program that was read, and forget it; ``None``: refused."""
        with self._lock:
            return self._designs.pop(place)


class DeviceOracle:
    """Measures candidates of a live space on a device.

    With a writer, every trial is appended to the database before the next trial. With a ``clock``,
    the seconds since the start of the run are stored, too. ``on_trial`` is called for every trial.
    """

    def __init__(
        self,
        space: MetaScheduleSpace,
        device: Engine,
        writer: DatabaseWriter | None = None,
        *,
        clock: Callable[[], float] | None = None,
        on_trial: Callable[[Trial], object] | None = None,
    ) -> None:
        self.space = space
        self.device = device
        self.writer = writer
        self._clock = clock
        self._on_trial = on_trial
        self.best_s: float | None = None
        self._index = -1 if writer is None else writer.workload_index(space.design.module)

    def measure(self, candidates: Sequence[Candidate]) -> list[Trial]:
        """Build and run the candidates; return one trial each, in the candidates' order."""
        trials: dict[int, Trial] = {}
        programs = Programs(self.space, candidates)
        for place, reading in self.device.measure_many(programs, lambda: self.best_s):
            self._write(candidates[place], programs.taken(place), reading)
            trial = Trial(
                candidate=candidates[place],
                state=reading.state,
                run_times_s=reading.run_times_s,
                elapsed_s=reading.build_s + reading.run_s,
                timestamp=time.time(),
                error=reading.error,
            )
            self.note(trial)
            trials[place] = trial
            if self._on_trial is not None:
                self._on_trial(trial)
        return [trials[place] for place in range(len(candidates))]

    def note(self, trial: Trial) -> None:
        """Use a trial's latency as the best so far, if it is lower."""
        latency = trial.latency_s
        if latency is not None and (self.best_s is None or latency < self.best_s):
            self.best_s = latency

    def _write(self, candidate: Candidate, design: Design | None, reading: MeasureResult) -> None:
        if self.writer is None:
            return
        stamp = {} if self._clock is None else {"clock_s": round(self._clock(), 4)}
        if design is None:
            error = reading.error or "refused"
            self.writer.refuse(self._index, candidate.candidate_id, error, **stamp)
            return
        self.writer.add(
            self._index,
            trace_json(design.schedule.trace),
            entry_arguments(design.schedule.mod, as_timed=True),
            reading,
            threads=self.device.protocol.threads,
            protocol="first reading" if reading.first else "full",
            **stamp,
        )
