"""Metrics against definitions spelled out by brute force."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolkit.training.evaluate.bootstrap import mean_interval
from toolkit.training.evaluate.metrics import (
    JudgedTask,
    pairwise,
    picks_until,
    recall,
    spearman,
    summarize,
    task_metrics,
    top_k,
)


def orders(score: list[int]) -> list[tuple[int, ...]]:
    """All orders of the candidates by falling score, ties in every way."""
    return [
        order
        for order in itertools.permutations(range(len(score)))
        if all(score[a] >= score[b] for a, b in itertools.pairwise(order))
    ]


small = st.lists(st.tuples(st.integers(1, 9), st.integers(0, 3)), min_size=1, max_size=6)


@given(small, st.integers(1, 6))
def test_top_k_is_the_mean_over_orders_of_ties(rows: list[tuple[int, int]], k: int) -> None:
    speed = np.array([1 / s for s, _ in rows])
    score = [s for _, s in rows]
    expected = np.mean([max(speed[i] for i in order[:k]) for order in orders(score)])
    assert top_k(speed, np.array(score, dtype=float), k) == pytest.approx(expected)


@given(small)
def test_picks_until_is_the_mean_over_orders_of_ties(rows: list[tuple[int, int]]) -> None:
    latency = np.array([float(s) for s, _ in rows])
    score = [s for _, s in rows]
    hit = latency == latency.min()
    expected = np.mean([1 + next(i for i, c in enumerate(o) if hit[c]) for o in orders(score)])
    assert picks_until(hit, np.array(score, dtype=float)) == pytest.approx(expected)


@given(small, st.integers(1, 6))
def test_recall_is_the_mean_over_orders_of_ties(rows: list[tuple[int, int]], k: int) -> None:
    latency = np.array([float(s) for s, _ in rows])
    score = [s for _, s in rows]
    k = min(k, len(rows))
    fast = set(np.argsort(latency, kind="stable")[:k].tolist())
    expected = np.mean([len(fast & set(order[:k])) / k for order in orders(score)])
    assert recall(latency, np.array(score, dtype=float), k) == pytest.approx(expected)


def test_a_constant_predictor_gains_nothing_from_the_order_of_the_log() -> None:
    latency = np.array([1.0, 2.0, 4.0, 8.0])
    found = task_metrics(latency, np.zeros(4))
    assert found.pairwise == 0.5
    assert found.top1 == pytest.approx(np.mean(1 / latency))
    assert found.to_1pct == pytest.approx(2.5)
    assert np.isnan(found.spearman)


def test_a_perfect_predictor() -> None:
    latency = np.array([3.0, 1.0, 2.0])
    found = task_metrics(latency, np.log(1.0 / latency))
    assert (found.top1, found.pairwise, found.spearman, found.to_1pct) == (1.0, 1.0, 1.0, 1.0)
    assert found.rmse == pytest.approx(0.0)
    assert found.calibration == pytest.approx(1.0)
    assert found.slowdown == pytest.approx(0.0)


def test_pairs_within_one_per_cent_do_not_count() -> None:
    latency = np.array([1.0, 1.005, 2.0])
    assert pairwise(latency, np.array([0.0, 1.0, -1.0])) == 1.0


def test_spearman_of_reversed_ranks() -> None:
    assert spearman(np.array([1.0, 2, 3]), np.array([9.0, 4, 1])) == pytest.approx(-1.0)


def judged(task_id: str, latency: list[float], score: list[float]) -> JudgedTask:
    values = np.array(latency)
    metrics = task_metrics(values, np.array(score))
    return JudgedTask(task_id, len(latency), float(values.min()), metrics, ("net",))


def test_networks_are_ratios_of_sums_and_pooled_figures_are_means() -> None:
    tasks = [judged("a", [1.0, 2.0], [0.0, 1.0]), judged("b", [10.0, 11.0], [1.0, 0.0])]
    summary = summarize(tasks)
    assert summary["top1"] == pytest.approx((0.5 + 1.0) / 2)
    assert summary["networks"]["net"]["network_top1"] == pytest.approx(11.0 / 12.0)
    low, high = summary["top1_interval"]  # type: ignore[misc]
    assert low == 0.5
    assert high == 1.0


def test_intervals_are_by_task_and_paired_differences_cancel_what_is_shared() -> None:
    rng = np.random.default_rng(1)
    shared = rng.normal(size=40)
    a, b = shared + 0.1, shared
    mean, low, high = mean_interval(a - b)
    assert (mean, low, high) == pytest.approx((0.1, 0.1, 0.1))
    assert mean_interval(a)[1] < 0 < mean_interval(a)[2]


def test_interval_covers_the_true_mean_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(2)
    hits = 0
    for trial in range(300):
        _, low, high = mean_interval(rng.normal(loc=1.0, size=30), seed=trial)
        hits += low <= 1.0 <= high
    assert 0.89 <= hits / 300 <= 0.98
