"""What is said of a log first: each figure against what its definition gives by hand."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import loglines
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, f_oneway

from toolkit.datasets import Dataset, describe, ingest, open_dataset
from toolkit.datasets.analysis import Analysis, TaskAnalysis, analyse
from toolkit.datasets.analysis.convergence import verdict_of
from toolkit.datasets.analysis.knobs import one_way, sketch_knobs
from toolkit.datasets.analysis.result import KnobEffect
from toolkit.datasets.analysis.tuners import median_interval
from toolkit.records import Task

MS = 1e-3


def write(path: Path, costs: list[Any], **fields: Any) -> Path:
    """Write a log of one task, one candidate a line; a cost is milliseconds, or ("error", n).

    ``fields`` are arguments of ``loglines.autotvm``; a list has one entry a line.
    """
    lines = []
    for n, cost in enumerate(costs):
        own = {key: v[n] if isinstance(v, list) else v for key, v in fields.items()}
        own = {"index": n + 1, "tiles": (1, 1, n + 1), "timestamp": 1e9, **own}
        if isinstance(cost, tuple):
            lines.append(loglines.autotvm(costs=[1e9], error=cost[1], **own))
        else:
            lines.append(loglines.autotvm(costs=[cost * MS], **own))
    path.parent.mkdir(parents=True, exist_ok=True)
    return loglines.write(path, *lines)


def analysed(folder: Path, *logs: Path, **options: Any) -> Analysis:
    ingest(logs, folder / "ds", **options)
    found = analyse(open_dataset(folder / "ds"))
    assert found is not None
    return found


def only_task(found: Analysis) -> TaskAnalysis:
    (task,) = found.tasks.values()
    return task


def curve(n: int, *steps: tuple[int, float]) -> list[float]:
    """Costs of a run of n evaluations whose best so far steps down at the places named."""
    costs, at = [], dict(steps)
    for i in range(1, n + 1):
        costs.append(at.get(i, 50.0 + i / 1000))
    return costs


@pytest.mark.parametrize(
    ("steps", "verdict", "settled", "last", "half", "quarter"),
    [
        ([(2, 10.0), (20, 8.0), (80, 7.95)], "converged", 20, 80, 1 - 7.95 / 8, 1 - 7.95 / 8),
        ([(2, 10.0), (60, 8.0)], "still improving", 60, 60, 0.2, 0.0),
        ([(2, 10.0), (60, 9.0), (90, 7.2)], "still improving", 90, 90, 0.28, 0.2),
    ],
)
def test_convergence_of_a_run(tmp_path, steps, verdict, settled, last, half, quarter):
    found = only_task(analysed(tmp_path, write(tmp_path / "a.log", curve(100, *steps))))
    state = found.convergence
    assert state.verdict == verdict
    assert (state.settled_at, state.last_improvement_at) == (settled, last)
    assert state.since_share == pytest.approx(1 - settled / 100)
    assert state.gain_last_half == pytest.approx(half)
    assert state.gain_last_quarter == pytest.approx(quarter)
    assert state.expected_gain == pytest.approx(half / 2)
    assert found.best_s == pytest.approx(steps[-1][1] * MS)


def test_short_runs_and_late_first_results_have_no_verdict(tmp_path):
    short = analysed(tmp_path / "s", write(tmp_path / "s" / "a.log", curve(63, (1, 5.0))))
    assert only_task(short).convergence.verdict == "too short"
    costs: list[Any] = [("error", 4)] * 60 + [3.0] * 40
    late = only_task(analysed(tmp_path / "l", write(tmp_path / "l" / "a.log", costs)))
    assert late.convergence.verdict == "too short"
    assert late.convergence.expected_gain is None
    nothing = only_task(
        analysed(tmp_path / "n", write(tmp_path / "n" / "a.log", [("error", 4)] * 100))
    )
    assert nothing.best_s is None
    assert nothing.latency_share is None
    assert nothing.convergence.settled_at is None
    assert nothing.convergence.since_share is None
    assert nothing.knobs == ()
    assert verdict_of(64, 1.0, 1.0) == "converged"
    assert verdict_of(64, 1.0, 0.99) == "still improving"


def test_a_space_that_was_measured_as_a_whole_is_converged(tmp_path):
    lines = [
        loglines.autotvm(index=n, tiles=(1, 1, n + 1), costs=[(9 - n) * MS], timestamp=n)
        for n in range(8)
    ]
    found = analysed(tmp_path, loglines.write(tmp_path / "a.log", *lines))
    state = only_task(found).convergence
    assert (state.verdict, state.expected_gain) == ("converged", 0.0)
    assert found.verdicts == {"converged": 1, "still improving": 0, "too short": 0}


def test_the_run_with_the_best_leads_and_others_agree(tmp_path):
    logs = [
        write(tmp_path / "a.log", curve(80, (1, 5.0), (70, 4.0)), timestamp=1.0),
        write(tmp_path / "b.log", curve(90, (3, 4.02)), timestamp=2.0),
        write(tmp_path / "c.log", curve(99, (3, 4.5)), timestamp=3.0),
    ]
    # One candidate a line and the same candidates in all logs: values are medians over them.
    dataset = analysed(tmp_path, *logs)
    state = only_task(dataset).convergence
    assert (state.runs, state.evaluations) == (3, 99)
    apart = [
        write(tmp_path / "2" / "a.log", curve(80, (70, 4.0)), target="llvm -mcpu=a"),
        write(tmp_path / "2" / "b.log", curve(90, (3, 4.02)), target="llvm -mcpu=b"),
    ]
    tasks = analysed(tmp_path / "2", *apart).tasks.values()
    assert sorted(task.convergence.evaluations for task in tasks) == [80, 90]


def test_the_backtest_counts_what_verdicts_at_half_would_have_been(tmp_path):
    def costs(first: float, second: float, third: float) -> list[float]:
        return curve(200, (2, first), (60, second), (150, third))

    tables = {
        "a": costs(10.0, 9.99, 9.98),  # called converged, rightly
        "b": costs(10.0, 9.99, 5.0),  # called converged, wrongly
        "c": costs(10.0, 8.0, 6.0),  # called improving, rightly
        "d": costs(10.0, 8.0, 7.99),  # called improving, wrongly
    }
    logs = [
        write(tmp_path / f"{name}.log", own, target=f"llvm -mcpu={name}")
        for name, own in tables.items()
    ]
    logs.append(write(tmp_path / "e.log", curve(127, (1, 1.0)), target="llvm -mcpu=e"))
    test = analysed(tmp_path, *logs).backtest
    assert (test.runs, test.called_converged, test.gained_after) == (4, 2, 1)
    assert (test.called_improving, test.improved_after) == (2, 1)
    assert test.expected_gain == pytest.approx((0.001 + 0.001 + 0.2 + 0.2) / 2 / 4)
    gains = [1 - 9.98 / 9.99, 1 - 5 / 9.99, 0.25, 1 - 7.99 / 8]
    assert test.gain == pytest.approx(sum(gains) / 4)


def test_failures_and_their_seconds(tmp_path):
    costs: list[Any] = [1.0, ("error", 6), ("error", 6), 2.0, ("error", 4)]
    log = write(tmp_path / "a.log", costs, elapsed=[1.0, 10.0, 20.0, 2.0, 7.0])
    found = analysed(tmp_path, log)
    assert found.seconds == pytest.approx(40.0)
    assert found.timed_share == 1.0
    states = {state.state: state for state in found.states}
    timeouts = states["build_timeout"]
    assert (timeouts.records, timeouts.timed) == (2, 2)
    assert timeouts.seconds == pytest.approx(30.0)
    assert timeouts.seconds_share == pytest.approx(0.75)
    assert timeouts.share == pytest.approx(0.4)
    assert only_task(found).failing_s == pytest.approx(37.0)


def test_seconds_come_from_timestamps_where_they_must_and_stay_unknown_else(tmp_path):
    stamps = [100.0, 103.0, 103.0, 99.0, 104.0, 1000.0]
    log = write(tmp_path / "a.log", [1.0] * 6, elapsed=0, timestamp=stamps)
    found = analysed(tmp_path, log)
    # Gaps of 3 and 5 are believed; none, backwards, a pause, and the first record are not.
    assert found.seconds == pytest.approx(8.0)
    assert found.timed_share == pytest.approx(2 / 6)
    untimed = analysed(
        tmp_path / "u", write(tmp_path / "u.log", [1.0, ("error", 4)], elapsed=0, timestamp=5.0)
    )
    task = only_task(untimed)
    assert untimed.seconds is None
    assert [state.seconds for state in untimed.states] == [None, None]
    assert [state.seconds_share for state in untimed.states] == [None, None]
    assert (task.seconds, task.failing_s, task.time_share) == (None, None, None)


def test_time_between_other_tasks_is_nobodys(tmp_path):
    lines = [
        loglines.autotvm(index=n, target=f"llvm -mcpu={name}", elapsed=0, timestamp=100.0 + n)
        for n, name in enumerate("aabba")
    ]
    found = analysed(tmp_path, loglines.write(tmp_path / "mixed.log", *lines))
    assert sorted(task.seconds for task in found.tasks.values()) == [2.0, 2.0]


def test_noise_within_and_between_records(tmp_path):
    same = {"index": 0, "tiles": (1, 1, 1)}
    lines = [
        loglines.autotvm(costs=[1.0 * MS, 1.2 * MS], timestamp=1, **same),
        loglines.autotvm(costs=[1.3 * MS, 1.3 * MS], timestamp=2, **same),
        loglines.autotvm(costs=[9.0 * MS], timestamp=3, index=1, tiles=(2, 2, 2)),
        loglines.autotvm(costs=[1e9], error=4, timestamp=4, **same),
    ]
    found = analysed(tmp_path, loglines.write(tmp_path / "a.log", *lines))
    first = float(np.std([1.0, 1.2], ddof=1) / 1.1)
    assert found.noise.within.groups == 2
    assert found.noise.within.median == pytest.approx(first / 2, rel=1e-5)
    assert found.noise.within.p90 == pytest.approx(0.9 * first, rel=1e-5)
    between = float(np.std([1.1, 1.3], ddof=1) / 1.2)
    assert found.noise.between.groups == 1
    assert found.noise.between.median == pytest.approx(between, rel=1e-5)
    task = only_task(found)
    assert asdict(task.noise)["within"]["groups"] == 2
    assert task.noise.between.median == pytest.approx(between, rel=1e-5)
    assert task.occasions == 2


def test_noise_is_unknown_without_repeats(tmp_path):
    noise = analysed(tmp_path, write(tmp_path / "a.log", [1.0, 2.0])).noise
    assert asdict(noise) == {
        "within": {"groups": 0, "median": None, "p90": None},
        "between": {"groups": 0, "median": None, "p90": None},
    }


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 6), st.floats(0.0, 3.0))
def test_one_way_is_omega_squared(seed, levels, strength):
    rng = np.random.default_rng(seed)
    codes = np.r_[np.arange(levels), rng.integers(levels, size=80)].astype(np.int64)
    y = strength * rng.standard_normal(levels)[codes] + rng.standard_normal(len(codes))
    found = one_way(codes, levels, y)
    assert found is not None
    f = float(f_oneway(*(y[codes == level] for level in range(levels))).statistic)
    k, n = levels, len(y)
    assert found.effect == pytest.approx(max((k - 1) * (f - 1) / ((k - 1) * (f - 1) + n), 0))
    means = np.array([y[codes == level].mean() for level in range(levels)])
    raw = 1 - math.exp(means.min() - np.median(means))
    # Shrinking never makes more of the best level than was measured.
    assert -1e-12 <= found.gain <= max(raw, 1 - math.exp(means.min() - y.mean())) + 1e-12


def test_chance_explains_nothing():
    rng = np.random.default_rng(0)
    effects = []
    for _ in range(200):
        codes = rng.integers(20, size=100).astype(np.int64)
        codes = np.unique(codes, return_inverse=True)[1].reshape(-1).astype(np.int64)
        found = one_way(codes, int(codes.max()) + 1, rng.standard_normal(100))
        assert found is not None
        effects.append(found.effect)
    # Uncorrected, 19 of 99 degrees of freedom explain a fifth.
    assert np.mean(effects) < 0.05
    assert one_way(np.zeros(9, np.int64), 1, rng.standard_normal(9)) is None
    assert one_way(np.arange(9), 9, rng.standard_normal(9)) is None
    assert one_way(np.arange(9) % 3, 3, np.ones(9)) is None


def test_the_knob_that_matters_is_found(tmp_path):
    lines = []
    for n in range(256):
        y, x, k = 2 ** (n % 4), 2 ** (n // 4 % 8), 2 ** (n // 32)
        cost = math.exp(0.5 * abs(math.log2(x) - 5) + 0.02 * (y == 4) + 1e-3 * (k % 3)) * MS
        lines.append(loglines.autotvm(index=n, tiles=(y, x, k), costs=[cost], timestamp=n))
    found = analysed(tmp_path, loglines.write(tmp_path / "a.log", *lines))
    top, *others = only_task(found).knobs
    assert (top.knob, top.part, top.levels, top.candidates) == ("tile_x", None, 8, 256)
    assert top.effect > 0.99
    assert top.best_level == "· × 32"
    means = [0.5 * abs(i - 5) for i in range(8)]
    assert top.gain == pytest.approx(1 - math.exp(-float(np.median(means))), rel=0.01)
    assert all(other.effect < 0.01 for other in others)
    (row, *rest) = found.knobs
    assert (row.knob, row.tasks, row.top_in) == ("tile_x", 1, 1)
    assert row.workload == "dense_nopack.x86"
    assert all(other.top_in == 0 for other in rest)


def test_decisions_that_few_tasks_can_judge_come_last():
    def effect(knob: str, size: float) -> KnobEffect:
        return KnobEffect(knob, "tile", None, 4, 64, size, "1", size / 2)

    found = sketch_knobs(
        [
            ("t1", "s", [effect("rare", 0.9), effect("often", 0.2)]),
            ("t2", "s", [effect("often", 0.4)]),
            ("t3", "s", [effect("often", 0.3)]),
            ("t1", "", [effect("sketch", 0.5)]),
        ],
        {f"t{n}": Task(f"t{n}", "ansor", f"w{n // 2}", [], "llvm", "llvm") for n in (1, 2, 3)},
    )
    assert [(row.knob, row.tasks, row.top_in) for row in found] == [("often", 3, 2), ("rare", 1, 1)]
    assert (found[0].effect, found[0].gain, found[0].workload) == (0.3, 0.15, "w1")


def test_a_tile_of_too_many_values_is_judged_by_its_strongest_factor(tmp_path):
    lines = []
    for n in range(64):
        inner, middle = 2 ** (n % 4), 2 ** (n // 4 % 8)
        entity = ["tile_f", "sp", [-1, n // 32 + 1, middle, inner]]
        cost = math.exp(abs(math.log2(inner) - 2)) * MS
        lines.append(
            loglines.autotvm(
                index=n, tiles=(1, 1, 1), costs=[cost], timestamp=n, extra=[list(entity)]
            )
        )
    found = analysed(tmp_path, loglines.write(tmp_path / "a.log", *lines))
    (top,) = (effect for effect in only_task(found).knobs if effect.knob == "tile_f")
    assert (top.part, top.levels, top.best_level) == (3, 4, "4")
    assert top.effect > 0.99


def two_tuners(folder: Path) -> list[Path]:
    """Two tuners on two tasks: ``quick`` finds 2 ms early, ``slow`` ends at 2.16 ms."""
    logs = []
    for task in "ab":
        target = f"llvm -mcpu={task}"
        paths = {name: folder / name / f"{task}.log" for name in ("quick", "slow")}
        logs.append(
            write(
                paths["quick"], [9.0, 2.18, 2.0, 5.0], elapsed=[1.0, 2.0, 3.0, 4.0], target=target
            )
        )
        tiles = [(2, 2, n + 1) for n in range(4)]
        costs: list[Any] = [("error", 4), 8.0, 7.0, 2.16]
        logs.append(write(paths["slow"], costs, elapsed=10.0, target=target, tiles=tiles))
    return logs


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


def test_weights_and_shares(tmp_path):
    for layer, cost in (("1", 1.0), ("2", 1.0)):
        path = tmp_path / "net" / "xgb" / f"{layer}.log"
        write(path, [cost, 5.0], target="llvm -mcpu=a", timestamp=float(layer), elapsed=1.0)
    write(tmp_path / "net" / "xgb" / "3.log", [6.0, 7.0], target="llvm -mcpu=b", elapsed=3.0)
    write(tmp_path / "net" / "ga" / "3.log", [6.5, 7.5], target="llvm -mcpu=b", elapsed=0.5)
    plain = analysed(tmp_path / "plain", tmp_path / "net")
    assert {task.weight for task in plain.tasks.values()} == {None}
    weighed = analysed(
        tmp_path / "weighed", tmp_path / "net", path_rule=r"(?P<network>net)/(?P<tuner>[a-z]+)/"
    )
    by_weight = {task.weight: task for task in weighed.tasks.values()}
    assert by_weight[2.0].latency_share == pytest.approx(2 / (2 + 6.25))
    assert by_weight[1.0].latency_share == pytest.approx(6.25 / (2 + 6.25))
    assert by_weight[2.0].time_share == pytest.approx(4 / 11)
    shares = sorted(task.latency_share for task in plain.tasks.values())
    assert shares == pytest.approx([1 / 7.25, 6.25 / 7.25])


def test_batches_of_tasks_change_nothing(tmp_path, monkeypatch):
    whole = analysed(tmp_path, *two_tuners(tmp_path))
    monkeypatch.setattr(
        Dataset, "task_batches", lambda self, records: ([task_id] for task_id in self.tasks())
    )
    dataset = open_dataset(tmp_path / "ds")
    parts = analyse(dataset)
    assert parts == whole


def test_describe_holds_the_analysis(tmp_path):
    ingest(two_tuners(tmp_path), tmp_path / "ds")
    found = describe(open_dataset(tmp_path / "ds"))
    assert found["measuring_s"] == pytest.approx(100.0)
    assert [entry["state"] for entry in found["failures"]] == ["runtime"]
    assert found["verdicts"] == {"converged": 0, "still improving": 0, "too short": 2}
    assert {task["convergence"]["verdict"] for task in found["tasks"]} == {"too short"}
    assert found["tuners"]["by"] == "folder 1 above the file"


def test_an_empty_dataset_is_described(tmp_path):
    ingest([loglines.write(tmp_path / "a.log", loglines.autotvm())], tmp_path / "ds")
    (tmp_path / "b.log").write_bytes(b"")
    dataset = open_dataset(tmp_path / "ds")
    dataset.manifest.records.clear()
    found = describe(dataset)
    assert found["measuring_s"] is None
    assert found["tuners"] is None
    assert found["tasks"] == []


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
