"""A dataset analysed: some tasks at a time, so that memory is bounded by a batch's records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import polars as pl

from toolkit.datasets.analysis.convergence import backtest, convergence_of
from toolkit.datasets.analysis.frames import CANDIDATE, COLUMNS, prepare, runs_frame
from toolkit.datasets.analysis.knobs import sketch_knobs, strongest, task_effects
from toolkit.datasets.analysis.result import Analysis, KnobEffect, Noise, TaskAnalysis
from toolkit.datasets.analysis.spread import (
    UNKNOWN,
    count_states,
    noise_by_task,
    noise_of,
    spreads,
    state_times,
)
from toolkit.datasets.analysis.tuners import compare_tuners, task_weights
from toolkit.datasets.read.open import Dataset

BATCH = 150_000
"""Records read at a time; a single task may have more."""


@dataclass
class _Parts:
    """What is kept of each batch."""

    runs: list[pl.DataFrame] = field(default_factory=list)
    states: list[pl.DataFrame] = field(default_factory=list)
    values: list[pl.DataFrame] = field(default_factory=list)
    within: list[pl.Series] = field(default_factory=list)
    between: list[pl.Series] = field(default_factory=list)
    noise: dict[str, Noise] = field(default_factory=dict)
    effects: list[tuple[str, str, list[KnobEffect]]] = field(default_factory=list)


def analyse(dataset: Dataset, enumerated: Mapping[str, bool] | None = None) -> Analysis | None:
    """Say what is to be said of a dataset; ``None`` where it holds no record.

    Parameters
    ----------
    enumerated
        Which tasks' whole space was recorded (``Dataset.enumerated``, computed if not given).
    """
    if enumerated is None:
        enumerated = dataset.enumerated()
    parts = _Parts()
    for batch in dataset.task_batches(records=BATCH):
        _read(dataset, batch, parts)
    if not any(map(len, parts.runs)):
        return None
    runs, counts = pl.concat(parts.runs), pl.concat(parts.states)
    sources, tasks = dataset.sources(), dataset.tasks()
    convergence = convergence_of(runs, enumerated)
    verdicts = [found.verdict for found in convergence.values()]
    seconds, timed = float(counts["seconds"].sum()), int(counts["timed"].sum())
    effects: dict[str, list[tuple[str, list[KnobEffect]]]] = {}
    for task_id, sketch_id, own in parts.effects:
        effects.setdefault(task_id, []).append((sketch_id, own))
    weights = task_weights(sources, runs)
    rows = _task_rows(counts, pl.concat(parts.values), weights)
    return Analysis(
        tasks={
            row["task_id"]: TaskAnalysis(
                **row,
                gain_to_expect=_product(
                    row["latency_share"], convergence[row["task_id"]].expected_gain
                ),
                convergence=convergence[row["task_id"]],
                noise=parts.noise.get(row["task_id"], Noise(UNKNOWN, UNKNOWN)),
                knobs=strongest(effects.get(row["task_id"], [])),
            )
            for row in rows.iter_rows(named=True)
        },
        verdicts={
            word: verdicts.count(word) for word in ("converged", "still improving", "too short")
        },
        backtest=backtest(runs),
        states=state_times(counts),
        seconds=seconds if timed else None,
        timed_share=timed / int(counts["records"].sum()),
        noise=noise_of(parts.within, parts.between),
        knobs=sketch_knobs(parts.effects, tasks),
        tuners=compare_tuners(sources, runs),
    )


def _product(share: float | None, gain: float | None) -> float | None:
    return None if share is None or gain is None else share * gain


def _read(dataset: Dataset, batch: list[str], parts: _Parts) -> None:
    records = dataset.records([*COLUMNS, "decisions"])
    frame = prepare(records.filter(pl.col("task_id").is_in(batch)).collect())
    parts.runs.append(runs_frame(frame))
    parts.states.append(count_states(frame))
    within, between = spreads(frame)
    parts.within.append(within["spread"])
    parts.between.append(between["spread"])
    parts.noise.update(noise_by_task(within, between))
    candidates = (
        frame.filter("ok")
        .group_by(CANDIDATE, maintain_order=True)
        .agg(pl.col("sketch_id", "decisions", "value").first(), occasions=pl.len().cast(pl.Int64))
    )
    parts.values.append(
        candidates.group_by("task_id").agg(
            best_s=pl.col("value").min(), occasions=pl.col("occasions").max()
        )
    )
    parts.effects.extend(task_effects(candidates, dataset.sketches()))


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
            failing_s=pl.when(pl.col("timed").filter(failed).sum() > 0).then(
                pl.col("seconds").filter(failed).sum()
            ),
            failures=pl.col("records").filter(failed).sum(),
            timed_share=timed / pl.col("records").sum(),
        )
        .join(values, on="task_id", how="left")
        .with_columns(
            weight=pl.col("task_id").replace_strict(known, return_dtype=pl.Float64),
            occasions=pl.col("occasions").fill_null(0),
            # Nothing failed and times are known: failures took no time.
            failing_s=pl.when((pl.col("failures") == 0) & pl.col("seconds").is_not_null())
            .then(0.0)
            .otherwise("failing_s"),
        )
        .with_columns(
            latency_share=cost / cost.sum(),
            time_share=pl.col("seconds") / pl.col("seconds").sum(),
        )
        .sort(["latency_share", "task_id"], descending=[True, False], nulls_last=True)
        .drop("failures")
    )
