"""Schedulers: every task gets a round, then the rounds go where the objective falls."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from toy_spaces import FormulaOracle, finite_space

from toolkit.errors import SearchError
from toolkit.records import Candidate, Trial, TrialState
from toolkit.search import STRATEGIES
from toolkit.search.network import NetworkTask, run_network
from toolkit.search.runner import Budget, SimulatedClock
from toolkit.search.schedulers import SCHEDULERS
from toolkit.search.schedulers.base import Scheduler, TaskProgress

NAMES = SCHEDULERS.names()
INF = float("inf")


class Scaled:
    """A device on which this task takes so many times as long."""

    def __init__(self, factor: float) -> None:
        self.factor, self.oracle = factor, FormulaOracle()

    def measure(self, candidates: Sequence[Candidate]) -> list[Trial]:
        return [
            Trial(t.candidate, t.state, tuple(s * self.factor for s in t.run_times_s), t.elapsed_s)
            for t in self.oracle.measure(candidates)
        ]


class Broken:
    """A device on which nothing succeeds."""

    def measure(self, candidates: Sequence[Candidate]) -> list[Trial]:
        return [Trial(c, TrialState.RUNTIME, elapsed_s=1.0) for c in candidates]


def network(*factors: float, weights: Sequence[float] | None = None) -> list[NetworkTask]:
    tasks = []
    for i, factor in enumerate(factors):
        strategy = STRATEGIES.get("random")(finite_space(), None, np.random.default_rng(i))
        weight = 1.0 if weights is None else weights[i]
        tasks.append(NetworkTask(strategy, Scaled(factor), weight))
    return tasks


@pytest.fixture(params=NAMES)
def scheduler(request: pytest.FixtureRequest) -> Scheduler:
    made: Scheduler = SCHEDULERS.get(request.param)(None, np.random.default_rng(0))
    return made


def test_every_task_gets_its_first_round(scheduler: Scheduler) -> None:
    assert isinstance(scheduler, Scheduler)
    run = run_network(network(1, 1, 1), scheduler, Budget(evaluations=24), round_size=8)
    assert run.chosen == [0, 1, 2]
    assert run.objective_s[:2] == [INF, INF]
    assert np.isfinite(run.objective_s[2])


def test_the_objective_never_rises_and_the_budget_holds(scheduler: Scheduler) -> None:
    clock = SimulatedClock()
    run = run_network(network(1, 5), scheduler, Budget(evaluations=100), round_size=8, clock=clock)
    assert run.evaluations[-1] == 100
    assert run.objective_s == sorted(run.objective_s, reverse=True)
    assert run.clock_s[-1] == clock.now() > 0


def test_it_ends_when_all_spaces_are_used_up(scheduler: Scheduler) -> None:
    run = run_network(network(1, 1), scheduler, Budget(), round_size=16, clock=SimulatedClock())
    assert run.evaluations[-1] == 150
    assert all(task.exhausted for task in run.tasks)


def test_a_task_that_always_fails_stops_nobody(scheduler: Scheduler) -> None:
    tasks = network(1, 1)
    tasks[1] = NetworkTask(tasks[1].strategy, Broken())
    run = run_network(tasks, scheduler, Budget(), round_size=16, clock=SimulatedClock())
    assert run.evaluations[-1] == 150
    assert run.objective_s[-1] == INF


@pytest.mark.parametrize("name", ["gradient", "bandit"])
def test_rounds_go_where_the_objective_falls(name: str) -> None:
    """A task that weighs a hundred times as much gets most of the rounds while it improves."""
    scheduler = SCHEDULERS.get(name)(None, np.random.default_rng(1))
    run = run_network(
        network(1, 1, weights=[100, 1]), scheduler, Budget(evaluations=48), round_size=4
    )
    assert run.chosen.count(0) > run.chosen.count(1)


def test_the_gradient_follows_ansor_s_formula() -> None:
    gradient = SCHEDULERS.get("gradient")({"epsilon": 0.0}, np.random.default_rng(0))
    still = TaskProgress(1.0, best_s=[4.0, 4.0, 4.0, 4.0])
    falling = TaskProgress(1.0, best_s=[8.0, 6.0, 5.0, 4.0])
    assert gradient.choose([still, falling]) == 1
    # 0.2 * (8 - 4) / 3 + 0.8 * 4 / 4 against 0.2 * 0 + 0.8 * 4 / 4
    assert gradient._gain([still, falling], 1) == pytest.approx(0.2 * 4 / 3 + 0.8)
    assert gradient._gain([still, falling], 0) == pytest.approx(0.8)
    slow = TaskProgress(1.0, kind="conv", flops=1e9, best_s=[1.0])
    fast = TaskProgress(1.0, kind="conv", flops=1e9, best_s=[0.1])
    other = TaskProgress(1.0, kind="dense", flops=1e9, best_s=[0.001])
    # the guess for the slow one: 1 / rounds would be 0, the similar task says twice 0.1
    assert gradient._gain([slow, fast, other], 0) == pytest.approx(0.8 * (1.0 - 0.0))
    assert gradient._similar([slow, fast, other], 0) == pytest.approx(0.2)


def test_options_are_checked() -> None:
    with pytest.raises(SearchError, match="epsilon"):
        SCHEDULERS.get("gradient")({"epsilon": 2.0})
