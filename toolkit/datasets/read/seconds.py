"""How long a measurement took, if the log says it."""

from __future__ import annotations

import polars as pl

LONGEST_GAP_S = 60.0
"""A longer gap between timestamps is a pause, not a measurement."""


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
