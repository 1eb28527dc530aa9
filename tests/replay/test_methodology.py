"""The methodology's score, against numbers of the package that defines it."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import orjson
import pytest
from numpy.typing import NDArray

from toolkit.replay.methodology import SpaceFacts, random_baseline, score, standardised

FloatArray = NDArray[np.float64]

# What autotuning-methodology 1.1.0 says of the toy runs, numpy's global generator seeded with 11.
EXPECTED_EVALUATIONS = (1, 71)
EXPECTED_SCORE = -0.10333810423368747


def toy_space() -> SpaceFacts:
    """400 values on a formula, every ninth one a failure."""
    i = np.arange(400)
    values = 1.0 + ((i * 37) % 400) / 100 + 0.3 * np.sin(i)
    values[::9] = np.nan
    return SpaceFacts(values, 0.5 + ((i * 11) % 7) / 10)


def toy_runs(space: SpaceFacts, runs: int = 9, n: int = 90) -> tuple[FloatArray, FloatArray]:
    """Runs that walk through the space with different strides."""
    order = np.array(
        [[(start + step * (7 + 2 * start)) % 400 for start in range(runs)] for step in range(n)]
    )
    return np.cumsum(space.seconds[order], axis=0), np.fmin.accumulate(space.values[order], axis=0)


def test_it_equals_what_the_package_says_of_the_same_runs() -> None:
    space = toy_space()
    assert (space.evaluations_to(0.01), space.evaluations_to(0.95)) == EXPECTED_EVALUATIONS
    found = score(space, *toy_runs(space), np.random.RandomState(11))
    assert found == pytest.approx(EXPECTED_SCORE, abs=1e-9)


def test_random_search_scores_nothing_and_the_optimum_one() -> None:
    space = toy_space()
    time_s = space.time_range()
    baseline = random_baseline(space, time_s)
    assert standardised(space, baseline, time_s) == pytest.approx(np.zeros(len(time_s)))
    best = np.full(len(time_s), np.nanmin(space.values))
    assert standardised(space, best, time_s) == pytest.approx(np.ones(len(time_s)))


def test_no_score_where_the_methodology_defines_none() -> None:
    state = np.random.RandomState(0)
    flat = SpaceFacts(np.ones(50), np.ones(50))
    assert score(flat, np.ones((5, 2)).cumsum(axis=0), np.ones((5, 2)), state) is None
    space = toy_space()
    short = np.full((1, 3), 0.6), np.full((1, 3), 2.0)
    assert score(space, *short, state) is None


@pytest.mark.real_logs
@pytest.mark.parametrize("name", ["convolution_milo-A4000_T4", "dedispersion_milo-A4000_T4"])
def test_it_equals_the_package_on_brute_forced_t4_spaces(
    name: str, real_logs: Path, tmp_path: Path
) -> None:
    pytest.importorskip("autotuning_methodology")
    from autotuning_methodology.baseline import RandomSearchCalculatedBaseline
    from autotuning_methodology.curves import StochasticOptimizationAlgorithm
    from autotuning_methodology.report_experiments import get_strategies_aggregated_performance
    from autotuning_methodology.searchspace_statistics import SearchspaceStatistics

    content = gzip.decompress((real_logs / "t4-kernel-tuner" / f"{name}.json.gz").read_bytes())
    assert orjson.loads(content)["results"]
    path = tmp_path / f"{name}.json"
    path.write_bytes(content)
    keys = ["compilation", "runtimes", "framework", "search_algorithm", "validation"]
    theirs = SearchspaceStatistics("a", "b", True, keys, ["time"], path, full_validate=False)
    space = SpaceFacts(theirs.objective_performances_total, theirs.objective_times_total)
    time_s = space.time_range()
    n = min(len(space.values), int(time_s[-1] / space.seconds.mean() * 1.6))
    rng = np.random.default_rng(0)
    order = np.array([rng.permutation(len(space.values))[:n] for _ in range(20)]).T
    times = np.cumsum(space.seconds[order], axis=0)
    best = np.fmin.accumulate(space.values[order], axis=0)
    curve = StochasticOptimizationAlgorithm.__new__(StochasticOptimizationAlgorithm)
    vars(curve).update(
        name="s",
        display_name="s",
        device_name="d",
        application_name="a",
        stochastic=True,
        minimization=True,
        _x_fevals=times,
        _x_time=times.copy(),
        _y=best.copy(),
    )
    baseline = RandomSearchCalculatedBaseline(theirs)
    np.random.seed(11)  # noqa: NPY002
    performance, *_ = get_strategies_aggregated_performance(
        [(baseline, [curve], theirs, time_s, None)], 0.95
    )
    found = score(space, times, best, np.random.RandomState(11))
    assert found == pytest.approx(float(np.mean(performance[0])), abs=1e-6)
