"""The device as an oracle: builds, runs, writes every measurement down at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol as Role

from toolkit.live.database import DatabaseWriter
from toolkit.live.design import Design
from toolkit.live.device import Program, Reading
from toolkit.live.programs import entry_arguments, timed_program, trace_json
from toolkit.live.protocol import Protocol
from toolkit.live.space import MetaScheduleSpace
from toolkit.records import Candidate, Trial, TrialState


class Engine(Role):
    """Whatever builds and measures programs: one process, several, or devices elsewhere."""

    protocol: Protocol

    def measure_many(
        self, programs: Sequence[Program], bar: Callable[[], float | None]
    ) -> Iterable[tuple[int, Reading]]:
        """Measure programs; give (position, reading) as each is done, in any order.

        ``bar`` gives the best latency so far in seconds, for protocols that drop what is worse.
        """
        ...


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
        designs: dict[int, Design] = {}
        for place, candidate in enumerate(candidates):
            design = self.space.realise(candidate)
            if design is not None:
                designs[place] = design
                continue
            state, error = TrialState.INSTANTIATION, "TVM refuses its schedule"
            if self.writer is not None and self._index is not None:
                self.writer.refuse(self._index, candidate.candidate_id, error, **self._stamp())
            yield place, Trial(candidate, state, (), 0.0, time.time(), error)
        places = list(designs)
        programs = [timed_program(designs[p].schedule, self.space.design.inputs) for p in places]
        for position, reading in self.device.measure_many(programs, lambda: self.best_s):
            place = places[position]
            self._write(designs[place], reading)
            trial = Trial(
                candidate=candidates[place],
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

    def _write(self, design: Design, reading: Reading) -> None:
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
