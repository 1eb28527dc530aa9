"""Every registered strategy and scheduler runs its role's conformance suite."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from toolkit.errors import SearchError
from toolkit.records import Candidate, Trial, TrialState
from toolkit.search import STRATEGIES
from toolkit.search.reference import strategy_pages
from toolkit.search.runner import Budget, run
from toolkit.search.schedulers import SCHEDULERS
from toolkit.testing import SchedulerConformance, StrategyConformance
from toolkit.testing.spaces import FormulaOracle, finite_space
from toolkit.testing.strategies import build


class TestStrategies(StrategyConformance):
    @pytest.fixture(params=STRATEGIES.names())
    def plugin(self, request: pytest.FixtureRequest) -> Any:
        if request.param == "kernel-tuner":
            pytest.importorskip("kernel_tuner", reason="pip install '.[kernel-tuner]'")
        return STRATEGIES.get(request.param)


class TestSchedulers(SchedulerConformance):
    @pytest.fixture(params=SCHEDULERS.names())
    def plugin(self, request: pytest.FixtureRequest) -> Any:
        return SCHEDULERS.get(request.param)


@pytest.mark.parametrize("name", STRATEGIES.names())
def test_a_strategy_is_registered_under_its_name(name: str) -> None:
    assert STRATEGIES.get(name).name == name


def test_batches_of_its_own_follow_its_option_and_never_exceed_the_batch_size() -> None:
    transfer = STRATEGIES.get("transfer")
    for wanted, size, expected in ((1, 16, 1), (8, 16, 8), (8, 4, 4)):
        strategy = build(transfer, finite_space(), options={"batch": wanted, "growth": 0.0})
        result = run(strategy, FormulaOracle(), Budget(evaluations=3 * expected), batch_size=size)
        assert result.batches == [expected] * 3
    growing = build(transfer, finite_space(), options={"batch": 2, "growth": 0.5})
    result = run(growing, FormulaOracle(), Budget(evaluations=60), batch_size=16)
    assert result.batches[:4] == [2, 2, 2, 3]
    assert max(result.batches) == 16


def test_a_tuner_that_proposes_again_may_explore_before_droplet() -> None:
    options = {"explore": 60, "strategy": "genetic", "options": {"population": 8}}
    strategy = build(STRATEGIES.get("explore-then-droplet"), finite_space(), options=options)
    assert run(strategy, FormulaOracle(), Budget(), batch_size=8).evaluations >= 60


def test_annealing_that_never_asks_its_plan_ends_with_the_space() -> None:
    options = {"epsilon": 1.0, "plan_size": 16, "chains": 8, "steps": 5}
    strategy = build(STRATEGIES.get("annealing"), finite_space(), options=options)
    result = run(strategy, FormulaOracle(), Budget(), batch_size=16)
    assert (result.evaluations, result.stopped) == (75, "exhausted")


def test_a_misspelt_option_of_a_part_is_told_the_parts_names() -> None:
    for name, options, near in (
        ("beam", {"model": {"los": "rank"}}, "'loss'"),
        ("transfer", {"residuals": [{"nois": 0.1}]}, "'noise'"),
    ):
        with pytest.raises(SearchError, match="there is no such name") as refused:
            build(STRATEGIES.get(name), finite_space(), options=options)
        assert refused.value.cure == f"did you mean {near}?"


class NothingWorks(FormulaOracle):
    """Every candidate fails."""

    def measure(self, candidates: Sequence[Candidate]) -> list[Trial]:
        return [Trial(one, TrialState.COMPILE, elapsed_s=0.5) for one in candidates]


@pytest.mark.parametrize(
    ("name", "options"),
    [("droplet", {}), ("explore-then-droplet", {"explore": 20, "strategy": "grid"})],
)
def test_droplet_without_a_success_tries_the_whole_space(
    name: str, options: dict[str, Any]
) -> None:
    strategy = build(STRATEGIES.get(name), finite_space(), options=options)
    result = run(strategy, NothingWorks(), Budget(), batch_size=8)
    assert (result.evaluations, result.stopped) == (75, "exhausted")


@pytest.mark.parametrize("weights", [{"tiles": 1.0}, {"tile": -1.0}])
def test_weights_of_no_rule_and_below_zero_are_refused(weights: dict[str, float]) -> None:
    with pytest.raises(SearchError, match="option 'weights"):
        build(STRATEGIES.get("evolutionary"), finite_space(), options={"weights": weights})


def test_reference_pages_name_types_in_words() -> None:
    assert not [name for name, text in strategy_pages().items() if "<class" in text]
