"""How repeats scatter, and what measurements of each state cost."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from toolkit.datasets.analysis.frames import CANDIDATE
from toolkit.datasets.analysis.result import Noise, Spread, StateTime


def spreads(frame: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Relative spreads (task_id, spread): one row a record with repeats, one a candidate with
    several good records."""
    good = frame.filter("ok")
    times = pl.col("run_times_s")
    within = good.filter(times.list.len() > 1).select(
        "task_id", spread=(times.list.std() / times.list.mean()).cast(pl.Float32)
    )
    latency = pl.col("latency_s")
    between = (
        good.group_by(CANDIDATE, maintain_order=True)
        .agg(n=pl.len(), spread=(latency.std() / latency.mean()).cast(pl.Float32))
        .filter(pl.col("n") > 1)
        .select("task_id", "spread")
    )
    return within, between


def noise_by_task(within: pl.DataFrame, between: pl.DataFrame) -> dict[str, Noise]:
    """Median and 90th percentile of each task's spreads."""
    found: dict[str, dict[str, Spread]] = {}
    for name, rows in (("within", within), ("between", between)):
        for row in _quantiles(rows.group_by("task_id")).iter_rows(named=True):
            found.setdefault(row["task_id"], {})[name] = _spread(row)
    return {
        task_id: Noise(own.get("within", UNKNOWN), own.get("between", UNKNOWN))
        for task_id, own in found.items()
    }


def noise_of(within: Sequence[pl.Series], between: Sequence[pl.Series]) -> Noise:
    """Sum up over all tasks, from the spreads of all batches."""

    def sum_up(parts: Sequence[pl.Series]) -> Spread:
        values = pl.concat(parts).to_numpy() if parts else np.empty(0)
        if not len(values):
            return UNKNOWN
        median, p90 = np.quantile(values, (0.5, 0.9))
        return Spread(len(values), float(median), float(p90))

    return Noise(sum_up(within), sum_up(between))


UNKNOWN = Spread(0, None, None)


def _quantiles(groups: object) -> pl.DataFrame:
    spread = pl.col("spread")
    return groups.agg(  # type: ignore[attr-defined,no-any-return]
        groups=pl.len(), median=spread.median(), p90=spread.quantile(0.9, "linear")
    )


def _spread(row: dict[str, float]) -> Spread:
    return Spread(int(row["groups"]), row["median"], row["p90"])


def count_states(frame: pl.DataFrame) -> pl.DataFrame:
    """Records, records with a time, and their seconds, by task and state."""
    return frame.group_by("task_id", "state").agg(
        records=pl.len().cast(pl.Int64),
        timed=pl.col("seconds").count().cast(pl.Int64),
        seconds=pl.col("seconds").sum(),
    )


def state_times(counts: pl.DataFrame) -> tuple[StateTime, ...]:
    """Sum up ``count_states`` over tasks, most records first."""
    rows = (
        counts.group_by("state")
        .agg(pl.col("records", "timed", "seconds").sum())
        .sort(["records", "state"], descending=[True, False])
    )
    records, seconds = int(rows["records"].sum()), float(rows["seconds"].sum())
    return tuple(
        StateTime(
            state=row["state"],
            records=row["records"],
            share=row["records"] / records,
            timed=row["timed"],
            seconds=row["seconds"] if row["timed"] else None,
            seconds_share=row["seconds"] / seconds if row["timed"] and seconds else None,
        )
        for row in rows.iter_rows(named=True)
    )
