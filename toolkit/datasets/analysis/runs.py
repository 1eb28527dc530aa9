"""Records prepared for the analysis, one row per run, and the convergence of runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields

import polars as pl

from toolkit.datasets.analysis.result import NEAR, Backtest, Convergence, Verdict

SHORTEST = 64
"""A run with fewer evaluations is not judged: one batch of TVM's tuners."""

SMALL_GAIN = 0.01
NEXT_DOUBLING = 0.5
"""Share of the last doubling's gain that the next one is expected to bring."""

LONGEST_GAP_S = 60.0
"""A longer gap between timestamps is a pause, not a measurement."""

WHOSE = ["task_id", "source_id", "order", "candidate_id", "sketch_id"]
MEASURED = ["state", "latency_s", "elapsed_s", "timestamp", "run_times_s"]
RUN = ["task_id", "source_id"]
CANDIDATE = ["task_id", "candidate_id"]


def timed_seconds() -> pl.Expr:
    """Recorded elapsed seconds of each record; null if there are none (0 counts as none)."""
    return pl.when(pl.col("elapsed_s") > 0).then("elapsed_s")


def dated_seconds(longest_gap_s: float = LONGEST_GAP_S) -> pl.Expr:
    """Seconds between a record's timestamp and that of the record before it in its source.

    Rows must be in the order of their source. Null if a record of another task is between the two
    (the gap includes its time), or if the gap is not in (0, ``longest_gap_s``]: timestamps of real
    logs run backwards, or are the same within a batch.
    """
    gap = pl.col("timestamp").diff().over("source_id")
    next_to_it = pl.col("order").diff().over("source_id") == 1
    return pl.when(next_to_it & (gap > 0) & (gap <= longest_gap_s)).then(gap)


def prepare(records: pl.DataFrame) -> pl.DataFrame:
    """Add derived columns to the records of whole tasks (columns ``WHOSE`` and ``MEASURED``).

    New columns: ``ok``; ``seconds`` (recorded, else the gap between timestamps, else null);
    ``value`` (of the candidate: median over its good measurements; null if this one failed); ``n``
    (number of the evaluation in the run, from 1); ``length`` of the run; ``so_far`` (lowest value
    up to here) and ``clock`` (seconds up to here, null once a measurement has no time).
    """
    frame = (
        records.sort("source_id", "order")
        .with_columns(
            ok=pl.col("state") == "ok",
            seconds=pl.coalesce(timed_seconds(), dated_seconds()),
        )
        .sort("task_id", "source_id", "order")
    )
    values = frame.filter("ok").group_by(CANDIDATE).agg(value=pl.col("latency_s").median())
    frame = frame.join(values, on=CANDIDATE, how="left", maintain_order="left").with_columns(
        value=pl.when("ok").then("value"),
        n=pl.int_range(1, pl.len() + 1).over(RUN),
        length=pl.len().over(RUN),
    )
    # A run's first measurement has no earlier timestamp: without a time it counts as 0 s.
    known = pl.when(pl.col("n") == 1).then(pl.col("seconds").fill_null(0.0)).otherwise("seconds")
    unknown = known.is_null().cum_sum().over(RUN)
    return frame.with_columns(
        so_far=pl.col("value").cum_min().forward_fill().over(RUN),
        clock=pl.when(unknown == 0).then(known.fill_null(0.0).cum_sum().over(RUN)),
    )


def runs_frame(frame: pl.DataFrame) -> pl.DataFrame:
    """One row per run: task_id, source_id, and the columns for convergence and tuners.

    ``evaluations``, ``failed``; ``best`` (final) and ``task_best``; ``quarter``,
    ``half``, ``three_quarters`` (best so far there); ``last_improvement_at``, ``settled_at``;
    ``evaluations_to_<p>pct`` and ``seconds_to_<p>pct``. Null: not reached, or unknown.
    """
    frame = frame.with_columns(
        task_best=pl.col("so_far").min().over("task_id"),
        final=pl.col("so_far").last().over(RUN),
        improved=pl.col("so_far") < pl.col("so_far").shift(1).over(RUN).fill_null(float("inf")),
    )

    def at(parts: int, of: int) -> pl.Expr:
        return pl.col("so_far").filter(pl.col("n") <= pl.col("length") * parts // of).last()

    near = {}
    for percent in NEAR:
        there = pl.col("so_far") <= pl.col("task_best") * (1 + percent / 100)
        near[f"evaluations_to_{percent}pct"] = pl.col("n").filter(there).first()
        near[f"seconds_to_{percent}pct"] = pl.col("clock").filter(there).first()
    return frame.group_by(RUN, maintain_order=True).agg(
        evaluations=pl.len().cast(pl.Int64),
        failed=(~pl.col("ok")).sum().cast(pl.Int64),
        best=pl.col("final").first(),
        task_best=pl.col("task_best").first(),
        quarter=at(1, 4),
        half=at(1, 2),
        three_quarters=at(3, 4),
        last_improvement_at=pl.col("n").filter("improved").last(),
        settled_at=pl.col("n").filter(pl.col("so_far") <= pl.col("final") * 1.01).first(),
        **near,
    )


def convergence_of(runs: pl.DataFrame, enumerated: Mapping[str, bool]) -> dict[str, Convergence]:
    """Judge every task by its leading run; ``runs`` is from ``runs_frame``."""
    leading = runs.sort(
        ["task_id", "best", "evaluations", "source_id"],
        descending=[False, False, True, False],
        nulls_last=True,
    ).unique("task_id", keep="first", maintain_order=True)
    agreeing = (pl.col("best") <= pl.col("task_best") * (1 + SMALL_GAIN)).sum()
    counts = runs.group_by("task_id").agg(runs=pl.len(), agreeing_runs=agreeing)
    rows = leading.join(counts, on="task_id", how="left", maintain_order="left").with_columns(
        since_share=1.0 - pl.col("settled_at") / pl.col("evaluations"),
        gain_last_quarter=1.0 - pl.col("best") / pl.col("three_quarters"),
        gain_last_half=1.0 - pl.col("best") / pl.col("half"),
    )
    found = {}
    for row in rows.iter_rows(named=True):
        gain = row["gain_last_half"]
        row["verdict"] = verdict_of(row["evaluations"], gain)
        row["expected_gain"] = None if gain is None else NEXT_DOUBLING * gain
        if enumerated.get(row["task_id"], False) and row["best"] is not None:
            row["verdict"], row["expected_gain"] = "converged", 0.0
        found[row["task_id"]] = Convergence(**{f.name: row[f.name] for f in fields(Convergence)})
    return found


def verdict_of(evaluations: int, gain: float | None) -> Verdict:
    """Judge a run by the gain of its second half; ``None``: no good record in the first half."""
    if evaluations < SHORTEST or gain is None:
        return "too short"
    return "converged" if gain < SMALL_GAIN else "still improving"


def backtest(runs: pl.DataFrame) -> Backtest:
    """Judge every run of sufficient length at half its length, and compare with its second half."""
    long = runs.filter(pl.col("evaluations") >= 2 * SHORTEST).drop_nulls(["quarter", "half"])
    called = {"converged": 0, "still improving": 0}
    gained = dict(called)
    expected, came = 0.0, 0.0
    columns = long.select("evaluations", "quarter", "half", "best")
    for evaluations, quarter, half, best in columns.iter_rows():
        before, after = 1.0 - half / quarter, 1.0 - best / half
        verdict = verdict_of(evaluations // 2, before)
        called[verdict] += 1
        gained[verdict] += after >= SMALL_GAIN
        expected += NEXT_DOUBLING * before
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
