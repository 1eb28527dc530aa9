"""Tuning the tasks of a network together: a scheduler gives out rounds of one budget."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

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

    Attributes
    ----------
    chosen
        The task of each round.
    evaluations, clock_s, objective_s
        After each round: measurements in all, when it ended, and the weighted sum of best
        latencies (infinite until every task has a success).
    """

    scheduler: str
    chosen: list[int] = field(default_factory=list)
    evaluations: list[int] = field(default_factory=list)
    clock_s: list[float] = field(default_factory=list)
    objective_s: list[float] = field(default_factory=list)
    tasks: list[TaskProgress] = field(default_factory=list)


def run_network(
    tasks: Sequence[NetworkTask],
    scheduler: Scheduler,
    budget: Budget,
    *,
    round_size: int = 64,
    first_round: int | None = None,
    clock: Clock | None = None,
    count_strategy_time: bool = False,
    stop: Callable[[NetworkRun], bool] | None = None,
) -> NetworkRun:
    """Give rounds to tasks, as the scheduler says, until the budget is spent.

    ``first_round`` is the size of a task's rounds until one succeeds, where it is another; ``stop``
    is asked after every round and ends the run when it returns true.

    With ``count_strategy_time`` a simulated clock also advances by what the scheduler and the
    strategies compute; such runs are not reproducible to the byte.
    """
    clock = clock if clock is not None else WallClock()
    progress = [TaskProgress(task.weight, task.kind, task.flops) for task in tasks]
    result = NetworkRun(scheduler.name, tasks=progress)
    spent = 0
    while not all(task.exhausted for task in progress):
        if budget.evaluations is not None and spent >= budget.evaluations:
            break
        if budget.seconds is not None and clock.now() >= budget.seconds:
            break
        before, begun = clock.now(), time.perf_counter()
        i = scheduler.choose(progress)
        thought = time.perf_counter() - begun
        size = round_size
        if first_round is not None and progress[i].current_s == math.inf:
            size = first_round
        left = size if budget.evaluations is None else budget.evaluations - spent
        asked, measured, best = 0, 0, progress[i].current_s
        # A strategy may ask for fewer than a round at a time, and a miss is not measured.
        while measured < min(size, left):
            begun = time.perf_counter()
            batch = tasks[i].strategy.ask(min(size, left) - measured)
            thought += time.perf_counter() - begun
            if not batch:
                progress[i].exhausted = True
                break
            asked += len(batch)
            trials = tasks[i].oracle.measure(batch)
            clock.charge(trials)
            begun = time.perf_counter()
            tasks[i].strategy.tell(trials)
            thought += time.perf_counter() - begun
            measured += len(trials)
            best = min([best, *(t.latency_s for t in trials if t.latency_s is not None)])
            if asked > 100 * size:
                progress[i].exhausted = True  # it proposes nothing that can be measured
                break
            if budget.seconds is not None and clock.now() >= budget.seconds:
                break
        if count_strategy_time and isinstance(clock, SimulatedClock):
            clock.advance(thought)
        spent += measured
        progress[i].best_s.append(best)
        progress[i].seconds.append(clock.now() - before)
        result.chosen.append(i)
        result.evaluations.append(spent)
        result.clock_s.append(clock.now())
        result.objective_s.append(sum(task.weight * task.current_s for task in progress))
        if stop is not None and stop(result):
            break
    return result
