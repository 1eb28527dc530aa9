"""What is said of a log first: each figure against what its definition gives by hand."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import loglines
import numpy as np
import pytest
from analysed_logs import MS, analysed, curve, only_task, two_tuners, write

from toolkit.datasets import Dataset, describe, ingest, open_dataset
from toolkit.datasets.analysis import analyse
from toolkit.datasets.analysis.runs import verdict_of


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
    assert verdict_of(64, 0.0) == "converged"
    assert verdict_of(64, 0.011) == "still improving"


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
    path = loglines.write(tmp_path / "a.log", {"input": 5, "config": 5})
    ingest(path, tmp_path / "ds")
    found = describe(open_dataset(tmp_path / "ds"))
    assert found["measuring_s"] is None
    assert found["tuners"] is None
    assert found["tasks"] == []
