"""Every registered strategy and scheduler runs its role's conformance suite."""

from __future__ import annotations

from typing import Any

import pytest

from toolkit.search import STRATEGIES
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
