"""Agreement of replays with live runs: what counts as agreeing, and what the intervals cover."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from benchmarks.agreement import (
    ALL,
    control,
    difference,
    forecast_values,
    judge,
    prediction,
    values,
)


def made(rng: np.random.Generator, runs: int, means: dict[str, float], noise: float = 1.0) -> dict:
    """One score of made-up strategies, on two tasks and the mean over them."""
    tasks = {
        task: {label: rng.normal(mean, noise, runs) for label, mean in means.items()}
        for task in ("one", "two")
    }
    both = {label: np.mean([t[label] for t in tasks.values()], axis=0) for label in means}
    return {**tasks, ALL: both}


def test_values_are_of_the_row_asked_for_and_the_mean_is_run_by_run() -> None:
    runs = {
        "one": {"a": [np.array([[2.0], [4.0]]), np.array([[4.0], [4.0]])]},
        "two": {"a": [np.array([[1.0], [1.0]]), np.array([[2.0], [1.0]])]},
    }
    best = {"one": 2.0, "two": 1.0}
    seen = values(runs, best, 1)["auc"]
    assert seen["one"]["a"].tolist() == [1.0, 0.5] and seen[ALL]["a"].tolist() == [1.0, 0.5]
    assert values(runs, best, 1, row=1)["auc"][ALL]["a"].tolist() == [0.75, 0.75]


def test_the_interval_covers_means_of_further_runs() -> None:
    rng = np.random.default_rng(5)
    hits = []
    for seed in range(400):
        low, high = prediction(rng.exponential(size=100), 5, seed)
        hits.append(low <= rng.exponential(size=5).mean() <= high)
    assert 0.85 <= np.mean(hits) <= 0.94


def test_a_difference_is_judged_by_its_spread() -> None:
    mean, low, high, p = difference(np.array([1.0, 1.2, 0.8, 1.1, 0.9]))
    assert mean == pytest.approx(1.0) and 0 < low < 1 < high and p < 0.01
    assert difference(np.zeros(4)) == (0.0, 0.0, 0.0, 1.0)
    assert difference(np.ones(4)) == (1.0, 1.0, 1.0, 0.0)


def test_signs_that_turn_are_counted_and_coverage_is_lost() -> None:
    rng = np.random.default_rng(1)
    replays = made(rng, 100, {"a": 0.0, "b": 4.0, "c": 8.0})
    same = judge(replays, made(rng, 5, {"a": 0.0, "b": 4.0, "c": 8.0}))["summary"]
    turned = judge(replays, made(rng, 5, {"a": 8.0, "b": 4.0, "c": 0.0}))["summary"]
    for group, pairs in (("single tasks", 6), (ALL, 3)):
        assert same[group]["decided live"] == {"agree": pairs, "of": pairs}
        assert turned[group]["decided live"] == {"agree": 0, "of": pairs}
        assert turned[group]["decided live and in replay"] == {"agree": 0, "of": pairs}
        assert turned[group]["figures covered"]["agree"] <= pairs // 3
    assert same["single tasks"]["decided live after Holm"] == {"agree": 6, "of": 6}


def test_what_was_forecast_takes_the_place_of_the_spread_of_replays() -> None:
    rng = np.random.default_rng(4)
    replays = made(rng, 100, {"a": 0.0, "b": 1.0}, noise=0.1)
    live = made(rng, 5, {"a": 3.0, "b": 2.0}, noise=0.1)
    forecast = made(rng, 500, {"a": 3.2, "b": 1.8}, noise=0.5)
    without, known = judge(replays, live), judge(replays, live, forecast)
    for group, pairs, figures in (("single tasks", 2, 4), (ALL, 1, 2)):
        assert without["summary"][group]["decided live"] == {"agree": 0, "of": pairs}
        assert without["summary"][group]["figures covered"] == {"agree": 0, "of": figures}
        assert known["summary"][group]["decided live"] == {"agree": pairs, "of": pairs}
        assert known["summary"][group]["decided live and in replay"]["of"] == pairs
        assert known["summary"][group]["figures covered"] == {"agree": figures, "of": figures}
        assert known["summary"][group]["differences covered"] == {"agree": pairs, "of": pairs}


def test_forecast_runs_are_looked_at_with_every_level_of_the_machine() -> None:
    seen = [[[4.0, 2.0], [2.0, 2.0]], [[8.0, 8.0]]]
    draws = {"t": {"a": [[np.array([run, run]) for run in alike] for alike in seen]}}
    levels = {"t": np.log([[1.0, 2.0], [1.0, 0.5]])}
    drawn = forecast_values(draws, levels, {"t": 2.0}, 2)
    # Means of a draw's runs, draw by draw and level by level.
    assert drawn["auc"]["t"]["a"] == pytest.approx([0.875, 0.4375, 0.25, 0.5])
    assert drawn["auc"][ALL]["a"].tolist() == drawn["auc"]["t"]["a"].tolist()
    assert drawn["final"]["t"]["a"] == pytest.approx(np.log([1.0, 0.5, 0.25, 0.5]))


def test_pairs_that_do_not_differ_are_not_decided() -> None:
    rng = np.random.default_rng(2)
    alike = {"a": 0.0, "b": 0.0}
    counts = [
        judge(made(rng, 50, alike), made(rng, 5, alike))["summary"]["single tasks"]
        for _ in range(60)
    ]
    assert sum(c["decided live"]["of"] for c in counts) <= 15
    assert sum(c["decided live after Holm"]["of"] for c in counts) <= 10


def test_the_control_is_what_replays_among_themselves_would_show() -> None:
    rng = np.random.default_rng(3)
    apart = control(made(rng, 60, {"a": 0.0, "b": 4.0, "c": 8.0}), 5)
    assert apart["decided live"] == 1.0 and 0.8 <= apart["figures covered"] <= 0.97
    close = [control(made(rng, 60, {"a": 0.0, "b": gap}), 5)["decided live"] for gap in (0.3, 1.5)]
    assert all(less < more for less, more in pairwise([*close, 1.01]))
