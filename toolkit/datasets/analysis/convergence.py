"""How far tasks are from converged, and how far such a verdict can be trusted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from toolkit.datasets.analysis.result import Backtest, Convergence, Verdict

SHORTEST = 64
"""Evaluations below which nothing is said of a run: one batch of TVM's tuners."""

SMALL_GAIN = 0.01
NEXT_DOUBLING = 0.5
"""Share of the last doubling's gain that the next one is expected to bring."""


def convergence_of(runs: pl.DataFrame, enumerated: Mapping[str, bool]) -> dict[str, Convergence]:
    """Judge every task by its leading run (``runs_frame``)."""
    leading = runs.sort(
        ["task_id", "best", "evaluations", "source_id"],
        descending=[False, False, True, False],
        nulls_last=True,
    ).unique("task_id", keep="first", maintain_order=True)
    agreeing = (pl.col("best") <= pl.col("task_best") * (1 + SMALL_GAIN)).sum()
    counts = runs.group_by("task_id").agg(runs=pl.len(), agreeing=agreeing)
    rows = leading.join(counts, on="task_id", how="left", maintain_order="left")
    return {
        row["task_id"]: _judge(row, enumerated.get(row["task_id"], False))
        for row in rows.iter_rows(named=True)
    }


def verdict_of(evaluations: int, before: float | None, after: float | None) -> Verdict:
    """Judge a run from its best so far at half its length and at its end."""
    gain = gain_of(before, after)
    if evaluations < SHORTEST or gain is None:
        return "too short"
    return "converged" if gain < SMALL_GAIN else "still improving"


def gain_of(before: float | None, after: float | None) -> float | None:
    """Share of latency that was saved; unknown where nothing had run before."""
    return None if before is None or after is None else 1.0 - after / before


def _judge(row: Mapping[str, Any], enumerated: bool) -> Convergence:
    half = gain_of(row["half"], row["best"])
    verdict = verdict_of(row["evaluations"], row["half"], row["best"])
    expected = None if half is None else NEXT_DOUBLING * half
    if enumerated and row["best"] is not None:
        verdict, expected = "converged", 0.0
    settled = row["settled_at"]
    return Convergence(
        verdict=verdict,
        source_id=row["source_id"],
        evaluations=row["evaluations"],
        runs=row["runs"],
        agreeing_runs=row["agreeing"],
        last_improvement_at=row["last_improvement_at"],
        settled_at=settled,
        since_share=None if settled is None else 1.0 - settled / row["evaluations"],
        gain_last_quarter=gain_of(row["three_quarters"], row["best"]),
        gain_last_half=half,
        expected_gain=expected,
    )


def backtest(runs: pl.DataFrame) -> Backtest:
    """Judge every long enough run at half its length, and compare with what came after."""
    long = runs.filter(pl.col("evaluations") >= 2 * SHORTEST).drop_nulls(["quarter", "half"])
    called = {"converged": 0, "still improving": 0}
    gained = {"converged": 0, "still improving": 0}
    expected, came = 0.0, 0.0
    for row in long.select("evaluations", "quarter", "half", "best").iter_rows(named=True):
        verdict = verdict_of(row["evaluations"] // 2, row["quarter"], row["half"])
        after = gain_of(row["half"], row["best"])
        assert after is not None
        called[verdict] += 1
        gained[verdict] += after >= SMALL_GAIN
        expected += NEXT_DOUBLING * (1.0 - row["half"] / row["quarter"])
        came += after
    return Backtest(
        runs=len(long),
        called_converged=called["converged"],
        gained_after=gained["converged"],
        called_improving=called["still improving"],
        improved_after=gained["still improving"],
        expected_gain=expected / len(long) if len(long) else None,
        gain=came / len(long) if len(long) else None,
    )
