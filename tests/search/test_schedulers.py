"""Schedulers: the rounds go where the objective falls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from toolkit.errors import SearchError
from toolkit.records import Candidate, Trial
from toolkit.search.network import NetworkRun, run_network
from toolkit.search.runner import Budget, SimulatedClock
from toolkit.search.schedulers import SCHEDULERS
from toolkit.search.schedulers.base import TaskProgress
from toolkit.testing.schedulers import network
from toolkit.testing.spaces import FormulaOracle


@pytest.mark.parametrize("name", ["gradient", "bandit"])
def test_rounds_go_where_the_objective_falls(name: str) -> None:
    """A task that weighs a hundred times as much gets most of the rounds while it improves."""
    scheduler = SCHEDULERS.get(name)(None, np.random.default_rng(1))
    run = run_network(
        network(1, 1, weights=[100, 1]), scheduler, Budget(evaluations=48), round_size=4
    )
    assert run.chosen.count(0) > run.chosen.count(1)


@pytest.mark.parametrize("name", SCHEDULERS.names())
def test_the_first_rounds_go_to_the_tasks_of_most_work(name: str) -> None:
    """By operations times calls; without operations known they stay in order."""
    work = [(1.0, None), (1.0, 2e6), (10.0, 1e6), (1.0, None), (1.0, 3e6)]
    tasks = [TaskProgress(weight, flops=flops) for weight, flops in work]
    scheduler = SCHEDULERS.get(name)(None, np.random.default_rng(0))
    chosen = []
    for _ in tasks:
        chosen.append(scheduler.choose(tasks))
        tasks[chosen[-1]].best_s.append(1.0)
    assert chosen == [2, 4, 1, 0, 3]


@pytest.mark.parametrize("name", SCHEDULERS.names())
def test_a_heavy_task_that_failed_does_not_wait_for_all_light_ones(name: str) -> None:
    tasks = [TaskProgress(flops=flops) for flops in (1e9, 5e8, 3e6, 3e4)]
    scheduler = SCHEDULERS.get(name)(None, np.random.default_rng(0))
    chosen = []
    while any(task.rounds == 0 for task in tasks):
        chosen.append(scheduler.choose(tasks))
        tasks[chosen[-1]].best_s.append(np.inf if chosen[-1] == 0 else 1.0)
    assert chosen == [0, 1, 0, 0, 2, 0, 0, 3]


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


def test_the_guess_of_later_rounds_falls_with_the_power_of_decay() -> None:
    tasks = [TaskProgress(1.0, best_s=[4.0] * 4), TaskProgress(1.0, best_s=[1.5])]
    rng = np.random.default_rng(0)
    # Ansor's guess: 4 / 4 against 1.5 / 1. With the power of 0.5 it is 4 / 2.
    assert SCHEDULERS.get("gradient")({"epsilon": 0.0}, rng).choose(tasks) == 1
    slower = SCHEDULERS.get("gradient")({"epsilon": 0.0, "decay": 0.5}, rng)
    assert slower.choose(tasks) == 0
    assert slower._gain(tasks, 0) == pytest.approx(0.8 * 2.0)


class Built(FormulaOracle):
    """An oracle that does what is given to it before it measures, as an engine does."""

    def __init__(self, log: list[str], name: str, works: bool) -> None:
        super().__init__(1.0)
        self.log, self.name, self.works = log, name, works
        self.work: list[Callable[[], None]] = []

    def measure(self, candidates: Sequence[Candidate]) -> list[Trial]:
        while self.works and self.work:
            self.work.pop()()
        self.log.append(f"measure {self.name}")
        return super().measure(candidates)


def chosen_ahead(works: bool, evaluations: int = 60) -> tuple[NetworkRun, list[str]]:
    """Three tasks whose next rounds are chosen while one is built, or right after it."""
    log: list[str] = []
    tasks = []
    for number, task in enumerate(network(1, 1, 1)):
        oracle = Built(log, str(number), works)
        ask = task.strategy.ask

        def told(n: int, ask: Any = ask, number: int = number) -> list[Candidate]:
            log.append(f"ask {number}")
            return ask(n)

        task.strategy.ask = told
        tasks.append(replace(task, oracle=oracle))

    def meanwhile(work: Callable[[], None]) -> None:
        for task in tasks:
            task.oracle.work = [work]

    scheduler = SCHEDULERS.get("gradient")(None, np.random.default_rng(0))
    clock, budget = SimulatedClock(), Budget(evaluations=evaluations)
    run = run_network(
        tasks, scheduler, budget, round_size=4, first_round=2, clock=clock, meanwhile=meanwhile
    )
    return run, log


def test_the_next_round_is_chosen_while_one_is_built() -> None:
    run, log = chosen_ahead(works=True)
    assert log[:5] == ["ask 0", "ask 1", "measure 0", "ask 2", "measure 1"]
    assert run.chosen[:3] == [0, 1, 2]
    assert run.evaluations[-1] == 60
    # A task never asks again before its measurements are told.
    for number in "012":
        own = [line.split()[0] for line in log if line.endswith(number)]
        assert own == ["ask", "measure"] * (len(own) // 2)


def test_where_nothing_is_built_the_same_rounds_are_chosen() -> None:
    """As when a search goes on: what is answered from records is not built."""
    built, answered = chosen_ahead(works=True)[0], chosen_ahead(works=False)[0]
    assert built.chosen == answered.chosen
    assert built.objective_s == answered.objective_s


def test_no_round_is_chosen_ahead_of_what_may_be_spent() -> None:
    run, log = chosen_ahead(works=True, evaluations=7)
    assert run.evaluations == [2, 4, 6, 7]
    assert sum(line.startswith("ask") for line in log) == 4


@pytest.mark.parametrize("name", SCHEDULERS.names())
@pytest.mark.parametrize(("trials", "each"), [(14, 7), (3, 1), (2, 1), (200, 64)])
def test_each_task_gets_a_part_of_a_budget_below_a_round(name: str, trials: int, each: int) -> None:
    scheduler = SCHEDULERS.get(name)(None, np.random.default_rng(0))
    run = run_network(network(1, 1), scheduler, Budget(evaluations=trials), clock=SimulatedClock())
    assert sorted(run.chosen[:2]) == [0, 1]
    assert run.evaluations[:2] == [each, 2 * each]
    assert run.evaluations[-1] <= trials


def test_what_was_measured_beside_a_round_is_of_the_budget() -> None:
    """As recorded programs are: the round that was chosen meanwhile is cut."""

    class Generous(FormulaOracle):
        def measure(self, candidates: Sequence[Candidate]) -> list[Trial]:
            more = [replace(one, candidate_id=f"{one.candidate_id}-again") for one in candidates]
            return super().measure([*candidates, *more])

    for budget, spent in ((6, [4, 8]), (5, [4, 6])):
        run = run_network(
            [replace(task, oracle=Generous()) for task in network(1, 1)],
            SCHEDULERS.get("round-robin")(None, np.random.default_rng(0)),
            Budget(evaluations=budget),
            round_size=2,
            clock=SimulatedClock(),
            meanwhile=lambda work: work(),
        )
        assert run.evaluations == spent


def test_options_are_checked() -> None:
    with pytest.raises(SearchError, match="epsilon"):
        SCHEDULERS.get("gradient")({"epsilon": 2.0})
