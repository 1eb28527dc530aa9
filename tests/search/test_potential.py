"""The potential of predicted directions: the equations, their solution, and what a run does."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from toolkit.errors import SearchError
from toolkit.records import Candidate, Direction
from toolkit.search import STRATEGIES
from toolkit.search.base import Space
from toolkit.search.models.potential import Steps, fit_potential, potential_of
from toolkit.search.runner import Budget, run
from toolkit.testing.spaces import (
    FiniteSpace,
    FormulaOracle,
    OpenSpace,
    finite_space,
    toy_latency,
    two_sketch_space,
)


class MeanGains:
    """The true mean gain of every direction, with errors of its own on each."""

    training_task_ids = frozenset({"elsewhere"})

    def __init__(self, error: float = 0.0, seed: int = 0) -> None:
        self._error = error
        self._rng = np.random.default_rng(seed)

    def gains(
        self, space: Space, candidate: Candidate, directions: Sequence[Direction]
    ) -> NDArray[np.float64]:
        assert isinstance(space, FiniteSpace)
        number = int(space.index_of([candidate])[0])
        found = []
        for direction in directions:
            assert direction.knob is not None
            knob = space.graph.knob_number(number, direction.knob)
            near = space.graph.one_way(number, knob, direction.way)
            logs = [np.log(toy_latency(space.candidates()[i].decisions)) for i in near.tolist()]
            found.append(np.log(toy_latency(candidate.decisions)) - np.mean(logs))
        return np.array(found) + self._error * self._rng.normal(size=len(found))


class Scores:
    training_task_ids = frozenset({"elsewhere"})

    def score(self, space: Space, candidates: Sequence[Candidate]) -> NDArray[np.float64]:
        return np.array([-np.log(toy_latency(c.decisions)) for c in candidates])


def truth(space: FiniteSpace) -> NDArray[np.float64]:
    return Scores().score(space, space.candidates())


@given(st.integers(0, 2**32 - 1), st.sampled_from([9, 30, 75]), st.booleans())
def test_equations_are_those_of_the_graph_and_the_transposed_is_theirs(
    seed: int, keep: int, two: bool
) -> None:
    space = two_sketch_space() if two else finite_space(keep)
    graph, steps = space.graph, Steps(space.graph)
    rng = np.random.default_rng(seed)
    values = rng.normal(size=len(graph.sketch_of))
    expected = []
    for candidate in range(len(values)):
        for slot, direction in graph.slots(candidate):
            near = graph.one_way(candidate, slot // 2, direction.way)
            expected.append(values[near].mean() - values[candidate])
    found = steps.differences(values)
    assert found == pytest.approx(np.array(expected))
    weights = rng.normal(size=len(found))
    assert weights @ found == pytest.approx(steps.transposed(weights) @ values)


@given(st.integers(0, 2**32 - 1))
def test_gains_that_do_not_contradict_each_other_give_the_values_back(seed: int) -> None:
    space = finite_space()
    steps = Steps(space.graph)
    values = np.random.default_rng(seed).normal(size=75)
    found = fit_potential(steps, steps.differences(values))
    assert found == pytest.approx(values - values.mean(), abs=1e-4)


def test_errors_of_single_steps_cancel() -> None:
    space = finite_space()
    found = potential_of(space, space.candidates(), MeanGains(error=0.3))
    wrong = found - found.mean() - (truth(space) - truth(space).mean())
    assert 0.0 < wrong.std() < 0.3 / 2


def test_levels_tie_parts_together_that_no_step_joins() -> None:
    space = two_sketch_space()
    second = space.graph.sketch_of == 1
    gap = truth(space)[second].mean() - truth(space)[~second].mean()
    for weight, expected in ((0.0, 0.0), (1.0, gap)):
        found = potential_of(space, space.candidates(), MeanGains(), Scores(), weight)
        between = found[second].mean() - found[~second].mean()
        assert between == pytest.approx(expected, abs=1e-3)


def test_with_the_true_gains_the_best_is_measured_first() -> None:
    space = finite_space()
    strategy = STRATEGIES.get("potential")(space, direction_scorer=MeanGains())
    result = run(strategy, FormulaOracle(), Budget(evaluations=1), batch_size=8)
    assert result.trials[0].latency_s == min(toy_latency(c.decisions) for c in space.candidates())


class Expects(Scores):
    """The gains of a model of the method ``expected``: differences of what it predicts."""

    def gains(
        self, space: Space, candidate: Candidate, directions: Sequence[Direction]
    ) -> NDArray[np.float64]:
        raise AssertionError("no step of an open space is asked for")


@pytest.mark.parametrize("levels", [0.0, 1.0])
def test_in_an_open_space_the_prediction_behind_the_gains_is_the_potential(levels: float) -> None:
    best = min(toy_latency(c.decisions) for c in finite_space().candidates())
    options = {"levels": levels, "samples": 200}
    models = {"direction_scorer": Expects(), "scorer": Scores() if levels else None}
    strategy = STRATEGIES.get("potential")(OpenSpace(), options, **models)
    result = run(strategy, FormulaOracle(), Budget(evaluations=16), batch_size=16)
    assert result.trials[0].latency_s == best
    # A pool is bred anew for so many proposals, and not for each.
    assert result.batches == [8, 8]


def test_a_model_of_single_steps_needs_a_space_that_can_be_listed() -> None:
    strategy = STRATEGIES.get("potential")(OpenSpace(), direction_scorer=MeanGains())
    with pytest.raises(SearchError, match="single steps") as caught:
        strategy.ask(1)
    assert "expected" in str(caught.value.cure)


def test_it_says_which_model_is_missing() -> None:
    with pytest.raises(SearchError, match="mutation model"):
        STRATEGIES.get("potential")(finite_space())
    with pytest.raises(SearchError, match="throughput model"):
        STRATEGIES.get("potential")(finite_space(), {"levels": 1.0}, direction_scorer=MeanGains())
