"""Tuning the tasks of a network together: a scheduler gives out rounds of one budget."""

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

    ``chosen`` is the task of each round. ``evaluations``, ``clock_s`` and ``objective_s`` are after
    each round: measurements in all, when it ended, and the weighted sum of best latencies
    (infinite until every task has a success).
    """

    chosen: list[int] = field(default_factory=list)
    evaluations: list[int] = field(default_factory=list)
    clock_s: list[float] = field(default_factory=list)
    objective_s: list[float] = field(default_factory=list)
    tasks: list[TaskProgress] = field(default_factory=list)


@dataclass
class _Round:
    """A task's turn: how many measurements it may take, and what it asks for first."""

    task: int
    size: int
    asked: list[Candidate]


@dataclass
class _Rounds:
    """Says whose turn it is; the next one may be chosen while one is under way."""

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
        """Begin the round that was chosen ahead, or one that is chosen now."""
        begun, self._next = self._next, None
        if begun is None:
            begun = self._round(self.scheduler.choose(self.progress), self.progress, self.spent)
        elif self.evaluations is not None:
            # The round before may have measured more than it was given: recorded programs.
            begun.size = min(begun.size, self.evaluations - self.spent)
            del begun.asked[begun.size :]
        self._now = begun
        return begun

    def look_ahead(self) -> None:
        """Choose the round after the one under way, unless that was done.

        It is chosen as if the one under way were to bring nothing, except that a first round is
        taken to succeed. A task never follows itself: what it learns decides what it asks for.
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

    ``first_round`` is the size of a task's rounds until one succeeds, where it is another; ``stop``
    is asked after every round and ends the run when it returns true.

    ``meanwhile`` is given what can be done while the next candidates are built (``Engine``): the
    round of another task is chosen then, without what the one under way will bring.

    With ``count_strategy_time`` a simulated clock also advances by what the scheduler and the
    strategies compute; such runs are not reproducible to the byte.
    """
    clock = clock or WallClock()
    progress = [TaskProgress(task.weight, task.kind, task.flops) for task in tasks]
    result = NetworkRun(tasks=progress)
    rounds = _Rounds(
        tasks, progress, scheduler, budget.evaluations, round_size, first_round or round_size
    )
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
        while True:
            if not batch:
                progress[i].exhausted = True
                break
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
                progress[i].exhausted = True  # it proposes nothing that can be measured
                break
            if budget.seconds is not None and clock.now() >= budget.seconds:
                break
            begun = time.perf_counter()
            batch = tasks[i].strategy.ask(now.size - measured)
            thought += time.perf_counter() - begun
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
