"""The methodology's score, against numbers of the package that defines it."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import orjson
import pytest
from numpy.typing import NDArray

from toolkit.replay.statistics.methodology import (
    SpaceFacts,
    random_baseline,
    run_matrices,
    score,
    score_runs,
    standardised,
)
from toolkit.replay.statistics.metrics import Replayed

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


def replayed(values: list[float], seconds: float, stopped: str) -> Replayed:
    none = np.empty(0, dtype=np.int64)
    array = np.array(values)
    clock = seconds * np.arange(1, len(values) + 1)
    return Replayed(none, none, array, array, clock, none, len(values), 0, 90, stopped)


def test_a_run_that_strands_at_once_stays_what_it_was() -> None:
    space = toy_space()
    median, best = float(np.nanmedian(space.values)), float(np.nanmin(space.values))

    def scored(value: float, stopped: str = "exhausted") -> float | None:
        runs = [replayed([value], 0.6, stopped) for _ in range(3)]
        return score_runs(space, runs, np.random.RandomState(0))

    stranded, lucky = scored(median), scored(best)
    assert stranded is not None
    assert stranded < 0.0
    assert lucky == pytest.approx(1.0)
    assert scored(median, "evaluations") is None  # a budget that was too small is not giving up
    # Where the methodology has a score of runs that gave up, it is that one.
    runs = [replayed([2.0 - 0.01 * i for i in range(40)], 0.6, "exhausted") for _ in range(3)]
    found = score_runs(space, runs, np.random.RandomState(0))
    assert found == score(space, *run_matrices(space, runs), np.random.RandomState(0))


# What autotuning-methodology 1.1.0 (numpy 2.4, scipy 1.17) says of the runs of ``made_runs`` on two
# brute-forced T4 spaces, numpy's global generator seeded with 11: the mean of its curve over time,
# printed by ``their_score``. Kept because the package brings Kernel Tuner and forty others along;
# ``pip install '.[methodology]'`` compares live.
REFERENCE = {
    ("convolution_milo-A4000_T4", "random"): -0.1451885993750705,
    ("convolution_milo-A4000_T4", "guided"): 0.7802825607361081,
    ("dedispersion_milo-A4000_T4", "random"): -0.02829360772213436,
    ("dedispersion_milo-A4000_T4", "guided"): 0.6829237436669362,
}
TIMES = ("compilation", "runtimes", "framework", "search_algorithm", "validation")


def t4_space(content: bytes) -> SpaceFacts:
    """Values in milliseconds and seconds of every configuration of a T4 file."""
    values, seconds = [], []
    for result in orjson.loads(content)["results"]:
        (measured,) = [m["value"] for m in result["measurements"] if m["name"] == "time"]
        values.append(measured if isinstance(measured, (int, float)) else np.nan)
        parts = [result["times"].get(key, 0.0) for key in TIMES]
        seconds.append(sum(sum(p) if isinstance(p, list) else p for p in parts) / 1000)
    return SpaceFacts(np.array(values, dtype=np.float64), np.array(seconds))


def made_runs(space: SpaceFacts, kind: str) -> tuple[FloatArray, FloatArray]:
    """Twenty runs: in random order, or in the order of values with much noise."""
    count = len(space.values)
    n = min(count, int(space.time_range()[-1] / space.seconds.mean() * 1.6))
    rng = np.random.default_rng(0)
    if kind == "random":
        order = np.array([rng.permutation(count)[:n] for _ in range(20)]).T
    else:
        logs = np.log(np.where(np.isnan(space.values), np.nanmax(space.values), space.values))
        noise = rng.normal(0.0, 2.0 * logs.std(), (20, count))
        order = np.argsort(logs + noise, axis=1)[:, :n].T
    best = np.fmin.accumulate(space.values[order], axis=0)
    return np.cumsum(space.seconds[order], axis=0), best


def t4_content(real_logs: Path, name: str) -> bytes:
    return gzip.decompress((real_logs / "t4-kernel-tuner" / f"{name}.json.gz").read_bytes())


@pytest.mark.real_logs
@pytest.mark.parametrize(("name", "kind"), REFERENCE)
def test_it_equals_what_the_package_said_of_brute_forced_spaces(
    name: str, kind: str, real_logs: Path
) -> None:
    space = t4_space(t4_content(real_logs, name))
    found = score(space, *made_runs(space, kind), np.random.RandomState(11))
    assert found == pytest.approx(REFERENCE[name, kind], abs=1e-6)


def their_score(path: Path, kind: str) -> tuple[float, SpaceFacts]:
    """The package's score of the same runs, and its own reading of the space."""
    from autotuning_methodology.baseline import RandomSearchCalculatedBaseline
    from autotuning_methodology.curves import StochasticOptimizationAlgorithm
    from autotuning_methodology.report_experiments import get_strategies_aggregated_performance
    from autotuning_methodology.searchspace_statistics import SearchspaceStatistics

    theirs = SearchspaceStatistics("a", "b", True, list(TIMES), ["time"], path, full_validate=False)
    space = SpaceFacts(theirs.objective_performances_total, theirs.objective_times_total)
    times, best = made_runs(space, kind)
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
        [(baseline, [curve], theirs, space.time_range(), None)], 0.95
    )
    return float(np.mean(performance[0])), space


@pytest.mark.real_logs
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "kind"), REFERENCE)
def test_it_equals_the_package_live(name: str, kind: str, real_logs: Path, tmp_path: Path) -> None:
    pytest.importorskip("autotuning_methodology", reason="pip install '.[methodology]'")
    content = t4_content(real_logs, name)
    path = tmp_path / f"{name}.json"
    path.write_bytes(content)
    theirs, their_space = their_score(path, kind)
    space = t4_space(content)
    assert space.values == pytest.approx(their_space.values, nan_ok=True)
    assert space.seconds == pytest.approx(their_space.seconds)
    found = score(space, *made_runs(space, kind), np.random.RandomState(11))
    assert found == pytest.approx(theirs, abs=1e-6)
    assert REFERENCE[name, kind] == pytest.approx(theirs, abs=1e-6)
