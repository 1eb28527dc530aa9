"""Runs any strategy on any oracle: budget, clock, best so far.

The runner knows neither what a candidate is nor how it is measured, so that the same loop runs a
replay and a device.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from operator import attrgetter
from typing import Literal

from toolkit.errors import SearchError
from toolkit.records import Trial
from toolkit.search.base import Oracle, Strategy

_elapsed_s: Callable[[Trial], float] = attrgetter("elapsed_s")

StopReason = Literal["evaluations", "seconds", "exhausted", "stopped", "misses"]

# A strategy that proposes nothing but unrecorded candidates would never end: this many misses in
# a row end the run, which then says so (``StopReason`` "misses").
MISSES_IN_A_ROW = 10_000


@dataclass(frozen=True, slots=True)
class Budget:
    """What a run may spend: evaluations, seconds of its clock, or both; ``None`` is no limit.

    A run ends when either is spent. Seconds are checked between batches: a batch that began in
    time is finished, and its trials keep the times at which they ended.
    """

    evaluations: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        if self.evaluations is not None and self.evaluations < 1:
            raise SearchError(
                f"a budget of {self.evaluations} evaluations is too small", cure="give at least 1"
            )
        if self.seconds is not None and self.seconds <= 0:
            raise SearchError(f"a budget of {self.seconds} s is too small", cure="give more than 0")


class WallClock:
    """Real time, for a device."""

    def __init__(self) -> None:
        self._start = time.perf_counter()

    def resume(self, now: float) -> None:
        """Continue from the time that an interrupted run had reached."""
        self._start = time.perf_counter() - now

    def now(self) -> float:
        """Seconds since the run began."""
        return time.perf_counter() - self._start

    def charge(self, trials: Sequence[Trial]) -> list[float]:
        """Return the end of each trial: the end of the batch."""
        return [self.now()] * len(trials)


class SimulatedClock:
    """Recorded time: it moves only when trials are charged to it.

    ``workers`` measuring processes are simulated: each trial of a batch goes to the worker that is
    free first, and the batch ends when the last of them does.
    """

    def __init__(self, workers: int = 1) -> None:
        if workers < 1:
            raise SearchError(f"{workers} measuring workers are too few", cure="give at least 1")
        self._now = 0.0
        self._workers = workers

    def now(self) -> float:
        """Simulated seconds since the run began."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Let time pass that no trial accounts for (a strategy's own computing)."""
        self._now += seconds

    def charge(self, trials: Sequence[Trial]) -> list[float]:
        """Advance by the trials' ``elapsed_s``; return the time at which each of them ended."""
        if self._workers == 1:
            times = list(accumulate(map(_elapsed_s, trials), initial=self._now))
            self._now = times[-1]
            return times[1:]
        free = [self._now] * self._workers
        ends = []
        for trial in trials:
            worker = min(range(self._workers), key=free.__getitem__)
            free[worker] += trial.elapsed_s
            ends.append(free[worker])
        self._now = max(free)
        return ends


Clock = WallClock | SimulatedClock


@dataclass
class Run:
    """What a strategy measured, in order, and what it cost.

    ``trials`` and ``clock_s`` have one entry per evaluation, failures included: the trial, and
    when it ended (seconds). ``batches`` are the sizes of the measured batches. ``proposals`` counts
    the proposed candidates, ``missed`` those that the oracle could not measure.
    """

    trials: list[Trial] = field(default_factory=list)
    clock_s: list[float] = field(default_factory=list)
    batches: list[int] = field(default_factory=list)
    proposals: int = 0
    missed: int = 0
    stopped: StopReason = "exhausted"

    @property
    def best_latency_s(self) -> float | None:
        """Lowest latency measured, ``None`` when nothing succeeded."""
        return min((t.latency_s for t in self.trials if t.latency_s is not None), default=None)

    @property
    def evaluations(self) -> int:
        """Number of measurements paid for."""
        return len(self.trials)

    @property
    def seconds(self) -> float:
        """Time at which the last trial ended."""
        return max(self.clock_s, default=0.0)

    @property
    def coverage(self) -> float:
        """Share of the proposals that the oracle could measure (1 on a device)."""
        return 1.0 - self.missed / self.proposals if self.proposals else 1.0


def run(
    strategy: Strategy,
    oracle: Oracle,
    budget: Budget,
    *,
    batch_size: int = 64,
    clock: Clock | None = None,
    count_strategy_time: bool = False,
    on_batch: Callable[[Run, Sequence[Trial]], object] | None = None,
    stop: Callable[[Run, Sequence[Trial]], bool] | None = None,
) -> Run:
    """Let a strategy spend a budget on an oracle.

    The strategy proposes up to ``batch_size`` candidates at a time (AutoTVM and MetaSchedule: 64).
    ``clock`` is a ``SimulatedClock`` for a record, a ``WallClock`` (default) for a device. With
    ``count_strategy_time`` the strategy's own computing advances a simulated clock; such runs are
    not reproducible to the byte. After every batch ``on_batch`` is called with the run so far and
    the batch's trials, and then ``stop``: the run ends when it returns true.
    """
    clock = clock or WallClock()
    result = Run()
    misses_in_a_row = 0
    while True:
        remaining = None if budget.evaluations is None else budget.evaluations - len(result.trials)
        if remaining is not None and remaining <= 0:
            result.stopped = "evaluations"
            break
        if budget.seconds is not None and clock.now() >= budget.seconds:
            result.stopped = "seconds"
            break
        started = time.perf_counter()
        asked = strategy.ask(batch_size if remaining is None else min(batch_size, remaining))
        spent = time.perf_counter() - started
        if not asked:
            result.stopped = "exhausted"
            break
        trials = oracle.measure(asked)
        ends = clock.charge(trials)
        result.proposals += len(asked)
        result.missed += len(asked) - len(trials)
        misses_in_a_row = 0 if trials else misses_in_a_row + len(asked)
        result.trials += trials
        result.clock_s += ends
        if trials:
            result.batches.append(len(trials))
        started = time.perf_counter()
        strategy.tell(trials)
        spent += time.perf_counter() - started
        if count_strategy_time and isinstance(clock, SimulatedClock):
            clock.advance(spent)
        if on_batch is not None:
            on_batch(result, trials)
        if stop is not None and stop(result, trials):
            result.stopped = "stopped"
            break
        if misses_in_a_row >= MISSES_IN_A_ROW:
            result.stopped = "misses"
            break
    return result
