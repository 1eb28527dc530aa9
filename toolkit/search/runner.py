"""Drives any strategy over any oracle: budget, clock, best so far.

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
from toolkit.records import Trial, TrialState
from toolkit.search.base import Oracle, Strategy

_elapsed_s: Callable[[Trial], float] = attrgetter("elapsed_s")

StopReason = Literal["evaluations", "seconds", "exhausted", "stopped", "misses"]

# A strategy that proposes nothing but unrecorded candidates would never end: this many misses in
# a row end the run, which then says so (``StopReason`` "misses").
MISSES_IN_A_ROW = 10_000


@dataclass(frozen=True, slots=True)
class Budget:
    """What a run may spend: evaluations, seconds of its clock, or both; ``None`` is no limit.

    A run ends when either is spent. Seconds are looked at between batches: a batch that was begun
    in time is finished, and its trials carry the times at which they ended.
    """

    evaluations: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        if self.evaluations is not None and self.evaluations < 1:
            raise SearchError(
                f"a budget of {self.evaluations} evaluations", cure="give at least 1, or none"
            )
        if self.seconds is not None and self.seconds <= 0:
            raise SearchError(f"a budget of {self.seconds} s", cure="give more than 0, or none")


class WallClock:
    """Real time, for a device."""

    def __init__(self) -> None:
        self._start = time.perf_counter()

    def resume(self, now: float) -> None:
        """Go on from a time that an interrupted run had reached."""
        self._start = time.perf_counter() - now

    def now(self) -> float:
        """Seconds since the run began."""
        return time.perf_counter() - self._start

    def charge(self, trials: Sequence[Trial]) -> list[float]:
        """Every trial of a batch counts as ended when the batch did."""
        return [self.now()] * len(trials)


class SimulatedClock:
    """Recorded time: it moves only when trials are charged to it.

    Parameters
    ----------
    workers
        Measuring processes that are simulated: each trial of a batch goes to the worker that is
        free first, and the batch ends when the last of them does.
    """

    def __init__(self, workers: int = 1) -> None:
        if workers < 1:
            raise SearchError(f"{workers} measuring workers", cure="give at least 1")
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
        if not trials:
            return []
        if self._workers == 1:
            ends = list(accumulate(map(_elapsed_s, trials), initial=self._now))[1:]
            self._now = ends[-1]
            return ends
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

    Attributes
    ----------
    trials, clock_s
        One entry an evaluation, failures included: the trial, and when it ended (seconds).
    batches
        Sizes of the batches as they were measured.
    proposals, missed
        Candidates that were asked for, and those of them that the oracle knows nothing of.
    strategy_s
        Seconds the strategy itself computed (wall clock; never part of a simulated clock unless
        asked for).
    """

    strategy: str
    seed: int | None = None
    trials: list[Trial] = field(default_factory=list)
    clock_s: list[float] = field(default_factory=list)
    batches: list[int] = field(default_factory=list)
    proposals: int = 0
    missed: int = 0
    strategy_s: float = 0.0
    stopped: StopReason = "exhausted"

    @property
    def best(self) -> Trial | None:
        """Trial of the lowest latency so far, ``None`` when nothing succeeded."""
        ranked = [(t.latency_s, i) for i, t in enumerate(self.trials) if t.latency_s is not None]
        return self.trials[min(ranked)[1]] if ranked else None

    @property
    def best_latency_s(self) -> float | None:
        """Lowest latency measured, ``None`` when nothing succeeded."""
        return None if self.best is None else self.best.latency_s

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

    @property
    def failures(self) -> int:
        """Number of trials that were not ok."""
        return sum(trial.state is not TrialState.OK for trial in self.trials)


def run(
    strategy: Strategy,
    oracle: Oracle,
    budget: Budget,
    *,
    batch_size: int = 64,
    clock: Clock | None = None,
    seed: int | None = None,
    count_strategy_time: bool = False,
    on_batch: Callable[[Run, Sequence[Trial]], object] | None = None,
    stop: Callable[[Run, Sequence[Trial]], bool] | None = None,
) -> Run:
    """Let a strategy spend a budget on an oracle.

    Parameters
    ----------
    batch_size
        Candidates asked for at a time (AutoTVM and MetaSchedule: 64).
    clock
        ``SimulatedClock`` for a record, ``WallClock`` (default) for a device.
    seed
        Written into the run; the strategy's generator is the caller's.
    count_strategy_time
        Let the strategy's own computing advance a simulated clock. Such runs are not
        reproducible to the byte.
    on_batch
        Called after every batch with the run so far and the batch's trials (progress, logs).
    stop
        Called after every batch; the run ends when it returns true.
    """
    clock = clock if clock is not None else WallClock()
    result = Run(strategy=strategy.name, seed=seed)
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
        result.strategy_s += spent
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
