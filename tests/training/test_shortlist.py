"""The order to measure in: the best of the first few picks, as the members expect it."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from toolkit.training.evaluate.metrics import task_metrics
from toolkit.training.members.shortlist import (
    BELIEVED,
    LONGEST,
    mean_opinion,
    preference,
    shortlist,
)

EVEN = np.array([0.5, 0.5])


def drawn(seed: int, members: int, candidates: int) -> tuple[NDArray[np.float64], ...]:
    rng = np.random.default_rng(seed)
    weights = rng.uniform(0.2, 1.0, members)
    return rng.normal(size=(members, candidates)), weights / weights.sum()


def test_the_second_pick_is_the_favourite_of_who_was_not_heard() -> None:
    # Both like the first. The first member's next one is its twin, the second's is another.
    opinions = np.array([[1.0, 0.99, 0.2], [0.8, 0.75, 1.2]])
    opinions[:, 0] += 0.5
    assert np.argsort(-mean_opinion(opinions, EVEN)).tolist() == [0, 1, 2]
    assert shortlist(opinions, EVEN) == [0]
    opinions[1, 2] = 3.0
    opinions[0, 2] = -2.5
    assert np.argsort(-mean_opinion(opinions, EVEN)).tolist() == [0, 1, 2]
    assert shortlist(opinions, EVEN) == [0, 2]
    assert np.argsort(-preference(opinions, EVEN)).tolist() == [0, 2, 1]


def test_members_who_agree_leave_the_order_as_it_is() -> None:
    alike = np.tile(np.array([0.3, 0.1, 0.9, 0.5]), (3, 1))
    weights = np.full(3, 1 / 3)
    assert shortlist(alike, weights) == [2]
    assert np.argsort(-preference(alike, weights)).tolist() == [2, 3, 0, 1]


def test_without_candidates_there_is_no_list() -> None:
    assert shortlist(np.zeros((2, 0)), EVEN) == []
    assert preference(np.zeros((2, 0)), EVEN).tolist() == []


def test_what_cannot_be_scored_or_will_surely_fail_is_not_listed() -> None:
    opinions = np.array([[1.0, np.nan, 0.5, 0.2], [0.1, 2.0, -np.inf, 0.9]])
    assert shortlist(opinions, EVEN) == [0, 3]
    preferred = preference(opinions, EVEN)
    assert preferred[0] > preferred[3] > preferred[2] == -np.inf
    assert np.isnan(preferred[1])
    assert shortlist(np.full((2, 3), np.nan), EVEN) == []


@given(st.integers(0, 2**31), st.integers(1, 6), st.integers(1, 200))
def test_the_list_begins_with_the_best_mean_and_each_of_it_adds_to_what_is_expected(
    seed: int, members: int, candidates: int
) -> None:
    opinions, weights = drawn(seed, members, candidates)
    mean = mean_opinion(opinions, weights)
    chosen = shortlist(opinions, weights)
    assert chosen[0] == mean.argmax()
    assert len(set(chosen)) == len(chosen) <= LONGEST
    beliefs = mean + BELIEVED * (opinions - mean)
    expected = [
        float(weights @ beliefs[:, chosen[: n + 1]].max(axis=1)) for n in range(len(chosen))
    ]
    assert all(np.diff(expected) > 0)
    order = np.argsort(-preference(opinions, weights), kind="stable").tolist()
    assert order[: len(chosen)] == chosen
    assert np.all(np.diff(mean[order[len(chosen) :]]) <= 0)


@given(st.integers(0, 2**31), st.integers(2, 60))
def test_the_order_of_the_candidates_does_not_matter(seed: int, candidates: int) -> None:
    opinions, weights = drawn(seed, 4, candidates)
    turned = np.random.default_rng(seed).permutation(candidates)
    assert np.allclose(
        preference(opinions[:, turned], weights), preference(opinions, weights)[turned]
    )


@given(st.integers(0, 2**31), st.integers(1, 40))
def test_a_mean_does_not_depend_on_its_company(seed: int, kept: int) -> None:
    opinions, weights = drawn(seed, 5, 100)
    alone = mean_opinion(np.ascontiguousarray(opinions[:, :kept]), weights)
    assert np.array_equal(alone, mean_opinion(opinions, weights)[:kept])


def test_first_picks_are_judged_by_the_order_to_measure_in_and_values_by_the_scores() -> None:
    latency = np.array([1.0, 2.0, 4.0, 8.0])
    score = np.array([0.0, -0.5, 1.0, -3.0])
    plain = task_metrics(latency, score)
    turned = task_metrics(latency, score, np.array([4.0, 3.0, 2.0, 1.0]))
    assert (plain.top1, turned.top1) == (0.25, 1.0)
    assert (plain.to_1pct, turned.to_1pct) == (2.0, 1.0)
    assert turned.slowdown == 0.0
    two = np.tile(latency, 3)
    order, by_score = np.arange(12.0), np.tile([0.0, 1.0, 0.5, 0.2], 3)
    judged = task_metrics(two, by_score, order)
    assert (judged.top5, judged.top5_by_score) == (1.0, 0.5)
    assert (plain.rmse, plain.pairwise, plain.recall10) == (
        turned.rmse,
        turned.pairwise,
        turned.recall10,
    )
