"""How long a measurement took, as far as the log says it."""

from __future__ import annotations

import polars as pl

LONGEST_GAP_S = 60.0
"""A longer gap between timestamps is a pause, not a measurement."""


def timed_seconds() -> pl.Expr:
    """Recorded elapsed seconds of each record; null where there are none (0 is none)."""
    return pl.when(pl.col("elapsed_s") > 0).then("elapsed_s")


def dated_seconds(longest_gap_s: float = LONGEST_GAP_S) -> pl.Expr:
    """Seconds between a record's timestamp and that of the record before it in its source.

    Rows must be in the order of their source. Null where a record of another task stands between
    the two (its time is not this one's), and where the gap is not in (0, ``longest_gap_s``]:
    timestamps of real logs run backwards, and share a value within a batch.
    """
    gap = pl.col("timestamp").diff().over("source_id")
    next_to_it = pl.col("order").diff().over("source_id") == 1
    return pl.when(next_to_it & (gap > 0) & (gap <= longest_gap_s)).then(gap)
