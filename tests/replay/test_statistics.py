"""Intervals cover what they claim to, comparisons are paired, ties are called ties."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from toolkit.replay.statistics.power import power, tasks_to_decide, told_power, units_needed
from toolkit.replay.statistics.statistics import (
    Resamples,
    compare,
    effective_sample_size,
    holm,
    interval,
    mean,
    median,
    paired_p_value,
    ranking,
)
from toolkit.replay.statistics.summary import expected_evaluations


def draw(rng: np.random.Generator, tasks: int, seeds: int) -> NDArray[np.float64]:
    """Log-normal task effects (standard deviation 1) and seed effects (0.5); the mean is e^0.625"""
    task = rng.normal(0, 1, (tasks, 1))
    return np.asarray(np.exp(task + rng.normal(0, 0.5, (tasks, seeds))))


@pytest.mark.parametrize(("tasks", "seeds"), [(12, 3), (30, 5)])
def test_the_interval_of_a_mean_covers_it(tasks: int, seeds: int) -> None:
    rng = np.random.default_rng(7)
    covered = 0
    rounds = 300
    for i in range(rounds):
        values = rng.normal(0, 1, (tasks, 1)) + rng.normal(0, 0.5, (tasks, seeds))
        low, high = interval(values, mean, Resamples.draw(tasks, seeds, 400, seed=i))
        covered += low <= 0.0 <= high
    # 95 % claimed; three standard deviations of 300 rounds are 3.8 %
    assert 0.91 <= covered / rounds <= 0.99


def test_the_interval_of_a_median_of_skewed_values_covers_it() -> None:
    rng = np.random.default_rng(3)
    covered = 0
    rounds = 300
    for i in range(rounds):
        low, high = interval(draw(rng, 25, 4), median, Resamples.draw(25, 4, 400, seed=i))
        covered += low <= 1.0 <= high
    assert 0.91 <= covered / rounds <= 0.995


def test_seeds_alone_would_make_intervals_too_narrow() -> None:
    """The reason for resampling tasks: forgetting them loses most of the uncertainty."""
    rng = np.random.default_rng(5)
    values = rng.normal(0, 1, (10, 1)) + rng.normal(0, 0.1, (10, 50))
    low, high = interval(values, mean, Resamples.draw(10, 50, 500))
    flat = values.reshape(1, -1)
    naive_low, naive_high = interval(flat, mean, Resamples.draw(1, 500, 500))
    assert (high - low) > 3 * (naive_high - naive_low)


def test_pairs_stay_pairs() -> None:
    rng = np.random.default_rng(1)
    first = rng.normal(0, 10, (15, 4))
    second = first + 0.1 + rng.normal(0, 0.01, (15, 4))  # always better, by far less than the noise
    resamples = Resamples.draw(15, 4, 500)
    (found,) = compare({"a": second, "b": first}, resamples)
    assert found["verdict"] == "better"
    assert found["difference_interval"][0] > 0
    shuffled = rng.permutation(first.reshape(-1)).reshape(15, 4)
    (broken,) = compare({"a": second, "b": shuffled}, resamples)
    assert broken["verdict"] == "tied"


def test_no_difference_is_found_where_there_is_none() -> None:
    rng = np.random.default_rng(2)
    p_values = [paired_p_value(rng.normal(0, 1, (8, 3))) for _ in range(400)]
    assert np.mean(np.array(p_values) <= 0.05) <= 0.085
    assert paired_p_value(np.zeros((5, 2))) == 1.0
    assert paired_p_value(np.ones((4, 2))) == pytest.approx(2 / 16)  # no smaller with four tasks


def test_holm_is_the_step_down_procedure() -> None:
    assert holm([0.01, 0.04, 0.03, 0.5]) == pytest.approx([0.04, 0.09, 0.09, 0.5])
    assert holm([]) == []


def test_many_comparisons_of_equals_rarely_find_a_winner() -> None:
    rng = np.random.default_rng(4)
    found = 0
    for i in range(60):
        values = {str(s): rng.normal(0, 1, (15, 2)) for s in range(6)}
        pairs = compare(values, Resamples.draw(15, 2, 100, seed=i))
        found += any(pair["verdict"] != "tied" for pair in pairs)
    assert found / 60 <= 0.13


def test_a_ranking_says_tied() -> None:
    rng = np.random.default_rng(6)
    noise = rng.normal(0, 0.1, (20, 3))
    values = {"good": 1.0 + noise, "same": 1.0 + noise[::-1], "bad": noise - 1.0}
    pairs = compare(values, Resamples.draw(20, 3, 300))
    table = {row["strategy"]: row for row in ranking(values, pairs)}
    assert table["good"]["rank"] == table["same"]["rank"] == 1
    assert table["good"]["tied_with"] == ["same"]
    assert table["bad"]["rank"] == 3
    assert table["bad"]["tied_with"] == []


def test_median_of_unreached_runs_is_infinite_not_nan() -> None:
    assert float(median(np.array([1.0, 2.0, np.inf, np.inf]))) == np.inf
    assert float(median(np.array([1.0, 2.0, 3.0, np.inf]))) == 2.5
    assert float(median(np.array([np.inf, np.inf]))) == np.inf


def test_seeds_that_change_nothing_add_no_runs() -> None:
    same = np.repeat(np.arange(6.0)[:, None], 5, axis=1)
    assert effective_sample_size(same) == pytest.approx(6.0)
    free = np.random.default_rng(0).normal(0, 1, (40, 5))
    assert effective_sample_size(free) > 120
    assert effective_sample_size(np.ones((3, 4))) == 3.0


@pytest.mark.parametrize(("n", "good"), [(10, 1), (200, 7), (448, 3)])
def test_random_search_in_closed_form(n: int, good: int) -> None:
    """The mean is the sum of the probabilities that so many draws do not suffice."""
    draws = stats.hypergeom(n, good, np.arange(n + 1))
    assert expected_evaluations(n, good) == pytest.approx(float(draws.pmf(0).sum()))
    assert expected_evaluations(n, 0) == np.inf


def test_one_run_alone_has_no_interval() -> None:
    one = np.array([[3.0]])
    assert np.isnan(interval(one, median, Resamples.draw(1, 1, 100))).all()
    (pair,) = compare({"a": one, "b": one - 1}, Resamples.draw(1, 1, 100))
    assert pair["difference_interval"] == [None, None]
    assert pair["verdict"] == "tied"
    two = np.array([[3.0, 4.0]])
    assert interval(two, mean, Resamples.draw(1, 2, 100)) == (3.0, 4.0)


@pytest.mark.parametrize("strategies", [2, 3, 4, 6, 9])
def test_a_difference_on_all_tasks_is_proven_from_the_needed_number_on(strategies: int) -> None:
    needed = units_needed(strategies)
    assert needed is not None and needed <= 12

    def verdicts(tasks: int) -> set[str]:
        """Each strategy beats the next one on every task, by far."""
        values = {str(n): np.full((tasks, 2), 1.0 - 0.1 * n) for n in range(strategies)}
        rows = compare(values, Resamples.draw(tasks, 2, 50))
        return {row["verdict"] for row in rows}

    assert verdicts(needed) == {"better"}
    assert verdicts(needed - 1) == {"tied"}
    assert not power(needed - 1, 5, strategies, 0.95)["can_decide"]
    assert power(needed, 5, strategies, 0.95)["can_decide"]
    said = told_power(power(needed - 1, 5, strategies, 0.95))
    assert f"at least {needed} tasks are needed" in said
    assert "seeds" in told_power(power(1, needed, strategies, 0.95))


def test_too_many_strategies_can_never_be_told_apart() -> None:
    assert units_needed(15) > 12 and units_needed(30) is None
    assert "fewer strategies" in told_power(power(500, 5, 30, 0.95))
    assert power(500, 5, 1, 0.95) is None


def test_so_many_tasks_decide_four_times_of_five() -> None:
    rng = np.random.default_rng(1)

    def differences(tasks: int) -> NDArray[np.float64]:
        return rng.normal(0.5, 1.0, (tasks, 1))

    tasks = tasks_to_decide(differences(4000), 2)
    assert tasks is not None and 28 <= tasks <= 36
    proven = [paired_p_value(differences(tasks)) < 0.05 for _ in range(200)]
    # Three standard deviations of 200 rounds are 8.5 %.
    assert 0.7 <= np.mean(proven) <= 0.9
    assert tasks_to_decide(differences(1), 2) is None
    assert tasks_to_decide(np.zeros((5, 2)), 2) is None
