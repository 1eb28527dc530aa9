"""Requirements for every search strategy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from toolkit.errors import SearchError
from toolkit.records import Candidate, Direction, Trial, TrialState
from toolkit.search.base import Space, Strategy
from toolkit.search.runner import Budget, Run, run
from toolkit.search.strategy import BaseStrategy
from toolkit.testing.spaces import (
    FormulaOracle,
    OpenSpace,
    finite_space,
    toy_latency,
    two_sketch_space,
)
from toolkit.testing.suite import Suite

SPACES: dict[str, Callable[[], Space]] = {
    "finite": finite_space,
    "two sketches": two_sketch_space,
    "open": OpenSpace,
}

SMALL = {"population": 64, "samples": 100, "chains": 16, "steps": 40}
"""Sizes that suit a space of 75 candidates; everything else is the strategy's own default."""


class KnowsTheFormula:
    """Scores and gains from the formula of ``toolkit.testing.spaces``."""

    training_task_ids = frozenset({"elsewhere"})

    def score(self, space: Space, candidates: Sequence[Candidate]) -> NDArray[np.float64]:
        """Minus the log of each candidate's latency."""
        return np.array([-np.log(toy_latency(c.decisions)) for c in candidates])

    def gains(
        self, space: Space, candidate: Candidate, directions: Sequence[Direction]
    ) -> NDArray[np.float64]:
        """What one draw in each direction gains."""
        rng = np.random.default_rng(0)
        moved = [space.mutate(candidate, direction, rng) or candidate for direction in directions]
        here = np.log(toy_latency(candidate.decisions))
        return np.array([here - np.log(toy_latency(m.decisions)) for m in moved])


def build(plugin: Any, space: Space, seed: int = 0, options: Any = None) -> Strategy:
    """Make a strategy, with small sizes and models that know the formula."""
    if options is None:
        fields = plugin.Options.model_fields
        options = {key: value for key, value in SMALL.items() if key in fields}
    made: Strategy = plugin(
        space,
        options,
        np.random.default_rng(seed),
        scorer=KnowsTheFormula(),
        direction_scorer=KnowsTheFormula(),
    )
    return made


def _build_or_skip(plugin: Any, space: Space, seed: int = 0) -> Strategy:
    """Make a strategy; skip if it needs a finite space, which its error must say with a cure."""
    try:
        return build(plugin, space, seed)
    except SearchError as error:
        assert space.size is None
        assert plugin.needs_finite
        assert error.cure
        pytest.skip("needs a finite space, and says so")


def _run(strategy: Strategy, evaluations: int, batch_size: int) -> Run:
    """Run a strategy for a number of measurements by the formula."""
    return run(strategy, FormulaOracle(), Budget(evaluations=evaluations), batch_size=batch_size)


class StrategyConformance(Suite):
    """Tests on a finite space, one with two sketches, and one that cannot be listed."""

    @pytest.fixture(params=SPACES)
    def space(self, request: pytest.FixtureRequest) -> Space:
        """A space of 75 candidates."""
        return SPACES[request.param]()

    def test_it_says_what_it_is(self, plugin: Any) -> None:
        assert plugin.name
        assert issubclass(plugin, BaseStrategy)
        assert plugin.source
        assert plugin.__doc__
        assert isinstance(build(plugin, finite_space()), Strategy)

    def test_asks_are_of_the_space_and_no_larger_than_asked_for(
        self, plugin: Any, space: Space
    ) -> None:
        strategy = _build_or_skip(plugin, space)
        oracle = FormulaOracle()
        sketches = {sketch.sketch_id for sketch in space.sketches}
        for n in (1, 7, 32, 3):
            asked = strategy.ask(n)
            assert len(asked) <= n
            assert all(candidate.sketch_id in sketches for candidate in asked)
            strategy.tell(oracle.measure(asked))

    @pytest.mark.parametrize("size", [1, 4, 16])
    def test_the_batch_size_is_honoured(self, plugin: Any, space: Space, size: int) -> None:
        """Never more; and no fewer, unless the strategy sets ``own_batches``."""
        result = _run(_build_or_skip(plugin, space), 3 * size, size)
        assert max(result.batches) <= size
        if not plugin.own_batches:
            assert result.batches == [size, size, size]

    def test_nothing_is_proposed_twice(self, plugin: Any, space: Space) -> None:
        """Unless TVM's original does so; an option switches that off."""
        strategy = _build_or_skip(plugin, space)
        if strategy.repeats:  # type: ignore[attr-defined]
            off = {"revisit": False, "wrap": False, "population": 64}
            strategy = build(plugin, space, options=off)
        ids = [trial.candidate.candidate_id for trial in _run(strategy, 70, 9).trials]
        assert len(ids) == len(set(ids)) > 0

    def test_the_same_seed_gives_the_same_run(self, plugin: Any, space: Space) -> None:
        runs = [_run(_build_or_skip(plugin, space, seed=3), 40, 8).trials for _ in range(2)]
        assert runs[0] == runs[1]

    def test_a_larger_budget_asks_first_for_what_a_smaller_one_did(
        self, plugin: Any, space: Space
    ) -> None:
        """So a search that goes on with a larger budget measures nothing twice."""
        runs = [
            _run(_build_or_skip(plugin, space, seed=3), count, 64).trials for count in (5, 16, 40)
        ]
        assert runs[0] == runs[1][:5] and runs[1] == runs[2][:16]

    def test_it_ends_by_itself(self, plugin: Any, space: Space) -> None:
        strategy = _build_or_skip(plugin, space)
        result = _run(strategy, 400, 16)
        assert result.stopped in ("exhausted", "evaluations")
        distinct = len({trial.candidate.candidate_id for trial in result.trials})
        assert distinct <= (space.size or 75)
        if result.stopped == "exhausted":
            assert strategy.ask(4) == []

    def test_a_device_on_which_everything_fails_does_not_stop_it(
        self, plugin: Any, space: Space
    ) -> None:
        strategy = _build_or_skip(plugin, space)
        for _ in range(4):
            asked = strategy.ask(10)
            strategy.tell([Trial(c, TrialState.RUNTIME, elapsed_s=1.0) for c in asked])

    def test_missing_trials_do_not_stop_it(self, plugin: Any, space: Space) -> None:
        """Unrecorded proposals have no trial: a strategy gets fewer trials than it proposed."""
        strategy = _build_or_skip(plugin, space)
        oracle = FormulaOracle()
        for _ in range(6):
            strategy.tell(oracle.measure(strategy.ask(10)[::2]))

    def test_one_candidate_is_enough(self, plugin: Any) -> None:
        assert _run(build(plugin, finite_space(keep=1)), 3, 2).evaluations >= 1

    def test_unknown_options_are_refused_with_near_names(self, plugin: Any) -> None:
        fields = list(plugin.Options.model_fields)
        wrong = (fields[0] if fields else "anything") + "x"
        with pytest.raises(SearchError) as caught:
            build(plugin, finite_space(), options={wrong: 1})
        if fields:
            assert fields[0] in str(caught.value.cure)

    def test_it_does_not_touch_numpy_s_global_generator(self, plugin: Any) -> None:
        np.random.seed(5)  # noqa: NPY002
        before = np.random.get_state()[1].copy()  # type: ignore[index] # noqa: NPY002
        _run(build(plugin, finite_space()), 30, 10)
        assert np.array_equal(before, np.random.get_state()[1])  # type: ignore[index] # noqa: NPY002

    def test_a_missing_model_is_named_with_its_cure(self, plugin: Any) -> None:
        if not plugin.needs_scorer:
            pytest.skip("needs no model")
        with pytest.raises(SearchError, match="model") as caught:
            plugin(finite_space(), None, np.random.default_rng(0))
        assert "toolkit train" in str(caught.value.cure)
