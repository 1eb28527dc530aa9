"""Analyse a dataset, some tasks at a time, so that a batch's records bound the memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
import polars as pl

from toolkit.datasets.analysis.knobs import sketch_knobs, strongest, task_effects
from toolkit.datasets.analysis.result import (
    Analysis,
    KnobEffect,
    Noise,
    Spread,
    StateTime,
    TaskAnalysis,
)
from toolkit.datasets.analysis.runs import (
    CANDIDATE,
    MEASURED,
    WHOSE,
    backtest,
    convergence_of,
    prepare,
    runs_frame,
)
from toolkit.datasets.analysis.speeds import corrected, slowdowns, speeds_of
from toolkit.datasets.analysis.tuners import compare_tuners, task_weights
from toolkit.datasets.read.open import Dataset

BATCH = 150_000
"""Records read at a time, unless a single task has more."""

UNKNOWN = Spread(0, None, None)


class _Batch(NamedTuple):
    """Intermediate results of some tasks."""

    runs: pl.DataFrame
    speeds: pl.DataFrame
    states: pl.DataFrame
    values: pl.DataFrame
    within: pl.Series
    between: pl.Series
    noise: dict[str, Noise]
    effects: list[tuple[str, str, list[KnobEffect]]]


def analyse(
    dataset: Dataset, enumerated: Mapping[str, bool] | None = None, *, correct_speed: bool = False
) -> Analysis | None:
    """Return the analysis of a dataset; ``None`` if it holds no record.

    Parameters
    ----------
    enumerated
        Whether each task's whole space was recorded (``Dataset.enumerated``; computed if not
        given).
    correct_speed
        Whether to divide latencies by their run's slowdown first (``Speeds``).
    """
    batches = [_read(dataset, ids, correct_speed) for ids in dataset.task_batches(records=BATCH)]
    if not any(len(batch.runs) for batch in batches):
        return None
    runs = pl.concat(batch.runs for batch in batches)
    speeds = pl.concat(batch.speeds for batch in batches)
    counts = pl.concat(batch.states for batch in batches)
    values = pl.concat(batch.values for batch in batches)
    noise = dict(chain.from_iterable(batch.noise.items() for batch in batches))
    effects = list(chain.from_iterable(batch.effects for batch in batches))
    by_task: dict[str, dict[str, list[KnobEffect]]] = {}
    for task_id, sketch_id, own in effects:
        by_task.setdefault(task_id, {})[sketch_id] = own
    convergence = convergence_of(runs, dataset.enumerated() if enumerated is None else enumerated)
    verdicts = [found.verdict for found in convergence.values()]
    tasks = {}
    for row in _task_rows(counts, values, task_weights(dataset, runs)).iter_rows(named=True):
        task_id, share = row["task_id"], row["latency_share"]
        gain = convergence[task_id].expected_gain
        tasks[task_id] = TaskAnalysis(
            **row,
            gain_to_expect=None if share is None or gain is None else share * gain,
            convergence=convergence[task_id],
            noise=noise.get(task_id, Noise(UNKNOWN, UNKNOWN)),
            knobs=strongest(by_task.get(task_id, {})),
        )
    timed = int(counts["timed"].sum())
    return Analysis(
        tasks=tasks,
        verdicts={
            word: verdicts.count(word) for word in ("converged", "still improving", "too short")
        },
        backtest=backtest(runs),
        states=_state_times(counts),
        seconds=float(counts["seconds"].sum()) if timed else None,
        timed_share=timed / int(counts["records"].sum()),
        noise=Noise(
            _spread_of([batch.within for batch in batches]),
            _spread_of([batch.between for batch in batches]),
        ),
        speeds=speeds_of(speeds, corrected=correct_speed),
        knobs=sketch_knobs(effects, dataset.tasks()),
        tuners=compare_tuners(dataset, runs, speeds),
    )


def _read(dataset: Dataset, task_ids: list[str], correct_speed: bool) -> _Batch:
    lazy = dataset.records([*WHOSE, *MEASURED, "decisions"])
    records = lazy.filter(pl.col("task_id").is_in(task_ids)).collect()
    speeds = slowdowns(records.filter(pl.col("state") == "ok"))
    if correct_speed:
        records = corrected(records, speeds)
    frame = prepare(records)
    good = frame.filter("ok")
    candidates = good.group_by(CANDIDATE, maintain_order=True).agg(
        pl.col("sketch_id", "decisions", "value").first(), occasions=pl.len().cast(pl.Int64)
    )
    states = frame.group_by("task_id", "state").agg(
        records=pl.len().cast(pl.Int64),
        timed=pl.col("seconds").count().cast(pl.Int64),
        seconds=pl.col("seconds").sum(),
    )
    values = candidates.group_by("task_id").agg(
        best_s=pl.col("value").min(), occasions=pl.col("occasions").max()
    )
    within, between = _spreads(good)
    return _Batch(
        runs_frame(frame),
        speeds,
        states,
        values,
        within["spread"],
        between["spread"],
        _noise_by_task(within, between),
        list(task_effects(candidates, dataset.sketches())),
    )


def _spreads(good: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Relative spreads (task_id, spread): within, one row per record with repeats; between, one
    row per candidate with several good records."""
    times, latency = pl.col("run_times_s"), pl.col("latency_s")
    within = good.filter(times.list.len() > 1).select(
        "task_id", spread=(times.list.std() / times.list.mean()).cast(pl.Float32)
    )
    between = (
        good.group_by(CANDIDATE, maintain_order=True)
        .agg(n=pl.len(), spread=(latency.std() / latency.mean()).cast(pl.Float32))
        .filter(pl.col("n") > 1)
        .select("task_id", "spread")
    )
    return within, between


def _noise_by_task(*scattered: pl.DataFrame) -> dict[str, Noise]:
    """Median and 90th percentile of each task's spreads, within and between records."""
    spread = pl.col("spread")
    within, between = (
        {
            task_id: Spread(*row)
            for task_id, *row in rows.group_by("task_id")
            .agg(pl.len(), spread.median().alias("median"), spread.quantile(0.9, "linear"))
            .iter_rows()
        }
        for rows in scattered
    )
    return {
        task_id: Noise(within.get(task_id, UNKNOWN), between.get(task_id, UNKNOWN))
        for task_id in within | between
    }


def _spread_of(parts: Sequence[pl.Series]) -> Spread:
    """Median and 90th percentile over all tasks."""
    values = pl.concat(parts).to_numpy()
    if not len(values):
        return UNKNOWN
    median, p90 = np.quantile(values, (0.5, 0.9))
    return Spread(len(values), float(median), float(p90))


def _state_times(counts: pl.DataFrame) -> tuple[StateTime, ...]:
    """Records, records with a time, and their seconds by state, most records first."""
    timed, seconds = pl.col("timed") > 0, pl.col("seconds")
    rows = (
        counts.group_by("state")
        .agg(pl.col("records", "timed", "seconds").sum())
        .sort(["records", "state"], descending=[True, False])
        .with_columns(
            share=pl.col("records") / pl.col("records").sum(),
            seconds=pl.when(timed).then("seconds"),
            seconds_share=pl.when(timed & (seconds.sum() > 0)).then(seconds / seconds.sum()),
        )
    )
    return tuple(StateTime(**row) for row in rows.iter_rows(named=True))


def _task_rows(
    counts: pl.DataFrame, values: pl.DataFrame, weights: Mapping[str, float]
) -> pl.DataFrame:
    """Fields of ``TaskAnalysis`` that are plain numbers, largest share of latency first."""
    failed = pl.col("state") != "ok"
    timed = pl.col("timed").sum()
    known = {task_id: weights.get(task_id) for task_id in counts["task_id"].unique().to_list()}
    cost = pl.col("best_s") * (pl.col("weight") if weights else pl.lit(1.0))
    return (
        counts.group_by("task_id")
        .agg(
            seconds=pl.when(timed > 0).then(pl.col("seconds").sum()),
            # If nothing failed and times are known, failures took no time.
            failing_s=pl.when(
                (pl.col("timed").filter(failed).sum() > 0)
                | ((pl.col("records").filter(failed).sum() == 0) & (timed > 0))
            ).then(pl.col("seconds").filter(failed).sum()),
            timed_share=timed / pl.col("records").sum(),
        )
        .join(values, on="task_id", how="left")
        .with_columns(
            weight=pl.col("task_id").replace_strict(known, return_dtype=pl.Float64),
            occasions=pl.col("occasions").fill_null(0),
        )
        .with_columns(
            latency_share=cost / cost.sum(),
            time_share=pl.col("seconds") / pl.col("seconds").sum(),
        )
        .sort(["latency_share", "task_id"], descending=[True, False], nulls_last=True)
    )
