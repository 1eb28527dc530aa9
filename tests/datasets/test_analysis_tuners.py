"""What each tuner of a log reached when, against what the definitions give by hand."""

from __future__ import annotations

import math

import pytest
from analysed_logs import analysed, two_tuners, write
from scipy.stats import binom

from toolkit.datasets import ingest, open_dataset
from toolkit.datasets.analysis import analyse
from toolkit.datasets.analysis.tuners import median_interval


@pytest.mark.parametrize(
    ("rule", "by"),
    [
        (None, "folder 1 above the file"),
        (r"(?P<tuner>quick|slow)/", "label tuner"),
        (r"(?P<strategy>quick|slow)/", "label strategy"),
    ],
)
def test_what_each_tuner_reached_when(tmp_path, rule, by):
    tuners = analysed(tmp_path, *two_tuners(tmp_path), path_rule=rule).tuners
    assert tuners is not None
    assert (tuners.by, tuners.tasks, tuners.common) == (by, 2, True)
    quick, slow = tuners.tuners
    assert (quick.tuner, quick.runs, quick.tasks) == ("quick", 2, 2)
    assert quick.final_ratio == pytest.approx(1.0)
    assert slow.final_ratio == pytest.approx(1.08)
    assert slow.final_ratio_worst == pytest.approx(1.08)
    assert slow.failed_share == pytest.approx(0.25)
    found = {
        (tuner.tuner, reached.percent): (reached.evaluations, reached.seconds)
        for tuner in tuners.tuners
        for reached in tuner.reached
    }
    assert found == {
        ("quick", 10): (2.0, pytest.approx(3.0)),
        ("quick", 5): (3.0, pytest.approx(6.0)),
        ("quick", 1): (3.0, pytest.approx(6.0)),
        ("slow", 10): (4.0, pytest.approx(40.0)),
        ("slow", 5): (None, None),
        ("slow", 1): (None, None),
    }
    assert [reached.reached_share for reached in slow.reached] == [1.0, 0.0, 0.0]
    assert quick.profile == ((3, 1.0),)
    assert slow.profile == ()
    assert quick.reached[0].evaluations_interval is None


def test_tuners_are_compared_on_what_all_of_them_ran(tmp_path):
    logs = two_tuners(tmp_path)
    logs.append(write(tmp_path / "quick" / "c.log", [1.0, 2.0], target="llvm -mcpu=c"))
    tuners = analysed(tmp_path, *logs, path_rule=r"(?P<tuner>quick|slow)/").tuners
    assert tuners is not None
    assert tuners.tasks == 2
    assert [tuner.runs for tuner in tuners.tuners] == [2, 2]


def test_one_log_has_no_tuners_to_compare(tmp_path):
    assert analysed(tmp_path, write(tmp_path / "a.log", [1.0, 2.0])).tuners is None


def test_unknown_seconds_of_a_tuner_stay_unknown(tmp_path):
    for name in ("x", "y"):
        write(tmp_path / name / "a.log", [2.0, 1.0], elapsed=0, timestamp=9.0)
    write(tmp_path / "y" / "a.log", [2.0, 1.0], elapsed=0, timestamp=10.0)
    tuners = analysed(tmp_path, tmp_path / "x", tmp_path / "y").tuners
    assert tuners is not None
    reached = tuners.tuners[0].reached[-1]
    assert (reached.evaluations, reached.seconds) == (2.0, None)


def test_median_intervals_hold_at_least_what_they_promise():
    assert median_interval([1.0] * 5) is None
    assert median_interval([3.0, 1.0, 2.0, 6.0, 5.0, 4.0]) == (1.0, 6.0)
    assert median_interval([*range(1, 20), math.inf]) == (6, 15)
    assert median_interval([1.0] * 5 + [math.inf] * 5) == (1.0, None)
    for n in range(6, 60):
        low, high = median_interval(list(range(1, n + 1)))
        inside = binom.cdf(high - 1, n, 0.5) - binom.cdf(low - 1, n, 0.5)
        narrower = binom.cdf(high - 2, n, 0.5) - binom.cdf(low, n, 0.5)
        assert inside >= 0.95 > narrower


@pytest.mark.real_logs
def test_real_tuners_reach_what_is_known_of_them(real_logs, tmp_path):
    """The published multi-tuner logs: shares of runs within 1 % are known from another count."""
    ingest([real_logs / "autotvm-0.2-ryzen3700x" / "resnet-18"], tmp_path / "ds")
    found = analyse(open_dataset(tmp_path / "ds"))
    assert found is not None
    assert found.tuners is not None
    names = [tuner.tuner for tuner in found.tuners.tuners]
    assert sorted(names) == ["droplet", "ga", "gridsearch", "random", "xgb"]
    assert names[0] == "xgb"
    assert names[-1] == "droplet"
    assert all(task.knobs for task in found.tasks.values())
