"""The noise ceiling: metrics of a predictor that knows one real measurement.

A candidate that was measured on several occasions is predicted by one of them, drawn at random,
and judged by the median of the others. No model can be expected to beat a measurement by much.
Tasks whose candidates were measured only once do not count: their noise is unknown.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import polars as pl

from toolkit.datasets import Dataset
from toolkit.training.arrays import Floats
from toolkit.training.evaluate.metrics import mean_metrics, task_metrics

MIN_REPEATED = 20
"""A task counts if at least this many of its candidates were measured twice or more."""

NAMES = ("top1", "top5", "pairwise", "spearman")


def _repeats(dataset: Dataset, task_ids: Sequence[str]) -> Iterator[tuple[str, Floats]]:
    """Give the task and the latencies of every candidate with two or more good occasions."""
    for group, rows in dataset.groups(task_ids):
        for occasions in rows.filter(pl.col("n_ok") >= 2)["occasions"]:
            good = np.array([o["latency_s"] for o in occasions if o["state"] == "ok"])
            yield group.task.task_id, good


def _spread(good: Floats) -> float:
    return float(np.std(good, ddof=1) / np.mean(good))


def noise_ceiling(dataset: Dataset, task_ids: Sequence[str], *, seed: int = 0) -> dict[str, Any]:
    """Return the metrics of a predictor that knows one occasion, over tasks with repeats.

    If no task has enough repeats, ``n_tasks`` is 0 and there are no metrics. ``spread`` is the
    median over candidates of the relative standard deviation between occasions.
    """
    repeated: dict[str, list[Floats]] = {}
    for task_id, good in _repeats(dataset, task_ids):
        repeated.setdefault(task_id, []).append(good)
    metrics, spreads = [], []
    rng = np.random.default_rng(seed)
    for measured in repeated.values():
        if len(measured) < MIN_REPEATED:
            continue
        told, truth = [], []
        for good in measured:
            drawn = int(rng.integers(len(good)))
            told.append(good[drawn])
            truth.append(float(np.median(np.delete(good, drawn))))
            spreads.append(_spread(good))
        metrics.append(task_metrics(np.array(truth), -np.log(np.array(told))))
    result: dict[str, Any] = {"n_tasks": len(metrics)}
    if metrics:
        result |= mean_metrics(metrics, NAMES, seed) | {"spread": float(np.median(spreads))}
    return result


def occasion_noise(
    dataset: Dataset, *, seed: int = 0, tasks: int = 40
) -> tuple[float | None, Floats]:
    """Return how much repeated measurements of one candidate differ, over at most ``tasks`` tasks.

    Only candidates with two or more good occasions count. Returns the median of their relative
    standard deviations (``None`` if nothing was measured twice), and for each candidate one
    difference of log latency between two occasions drawn at random. Emulated measurements do not
    count: no model is trained on them either.
    """
    emulated, rng = dataset.emulated_tasks(), np.random.default_rng(seed)
    ids = [task_id for task_id in dataset.tasks() if task_id not in emulated]
    if len(ids) > tasks:
        ids = [ids[i] for i in sorted(rng.choice(len(ids), tasks, replace=False).tolist())]
    spreads, shifts = [], []
    for _, good in _repeats(dataset, ids):
        spreads.append(_spread(good))
        first, second = rng.choice(len(good), 2, replace=False)
        shifts.append(float(np.log(good[first] / good[second])))
    return (float(np.median(spreads)) if spreads else None), np.array(shifts)
