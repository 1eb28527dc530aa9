"""Opponents of other schools: tree search, and what is said where Kernel Tuner is missing."""

from __future__ import annotations

import sys
from collections import Counter

import numpy as np
import pytest

from toolkit.errors import ToolkitError
from toolkit.records import Trial, TrialState
from toolkit.replay import load_scenario
from toolkit.search import STRATEGIES
from toolkit.search.base import Space
from toolkit.search.runner import Budget, run
from toolkit.search.strategies.mcts import Mcts
from toolkit.testing.spaces import FormulaOracle, OpenSpace, finite_space, two_sketch_space


def mcts(space: Space, seed: int = 0, **options: float) -> Mcts:
    return Mcts(space, options, np.random.default_rng(seed))


def test_tree_search_tries_every_first_value_and_then_goes_where_it_is_fast() -> None:
    strategy, oracle = mcts(finite_space(), exploration=0.1), FormulaOracle()
    tiles = []
    for _ in range(40):
        trials = oracle.measure(strategy.ask(1))
        tiles += [trial.candidate.decisions[1] for trial in trials]
        strategy.tell(trials)
    # One sketch, so that the first proposals are spent on the root's and the sketch's children.
    assert set(tiles[1:6]) == {1, 2, 4, 8, 16}
    # Fifteen candidates have the best tile; a uniform search would have measured eight of them.
    assert Counter(tiles)[4] >= 12
    assert Counter(tiles)[16] <= 2  # all of them fail: no reward


def test_without_exploration_the_first_fast_branch_is_used_up() -> None:
    def spread(exploration: float) -> int:
        result = run(
            mcts(finite_space(), exploration=exploration), FormulaOracle(), Budget(30), batch_size=1
        )
        return max(Counter(trial.candidate.decisions[1] for trial in result.trials).values())

    assert spread(0.0) > spread(1.0)


def test_sketches_are_the_first_decision() -> None:
    strategy = mcts(two_sketch_space())
    first = strategy.ask(2)
    assert {candidate.sketch_id for candidate in first} == {"s0", "s1"}


def test_a_batch_is_spread_by_what_is_under_way() -> None:
    """Virtual loss: without it a batch would go down the same branch."""
    strategy, oracle = mcts(finite_space()), FormulaOracle()
    strategy.tell(oracle.measure(strategy.ask(12)))
    tiles = Counter(candidate.decisions[1] for candidate in strategy.ask(10))
    assert len(tiles) >= 4


def test_rewards_are_relative_to_the_best_so_far() -> None:
    """The same latencies in other units: the same search."""
    found = []
    for factor in (1.0, 1024.0):
        oracle = FormulaOracle(factor)
        run(mcts(finite_space(), seed=3), oracle, Budget(40), batch_size=4)
        found.append(oracle.measured)
    assert found[0] == found[1]


def test_a_space_that_cannot_be_listed_is_searched_to_its_best() -> None:
    result = run(mcts(OpenSpace(), samples=16), FormulaOracle(), Budget(60), batch_size=4)
    assert result.evaluations == 60
    assert result.best_latency_s == pytest.approx(1e-4, rel=0.2)


def test_what_was_never_measured_is_a_visit_without_a_reward() -> None:
    strategy = mcts(finite_space())
    first, second = strategy.ask(2)
    strategy.tell([Trial(first, TrialState.OK, (1e-3,))])
    assert second.candidate_id not in {candidate.candidate_id for candidate in strategy.ask(73)}
    assert strategy.ask(1) == []


def test_without_kernel_tuner_the_cure_is_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "kernel_tuner"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "kernel_tuner", None)
    with pytest.raises(ToolkitError, match="not installed") as caught:
        STRATEGIES.get("kernel-tuner")(finite_space())
    assert "tvm-tuning-toolkit[kernel-tuner]" in str(caught.value.cure)


def test_the_scenario_names_algorithms_that_kernel_tuner_has() -> None:
    pytest.importorskip("kernel_tuner", reason="pip install '.[kernel-tuner]'")
    from kernel_tuner.interface import strategy_map

    scenario = load_scenario("opponents")
    named = [choice.options for choice in scenario.strategies if choice.name == "kernel-tuner"]
    assert len(named) == 10
    assert {options["algorithm"] for options in named} <= set(strategy_map)
    assert {options["strategy_options"]["max_fevals"] for options in named} == {
        scenario.budget.evaluations
    }
