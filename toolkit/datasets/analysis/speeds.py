"""Slowdowns of runs, from candidates that several runs of one task measured."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import polars as pl

from toolkit import show
from toolkit.datasets.analysis.result import Speeds
from toolkit.datasets.analysis.runs import CANDIDATE, RUN

SHARED = 8
"""Least number of candidates that a run must share with other runs of its task."""
APART = 1.05
ERRORS = 4.0
"""A run counts as slower from a slowdown of ``APART`` on, beyond ``ERRORS`` standard errors."""
ROUNDS = 50


def slowdowns(good: pl.DataFrame) -> pl.DataFrame:
    """Return the slowdown of each run that shares candidates with other runs of its task.

    Median polish (Tukey 1977, "Exploratory Data Analysis", chapter 11) splits log latencies into a
    part of the candidate and a part of the run.

    Parameters
    ----------
    good
        Good records with ``RUN``, ``candidate_id`` and ``latency_s``.

    Returns
    -------
    One row per run: ``RUN``; ``slowdown``, the run's part over that of the fastest run linked to it
    by shared candidates (at least 1); ``apart``, whether it is slower by 5 % and by four standard
    errors.
    """
    log = pl.col("latency_s").log().median()
    rows = good.group_by(*RUN, "candidate_id", maintain_order=True).agg(log=log)
    several, enough = pl.len().over(CANDIDATE) > 1, pl.len().over(RUN) >= SHARED
    # Without a removed run, the remaining runs may share too few candidates: repeat.
    while (kept := rows.filter(several).filter(enough)).height < rows.height:
        rows = kept
    rows = rows.with_columns(
        part=pl.lit(0.0), common=pl.lit(0.0), group=pl.col("source_id").rank("dense")
    )
    for _ in range(ROUNDS):
        before = rows
        rows = rows.with_columns(
            common=(pl.col("log") - pl.col("part")).median().over(CANDIDATE),
            group=pl.col("group").min().over(CANDIDATE),
        ).with_columns(
            part=(pl.col("log") - pl.col("common")).median().over(RUN),
            group=pl.col("group").min().over(RUN),
        )
        moved = float((rows["part"] - before["part"]).abs().max() or 0.0)
        if moved < 1e-4 and rows["group"].equals(before["group"]):
            break
    # Standard error of the median of normal values, with their spread from the median residual.
    # The residuals of k readings of a candidate have (k - 1) / k of the variance.
    k = pl.len().over(CANDIDATE).cast(pl.Float64)
    rest = (pl.col("log") - pl.col("common") - pl.col("part")).abs() * (k / (k - 1.0)).sqrt()
    error = 1.4826 * math.sqrt(math.pi / 2) * pl.col("rest").median() / pl.len().sqrt()
    part, linked = pl.col("part"), ["task_id", "group"]
    slowdown = pl.col("slowdown")
    # A slowdown is a difference of two parts: the fastest run's error counts as well.
    fastest = pl.col("error").sort_by("part").first().over(linked)
    errors = (pl.col("error") ** 2 + fastest**2).sqrt()
    return (
        rows.with_columns(rest=rest)
        .group_by(*RUN, "group", maintain_order=True)
        .agg(part.first(), error=error)
        .with_columns(slowdown=(part - part.min().over(linked)).exp(), errors=errors)
        .with_columns(apart=(slowdown >= APART) & (slowdown.log() > ERRORS * pl.col("errors")))
        .select(*RUN, "slowdown", "apart")
    )


def corrected(records: pl.DataFrame, found: pl.DataFrame) -> pl.DataFrame:
    """Return records with latencies divided by their run's slowdown, if it is known."""
    by = pl.col("slowdown").fill_null(1.0)
    return (
        records.join(found.select(*RUN, "slowdown"), on=RUN, how="left", maintain_order="left")
        .with_columns(pl.col("latency_s") / by)
        .drop("slowdown")
    )


def speeds_of(found: pl.DataFrame, *, corrected: bool) -> Speeds | None:
    """Summarise the ``slowdowns`` of all tasks; ``None`` if no runs share candidates."""
    if found.is_empty():
        return None
    slow = found.filter("apart")
    return Speeds(
        runs=len(found),
        slower=len(slow),
        tasks=found["task_id"].n_unique(),
        slower_tasks=slow["task_id"].n_unique(),
        slowdown=None if slow.is_empty() else float(slow["slowdown"].median()),  # type: ignore[arg-type]
        corrected=corrected,
    )


def told_speeds(speeds: Mapping[str, Any]) -> str | None:
    """Return a sentence on slower runs; ``None`` if no run is slower."""
    if not speeds["slower"]:
        return None
    return (
        f"{speeds['slower']:,} of {show.plural(speeds['runs'], 'run')} with shared candidates read "
        f"them slower than another run of the same task did, {show.ratio(speeds['slowdown'])} "
        f"times in the median ({speeds['slower_tasks']:,} of {show.plural(speeds['tasks'], 'task')}"
        "), as if their machine had more than one speed."
    )
