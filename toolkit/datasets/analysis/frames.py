"""Records as the analysis needs them: values, seconds, best so far; and one row a run."""

from __future__ import annotations

import polars as pl

from toolkit.datasets.analysis.result import NEAR
from toolkit.datasets.read.seconds import dated_seconds, timed_seconds

COLUMNS = [
    "task_id",
    "source_id",
    "order",
    "candidate_id",
    "sketch_id",
    "state",
    "latency_s",
    "elapsed_s",
    "timestamp",
    "run_times_s",
]

TASK = ["task_id"]
RUN = ["task_id", "source_id"]
CANDIDATE = ["task_id", "candidate_id"]


def prepare(records: pl.DataFrame) -> pl.DataFrame:
    """Add what is derived of each record; whole tasks, any order.

    Further columns: ``ok``; ``seconds`` (recorded, else the gap between timestamps, else null);
    ``value`` (of the candidate: median over its good measurements; null where this one failed);
    ``n`` (evaluation of the run, from 1); ``length`` of the run; ``so_far`` (lowest value up to
    here) and ``clock`` (seconds up to here, null once a measurement has no time).
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
    # A run's first measurement has no timestamp before it: its time counts as none.
    known = pl.when(pl.col("n") == 1).then(pl.col("seconds").fill_null(0.0)).otherwise("seconds")
    unknown = known.is_null().cum_sum().over(RUN)
    return frame.with_columns(
        so_far=pl.col("value").cum_min().forward_fill().over(RUN),
        clock=pl.when(unknown == 0).then(known.fill_null(0.0).cum_sum().over(RUN)),
    )


def runs_frame(frame: pl.DataFrame) -> pl.DataFrame:
    """One row a run: task_id, source_id, and what convergence and tuners are read from.

    ``evaluations``, ``failed``; ``best`` (final) and ``task_best``; ``quarter``,
    ``half``, ``three_quarters`` (best so far there); ``last_improvement_at``, ``settled_at``;
    ``evaluations_to_<p>pct`` and ``seconds_to_<p>pct``. Null: not reached, or unknown.
    """
    frame = frame.with_columns(
        task_best=pl.col("so_far").min().over(TASK),
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
