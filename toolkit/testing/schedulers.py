"""Requirements for every task scheduler."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from toolkit.records import Candidate, Trial, TrialState
from toolkit.search import STRATEGIES
from toolkit.search.network import NetworkTask, run_network
from toolkit.search.runner import Budget, SimulatedClock
from toolkit.search.schedulers.base import Scheduler
from toolkit.testing.spaces import FormulaOracle, finite_space
from toolkit.testing.suite import Suite

INF = float("inf")


class Broken:
    """A device on which nothing succeeds."""

    def measure(self, candidates: Sequence[Candidate]) -> list[Trial]:
        return [Trial(c, TrialState.RUNTIME, elapsed_s=1.0) for c in candidates]


def network(*factors: float, weights: Sequence[float] | None = None) -> list[NetworkTask]:
    """Tasks of a network, searched at random."""
    tasks = []
    for i, factor in enumerate(factors):
        strategy = STRATEGIES.get("random")(finite_space(), None, np.random.default_rng(i))
        weight = 1.0 if weights is None else weights[i]
        tasks.append(NetworkTask(strategy, FormulaOracle(factor), weight))
    return tasks


class SchedulerConformance(Suite):
    """Tests on networks of two and three tasks."""

    def test_every_task_gets_its_first_round(self, plugin: Any) -> None:
        scheduler = plugin(None, np.random.default_rng(0))
        assert isinstance(scheduler, Scheduler)
        run = run_network(network(1, 1, 1), scheduler, Budget(evaluations=24), round_size=8)
        assert run.chosen == [0, 1, 2]
        assert run.objective_s[:2] == [INF, INF]
        assert np.isfinite(run.objective_s[2])

    def test_the_objective_never_rises_and_the_budget_holds(self, plugin: Any) -> None:
        scheduler, clock = plugin(None, np.random.default_rng(0)), SimulatedClock()
        budget = Budget(evaluations=100)
        run = run_network(network(1, 5), scheduler, budget, round_size=8, clock=clock)
        assert run.evaluations[-1] == 100
        assert run.objective_s == sorted(run.objective_s, reverse=True)
        assert run.clock_s[-1] == clock.now() > 0

    def test_it_ends_when_all_spaces_are_used_up(self, plugin: Any) -> None:
        scheduler = plugin(None, np.random.default_rng(0))
        run = run_network(network(1, 1), scheduler, Budget(), round_size=16, clock=SimulatedClock())
        assert run.evaluations[-1] == 150
        assert all(task.exhausted for task in run.tasks)

    def test_a_task_that_always_fails_stops_nobody(self, plugin: Any) -> None:
        scheduler = plugin(None, np.random.default_rng(0))
        tasks = network(1, 1)
        tasks[1] = NetworkTask(tasks[1].strategy, Broken())
        run = run_network(tasks, scheduler, Budget(), round_size=16, clock=SimulatedClock())
        assert run.evaluations[-1] == 150
        assert run.objective_s[-1] == INF
