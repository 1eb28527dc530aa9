"""What every strategy must keep to, whoever wrote it: the role's conformance suite.

Every registered strategy runs it on a finite space, on one with two sketches, and on one that
cannot be listed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from toy_spaces import FormulaOracle, OpenSpace, finite_space, toy_latency, two_sketch_space

from toolkit.errors import SearchError
from toolkit.records import Candidate, Direction, Trial, TrialState
from toolkit.search import STRATEGIES
from toolkit.search.base import Space, Strategy
from toolkit.search.runner import Budget, SimulatedClock, run
from toolkit.search.strategy import BaseStrategy

NAMES = STRATEGIES.names()
SPACES: dict[str, Callable[[], Space]] = {
    "finite": finite_space,
    "two sketches": two_sketch_space,
    "open": OpenSpace,
}


class KnowsTheFormula:
    """Scores and gains from the toy formula, with a slight error."""

    training_task_ids = frozenset({"elsewhere"})

    def score(self, space: Space, candidates: Sequence[Candidate]) -> NDArray[np.float64]:
        return np.array([-np.log(toy_latency(c.decisions)) for c in candidates])

    def gains(
        self, space: Space, candidate: Candidate, directions: Sequence[Direction]
    ) -> NDArray[np.float64]:
        rng = np.random.default_rng(0)
        moved = [space.mutate(candidate, direction, rng) or candidate for direction in directions]
        here = np.log(toy_latency(candidate.decisions))
        return np.array([here - np.log(toy_latency(m.decisions)) for m in moved])


# Sizes that suit a space of 75 candidates; everything else is the strategy's own default.
SMALL = {"population": 64, "samples": 100, "chains": 16, "steps": 40}


def build(name: str, space: Space, seed: int = 0, options: Any = None) -> Strategy:
    if options is None:
        fields = STRATEGIES.get(name).Options.model_fields
        options = {key: value for key, value in SMALL.items() if key in fields}
    made: Strategy = STRATEGIES.get(name)(
        space,
        options,
        np.random.default_rng(seed),
        scorer=KnowsTheFormula(),
        direction_scorer=KnowsTheFormula(),
    )
    return made


def build_or_skip(name: str, space: Space, seed: int = 0) -> Strategy:
    """Strategies for finite spaces must say so, with a cure; then there is nothing to test."""
    try:
        return build(name, space, seed)
    except SearchError as error:
        assert space.size is None
        assert STRATEGIES.get(name).needs_finite
        assert error.cure
        pytest.skip("needs a finite space, and says so")


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=SPACES)
def space(request: pytest.FixtureRequest) -> Space:
    return SPACES[request.param]()


def test_it_says_what_it_is(name: str) -> None:
    plugin = STRATEGIES.get(name)
    assert plugin.name == name
    assert issubclass(plugin, BaseStrategy)
    assert plugin.source
    assert plugin.__doc__
    assert isinstance(build(name, finite_space()), Strategy)


def test_asks_are_of_the_space_and_no_larger_than_asked_for(name: str, space: Space) -> None:
    strategy = build_or_skip(name, space)
    oracle = FormulaOracle()
    sketches = {sketch.sketch_id for sketch in space.sketches}
    for n in (1, 7, 32, 3):
        asked = strategy.ask(n)
        assert len(asked) <= n
        assert all(candidate.sketch_id in sketches for candidate in asked)
        strategy.tell(oracle.measure(asked))


@pytest.mark.parametrize("size", [1, 4, 16])
def test_the_batch_size_is_honoured(name: str, space: Space, size: int) -> None:
    """Never more; and no fewer, unless the strategy says that it makes batches of its own."""
    strategy = build_or_skip(name, space)
    result = run(strategy, FormulaOracle(), Budget(evaluations=3 * size), batch_size=size)
    assert max(result.batches) <= size
    if not STRATEGIES.get(name).own_batches:
        assert result.batches == [size, size, size]


def test_batches_of_its_own_follow_its_option_and_never_exceed_the_batch_size() -> None:
    for wanted, size, expected in ((1, 16, 1), (8, 16, 8), (8, 4, 4)):
        strategy = build("transfer", finite_space(), options={"batch": wanted, "growth": 0.0})
        result = run(strategy, FormulaOracle(), Budget(evaluations=3 * expected), batch_size=size)
        assert result.batches == [expected] * 3
    growing = build("transfer", finite_space(), options={"batch": 2, "growth": 0.5})
    result = run(growing, FormulaOracle(), Budget(evaluations=60), batch_size=16)
    assert result.batches[:4] == [2, 2, 2, 3]
    assert max(result.batches) == 16


def test_nothing_is_proposed_twice(name: str, space: Space) -> None:
    strategy = build_or_skip(name, space)
    if strategy.repeats:  # type: ignore[attr-defined]
        options = {
            "revisit": False,
            "wrap": False,
            "population": 64,
        }  # what such a tuner does in TVM, switched off
        strategy = build(name, space, options=options)
    result = run(strategy, FormulaOracle(), Budget(evaluations=70), batch_size=9)
    ids = [trial.candidate.candidate_id for trial in result.trials]
    assert len(ids) == len(set(ids)) > 0


def test_the_same_seed_gives_the_same_run(name: str, space: Space) -> None:
    runs = [
        run(
            build_or_skip(name, space, seed=3),
            FormulaOracle(),
            Budget(evaluations=40),
            batch_size=8,
            clock=SimulatedClock(),
        )
        for _ in range(2)
    ]
    assert runs[0].trials == runs[1].trials


def test_it_ends_by_itself(name: str, space: Space) -> None:
    strategy = build_or_skip(name, space)
    result = run(strategy, FormulaOracle(), Budget(evaluations=400), batch_size=16)
    assert result.stopped in ("exhausted", "evaluations")
    distinct = len({trial.candidate.candidate_id for trial in result.trials})
    assert distinct <= (space.size or 75)
    if result.stopped == "exhausted":
        assert strategy.ask(4) == []


def test_a_device_on_which_everything_fails_does_not_stop_it(name: str, space: Space) -> None:
    strategy = build_or_skip(name, space)
    for _ in range(4):
        asked = strategy.ask(10)
        strategy.tell([Trial(c, TrialState.RUNTIME, elapsed_s=1.0) for c in asked])


def test_missing_trials_do_not_stop_it(name: str, space: Space) -> None:
    """Unrecorded proposals have no trial: a strategy is told fewer than it asked for."""
    strategy = build_or_skip(name, space)
    oracle = FormulaOracle()
    for _ in range(6):
        strategy.tell(oracle.measure(strategy.ask(10)[::2]))


def test_one_candidate_is_enough(name: str) -> None:
    strategy = build(name, finite_space(keep=1))
    result = run(strategy, FormulaOracle(), Budget(evaluations=3), batch_size=2)
    assert result.evaluations >= 1


def test_unknown_options_are_refused_with_near_names(name: str) -> None:
    fields = list(STRATEGIES.get(name).Options.model_fields)
    wrong = (fields[0] if fields else "anything") + "x"
    with pytest.raises(SearchError) as caught:
        build(name, finite_space(), options={wrong: 1})
    if fields:
        assert fields[0] in str(caught.value.cure)


def test_it_does_not_touch_numpy_s_global_generator(name: str) -> None:
    np.random.seed(5)  # noqa: NPY002
    before = np.random.get_state()[1].copy()  # type: ignore[index] # noqa: NPY002
    run(build(name, finite_space()), FormulaOracle(), Budget(evaluations=30), batch_size=10)
    assert np.array_equal(before, np.random.get_state()[1])  # type: ignore[index] # noqa: NPY002


@pytest.mark.parametrize("name", [n for n in NAMES if STRATEGIES.get(n).needs_scorer])
def test_a_missing_model_is_named_with_its_cure(name: str) -> None:
    with pytest.raises(SearchError, match="model") as caught:
        STRATEGIES.get(name)(finite_space(), None, np.random.default_rng(0))
    assert "toolkit train" in str(caught.value.cure)
