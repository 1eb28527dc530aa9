"""The device as an oracle: builds, runs, writes every measurement down at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol as Role
from typing import overload

from toolkit.live.measure.program import REFUSED, MeasureResult, Program
from toolkit.live.measure.protocol import Protocol
from toolkit.live.space.database import DatabaseWriter
from toolkit.live.space.design import Design
from toolkit.live.space.programs import entry_arguments, timed_program, trace_json
from toolkit.live.space.space import MetaScheduleSpace
from toolkit.records import Candidate, Trial


class Engine(Role):
    """Whatever builds and measures programs: one process, several, or devices elsewhere."""

    protocol: Protocol

    def meanwhile(self, work: Callable[[], None]) -> None:
        """Do ``work`` in this thread while the next programs are built, or at once."""
        ...

    def measure_many(
        self, programs: Sequence[Program], bar: Callable[[], float | None]
    ) -> Iterable[tuple[int, MeasureResult]]:
        """Measure programs; give (position, reading) as each is done, in any order.

        Each program is asked for once, when it is to be built, perhaps in another thread.

        ``bar`` gives the best latency so far in seconds, for protocols that drop what is worse.
        """
        ...


class Programs(Sequence[Program]):
    """Programs of candidates, each made when it is asked for: no builder waits for all of them.

    Those that TVM refuses are ``REFUSED``. Builders ask in threads of their own.
    """

    def __init__(self, space: MetaScheduleSpace, candidates: Sequence[Candidate]) -> None:
        self._space = space
        self._candidates = candidates
        self._designs: dict[int, Design | None] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._candidates)

    @overload
    def __getitem__(self, place: int) -> Program: ...
    @overload
    def __getitem__(self, place: slice) -> list[Program]: ...
    def __getitem__(self, place: int | slice) -> Program | list[Program]:
        if isinstance(place, slice):
            return [self[one] for one in range(*place.indices(len(self)))]
        if not 0 <= place < len(self):
            raise IndexError(place)
        with self._lock:
            if place not in self._designs:
                self._designs[place] = self._space.realise(self._candidates[place])
            design = self._designs[place]
            if design is None:
                return REFUSED
            return timed_program(design.schedule, self._space.design.inputs)

    def taken(self, place: int) -> Design | None:
        """Give the design behind a program that was made, and forget it; ``None``: refused."""
        with self._lock:
            return self._designs.pop(place)


class DeviceOracle:
    """Measures candidates of a live space on a device.

    With a writer, every trial is appended to its database before the next begins.

    Parameters
    ----------
    clock
        Seconds since the run began; written beside every record where it is given.
    on_trial
        Called after every trial (progress).
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
        self._index = None if writer is None else writer.workload_index(space.design.module)

    def measure(self, candidates: Sequence[Candidate]) -> list[Trial]:
        """Build and run; one trial each, in the candidates' order."""
        trials: dict[int, Trial] = {}
        for place, trial in self._each(candidates):
            trials[place] = trial
            if self._on_trial is not None:
                self._on_trial(trial)
        return [trials[place] for place in range(len(candidates))]

    def _each(self, candidates: Sequence[Candidate]) -> Iterator[tuple[int, Trial]]:
        programs = Programs(self.space, candidates)
        for place, reading in self.device.measure_many(programs, lambda: self.best_s):
            candidate, design = candidates[place], programs.taken(place)
            if design is not None:
                self._write(design, reading)
            elif self.writer is not None and self._index is not None:
                error = reading.error or "refused"
                self.writer.refuse(self._index, candidate.candidate_id, error, **self._stamp())
            trial = Trial(
                candidate=candidate,
                state=reading.state,
                run_times_s=reading.run_times_s,
                elapsed_s=reading.build_s + reading.run_s,
                timestamp=time.time(),
                error=reading.error,
            )
            self.note(trial)
            yield place, trial

    def note(self, trial: Trial) -> None:
        """Take a trial's latency for the best so far, if it is."""
        latency = trial.latency_s
        if latency is not None and (self.best_s is None or latency < self.best_s):
            self.best_s = latency

    def _write(self, design: Design, reading: MeasureResult) -> None:
        if self.writer is None or self._index is None:
            return
        self.writer.add(
            self._index,
            trace_json(design.schedule.trace),
            entry_arguments(design.schedule.mod, as_timed=True),
            reading,
            threads=self.device.protocol.threads,
            protocol="first reading" if reading.first else "full",
            **self._stamp(),
        )

    def _stamp(self) -> dict[str, float]:
        return {} if self._clock is None else {"clock_s": round(self._clock(), 4)}
