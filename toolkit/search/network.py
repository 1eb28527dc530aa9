"""Tuning the tasks of a network together: a scheduler divides one budget into rounds."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from toolkit.records import Candidate
from toolkit.search.base import Oracle, Strategy
from toolkit.search.runner import Budget, Clock, SimulatedClock, WallClock
from toolkit.search.schedulers.base import Scheduler, TaskProgress


@dataclass(frozen=True)
class NetworkTask:
    """One task of a network: how it is searched, how it is measured, how often it runs."""

    strategy: Strategy
    oracle: Oracle
    weight: float = 1.0
    kind: str = ""
    flops: float | None = None


@dataclass
class NetworkRun:
    """What a scheduler achieved.

    ``chosen`` is the task of each round. After each round, ``evaluations`` is the number of all
    measurements, ``clock_s`` the time, and ``objective_s`` the weighted sum of best latencies
    (infinite until every task has a success).
    """

    chosen: list[int] = field(default_factory=list)
    evaluations: list[int] = field(default_factory=list)
    clock_s: list[float] = field(default_factory=list)
    objective_s: list[float] = field(default_factory=list)
    tasks: list[TaskProgress] = field(default_factory=list)


@dataclass
class _Round:
    """A round of one task: how many measurements it may take, and its first candidates."""

    task: int
    size: int
    asked: list[Candidate]


@dataclass
class _Rounds:
    """Chooses the task of each round; the next one can be chosen during the current round."""

    tasks: Sequence[NetworkTask]
    progress: list[TaskProgress]
    scheduler: Scheduler
    evaluations: int | None
    size: int
    first_size: int
    spent: int = 0
    _now: _Round | None = None
    _next: _Round | None = None

    def take(self) -> _Round:
        """Begin the round that was chosen in advance; if there is none, choose one now."""
        begun, self._next = self._next, None
        if begun is None:
            begun = self._round(self.scheduler.choose(self.progress), self.progress, self.spent)
        elif self.evaluations is not None:
            # The previous round may have measured more: the records of an interrupted search.
            begun.size = min(begun.size, self.evaluations - self.spent)
            del begun.asked[begun.size :]
        self._now = begun
        return begun

    def look_ahead(self) -> None:
        """Choose the next round during the current one, unless that was done.

        The current round is assumed to improve nothing, but a task without a success is assumed
        to get one. A task never follows itself: it asks only after it has learned from its round.
        """
        now, self._now = self._now, None
        if now is None:
            return
        spent, seen = self.spent + now.size, list(self.progress)
        task = seen[now.task]
        unsolved = task.current_s == math.inf
        seen[now.task] = replace(
            task, best_s=[*task.best_s, task.current_s], exhausted=task.exhausted or unsolved
        )
        over = self.evaluations is not None and spent >= self.evaluations
        if over or all(task.exhausted for task in seen):
            return
        following = self.scheduler.choose(seen)
        if following != now.task:
            self._next = self._round(following, seen, spent)

    def _round(self, task: int, seen: Sequence[TaskProgress], spent: int) -> _Round:
        size = self.first_size if seen[task].current_s == math.inf else self.size
        if self.evaluations is not None:
            size = min(size, self.evaluations - spent)
        return _Round(task, size, self.tasks[task].strategy.ask(size))


def run_network(
    tasks: Sequence[NetworkTask],
    scheduler: Scheduler,
    budget: Budget,
    *,
    round_size: int = 64,
    first_round: int | None = None,
    clock: Clock | None = None,
    count_strategy_time: bool = False,
    meanwhile: Callable[[Callable[[], None]], None] | None = None,
    stop: Callable[[NetworkRun], bool] | None = None,
) -> NetworkRun:
    """Give rounds to tasks, as the scheduler says, until the budget is spent.

    ``first_round`` is the size of a task's rounds until it has a success (default: ``round_size``).
    It is less where the budget does not give so many evaluations to each task.
    ``stop`` is called after every round; the run ends when it returns true.

    ``meanwhile`` is called with a function to run while candidates are built (``Engine``). That
    function chooses the next task's round before the results of the current round are known.

    With ``count_strategy_time`` a simulated clock also advances by the computing time of the
    scheduler and the strategies; such runs are not reproducible to the byte.
    """
    clock = clock or WallClock()
    progress = [TaskProgress(task.weight, task.kind, task.flops) for task in tasks]
    result = NetworkRun(tasks=progress)
    first_size = first_round or round_size
    if budget.evaluations is not None and tasks:
        first_size = max(1, min(first_size, budget.evaluations // len(tasks)))
    rounds = _Rounds(tasks, progress, scheduler, budget.evaluations, round_size, first_size)
    while not all(task.exhausted for task in progress):
        if budget.evaluations is not None and rounds.spent >= budget.evaluations:
            break
        if budget.seconds is not None and clock.now() >= budget.seconds:
            break
        before, begun = clock.now(), time.perf_counter()
        now = rounds.take()
        thought = time.perf_counter() - begun
        i, batch = now.task, now.asked
        asked, measured, best = 0, 0, progress[i].current_s
        # A strategy may ask for fewer than a round at a time, and a miss is not measured.
        while batch:
            asked += len(batch)
            if meanwhile is not None:
                meanwhile(rounds.look_ahead)
            trials = tasks[i].oracle.measure(batch)
            clock.charge(trials)
            begun = time.perf_counter()
            if meanwhile is not None:
                rounds.look_ahead()  # nothing was built
            tasks[i].strategy.tell(trials)
            thought += time.perf_counter() - begun
            measured += len(trials)
            best = min([best, *(t.latency_s for t in trials if t.latency_s is not None)])
            if measured >= now.size:
                break
            if asked > 100 * now.size:
                progress[i].exhausted = True  # none of its proposals can be measured
                break
            if budget.seconds is not None and clock.now() >= budget.seconds:
                break
            begun = time.perf_counter()
            batch = tasks[i].strategy.ask(now.size - measured)
            thought += time.perf_counter() - begun
        else:
            progress[i].exhausted = True
        if count_strategy_time and isinstance(clock, SimulatedClock):
            clock.advance(thought)
        rounds.spent += measured
        progress[i].best_s.append(best)
        progress[i].seconds.append(clock.now() - before)
        result.chosen.append(i)
        result.evaluations.append(rounds.spent)
        result.clock_s.append(clock.now())
        result.objective_s.append(sum(task.weight * task.current_s for task in progress))
        if stop is not None and stop(result):
            break
    return result
