"""Metrics of single runs, on sequences worked out by hand."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
import toy_tables
from toy_tables import SKETCH, records, row, toy_task

from toolkit.replay import RecordedTable
from toolkit.replay.record.table import CostModel, elapsed_seconds
from toolkit.replay.statistics.metrics import (
    Replayed,
    area_under_curve,
    improvements,
    relative_at,
    run_metrics,
    time_ratio,
)

# Four candidates: 4, 2, 1.005 and 1 ms; a fifth that fails.
LATENCIES = (4e-3, 2e-3, 1.005e-3, 1e-3, None)


def table() -> RecordedTable:
    task = toy_task()
    rows = [
        row(task, (0, 2**i, 0, 1, 0), seconds, i, elapsed_s=float(i + 1))
        for i, seconds in enumerate(LATENCIES)
    ]
    return RecordedTable.from_records(records(rows), task, {"s0": SKETCH})


def replayed(order: list[int], budget: int = 5) -> Replayed:
    seconds = np.cumsum([i + 1.0 for i in order]).tolist()
    return toy_tables.replayed(table(), order, seconds, proposals=len(order), budget=budget)


def test_evaluations_and_seconds_to_within_a_share_of_the_best() -> None:
    metrics = run_metrics(table(), replayed([4, 0, 1, 2, 3]))
    assert metrics["evaluations_to_1pct"] == 4  # 1.005 is within 1 % of 1
    assert metrics["seconds_to_1pct"] == 5 + 1 + 2 + 3
    assert metrics["failures"] == 1
    assert metrics["best_s"] == 1e-3


def test_a_run_that_does_not_get_there_is_censored() -> None:
    metrics = run_metrics(table(), replayed([0, 1]))
    assert metrics["evaluations_to_1pct"] is None
    assert metrics["seconds_to_10pct"] is None
    assert metrics["best_s"] == 2e-3


def test_area_under_the_curve_counts_the_whole_budget() -> None:
    # failure, 1/4, 1/2 and then, for two evaluations that were not used, still 1/2
    run = replayed([4, 0, 1])
    assert area_under_curve(run, 1e-3) == pytest.approx((0 + 0.25 + 0.5 + 0.5 + 0.5) / 5)


def test_curves_are_steps() -> None:
    run = replayed([4, 0, 1, 3])
    assert relative_at(run, 1e-3, "evaluations", [1, 2, 3, 4, 100]) == [0.0, 0.25, 0.5, 1.0, 1.0]
    assert relative_at(run, 1e-3, "seconds", [4.9, 5, 6, 7.9, 8, 12]) == [
        0.0,
        0.0,
        0.25,
        0.25,
        0.5,
        1.0,
    ]


def steps(order: list[int]) -> dict[str, list[float]]:
    seconds, values = improvements(replayed(order), "seconds")
    return {"seconds": seconds.tolist(), "values": values.tolist()}


def test_the_time_ratio_is_to_the_baseline_s_best() -> None:
    base, fast = steps([0, 1]), steps([3])
    assert base["seconds"] == [1.0, 3.0]
    assert time_ratio(fast, base) == pytest.approx(4.0 / 3.0)
    assert time_ratio(base, fast) == np.inf
    assert time_ratio(base, steps([4])) == np.inf


def frame(**columns: list[float | None]) -> pl.DataFrame:
    n = len(next(iter(columns.values())))
    default = {"source_id": ["a"] * n, "timestamp": [None] * n, "latency_s": [1e-3] * n}
    default |= {"order": list(range(n))}
    return pl.DataFrame(
        default | {"elapsed_s": [None] * n} | columns,
        schema_overrides=dict.fromkeys(("timestamp", "latency_s", "elapsed_s"), pl.Float64),
    )


def test_recorded_seconds_come_first_then_timestamps_then_the_stated_cost() -> None:
    cost = CostModel(build_s=2.0, repeats=3, minimal_run_s=0.1, failed_s=0.5)
    seconds, sources = elapsed_seconds(
        frame(
            elapsed_s=[7.0, None, None, None, None, 0.0],
            timestamp=[100.0, 103.0, 103.0, 90.0, 500.0, None],
            latency_s=[1e-3, 1e-3, 1.0, None, 1e-3, 1e-3],
        ),
        cost,
    )
    # recorded; gap; same time as before; backwards and failed; a pause; zero is no time
    assert seconds.tolist() == pytest.approx([7.0, 3.0, 5.0, 0.5, 2.3, 2.3])
    assert sources == {"recorded": 1, "timestamps": 1, "cost_model": 4}


def test_gaps_over_records_of_other_tasks_are_not_believed() -> None:
    apart = frame(timestamp=[1.0, 2.0, 4.0]).with_columns(order=pl.Series([0, 1, 3]))
    assert elapsed_seconds(apart, CostModel())[1]["timestamps"] == 1


def test_timestamps_of_different_sources_are_not_compared() -> None:
    one = frame(timestamp=[1.0, 2.0]).with_columns(source_id=pl.Series(["a", "b"]))
    assert elapsed_seconds(one, CostModel())[1]["timestamps"] == 0
