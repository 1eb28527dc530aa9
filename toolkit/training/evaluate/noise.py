"""What noise leaves to be had: the score of a predictor that is told one real measurement.

A candidate that was measured on several occasions is predicted by one of them, drawn at random,
and judged by the median of the others. No model can be expected to beat a measurement by much;
where a task's candidates were measured once, its noise is unknown and it does not count.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from toolkit.datasets import Dataset
from toolkit.training.evaluate.bootstrap import mean_interval
from toolkit.training.evaluate.metrics import task_metrics

MIN_REPEATED = 20
"""A task counts when at least so many of its candidates were measured twice or more."""

NAMES = ("top1", "top5", "pairwise", "spearman")


def noise_ceiling(dataset: Dataset, task_ids: Sequence[str], *, seed: int = 0) -> dict[str, Any]:
    """Metrics of the predictor that is told one occasion, over tasks with repeats.

    ``n_tasks`` is 0, and there are no metrics, where no task has enough repeats. ``spread`` is the
    median over candidates of the relative standard deviation between occasions.
    """
    found: dict[str, list[float]] = {name: [] for name in NAMES}
    spreads: list[float] = []
    rng = np.random.default_rng(seed)
    repeated: dict[str, list[list[float]]] = {}
    for group, rows in dataset.groups(task_ids):
        own = repeated.setdefault(group.task.task_id, [])
        for occasions in rows.filter(pl.col("n_ok") >= 2)["occasions"]:
            own.append([o["latency_s"] for o in occasions if o["state"] == "ok"])
    for measured in repeated.values():
        if len(measured) < MIN_REPEATED:
            continue
        told, truth = [], []
        for values in measured:
            good = np.array(values)
            drawn = int(rng.integers(len(good)))
            told.append(good[drawn])
            truth.append(float(np.median(np.delete(good, drawn))))
            spreads.append(float(np.std(good, ddof=1) / np.mean(good)))
        metrics = task_metrics(np.array(truth), -np.log(np.array(told)))
        for name in NAMES:
            found[name].append(getattr(metrics, name))
    result: dict[str, Any] = {"n_tasks": len(found["top1"])}
    if not result["n_tasks"]:
        return result
    for name in NAMES:
        mean, low, high = mean_interval(np.array(found[name]), seed=seed)
        result[name] = mean
        result[f"{name}_interval"] = [low, high]
    result["spread"] = float(np.median(spreads))
    return result


def noise_spread(dataset: Dataset, *, seed: int = 0, tasks: int = 40) -> float | None:
    """Median relative standard deviation between occasions of one candidate.

    Over all candidates with two good occasions or more of at most ``tasks`` tasks; ``None`` where
    nothing was measured twice.
    """
    ids = list(dataset.tasks())
    if len(ids) > tasks:
        drawn = np.random.default_rng(seed).choice(len(ids), tasks, replace=False)
        ids = [ids[i] for i in sorted(drawn.tolist())]
    spreads = []
    for _, rows in dataset.groups(ids):
        for occasions in rows.filter(pl.col("n_ok") >= 2)["occasions"]:
            good = np.array([o["latency_s"] for o in occasions if o["state"] == "ok"])
            spreads.append(float(np.std(good, ddof=1) / np.mean(good)))
    return float(np.median(spreads)) if spreads else None


def occasion_shifts(dataset: Dataset, *, seed: int = 0, tasks: int = 40) -> NDArray[np.float64]:
    """Differences of log latency between two occasions of one candidate, one a candidate.

    The two are drawn at random from the good occasions of every candidate that has two or more, of
    at most ``tasks`` tasks. Empty where nothing was measured twice.
    """
    ids = list(dataset.tasks())
    rng = np.random.default_rng(seed)
    if len(ids) > tasks:
        ids = [ids[i] for i in sorted(rng.choice(len(ids), tasks, replace=False).tolist())]
    shifts = []
    for _, rows in dataset.groups(ids):
        for occasions in rows.filter(pl.col("n_ok") >= 2)["occasions"]:
            good = np.array([o["latency_s"] for o in occasions if o["state"] == "ok"])
            first, second = rng.choice(len(good), 2, replace=False)
            shifts.append(float(np.log(good[first] / good[second])))
    return np.array(shifts)
