"""Forecasts of a scenario: what one run of each strategy will show on the device, and how sure."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from toolkit.progress import Progress
from toolkit.records import content_id
from toolkit.replay.execute.work import Name, ReplayContext, Work, finish
from toolkit.replay.forecast.forecast import chosen_share, forecast, seen_scores
from toolkit.replay.record.readings import Readings
from toolkit.replay.record.table import RecordedTable

FloatArray = NDArray[np.float64]

NOMINAL = 0.90
"""What the intervals promise; how often they held is in ``docs/results/forecasts.md``."""

LEVELS = 20
"""Levels of the machine that each draw is looked at with: they cost no run."""


def forecast_scenario(
    tables: Mapping[str, RecordedTable],
    readings: Mapping[str, Readings],
    draws: int,
    context: ReplayContext,
    progress: Progress,
    workers: int = 1,
) -> dict[str, Any]:
    """Forecast one run of every strategy on every task whose noise is known.

    Returns
    -------
    dict
        ``strategies`` (mean over the tasks), ``per_task`` and ``pairs``; every figure with the
        interval in which ``nominal`` of the draws lie. ``auc`` is the mean over the budget's
        evaluations of best recorded over best seen, ``final`` that ratio at the end (above 1 where
        a run will see a faster reading than the record's best value), ``chosen`` what the program
        that it would choose is worth once the luck of that reading is gone (1: the best there is;
        1 minus it is the simple regret, in throughput).
        ``left_out``: tasks whose noise is not known.
    """
    labels = context.scenario.labels
    works = [
        Work(
            names=[(f"forecast {draws}", task_id, label)],
            size=len(tables[task_id]),
            make=partial(_scores, tables[task_id], one, draws),
        )
        for task_id, one in readings.items()
        for label in labels
    ]
    kept = finish("forecasting", works, context, progress, workers)
    found = {name[1:]: np.array(rows) for name, rows in kept.items()}
    means = {label: np.mean([found[task, label] for task in readings], axis=0) for label in labels}
    return {
        "draws": draws,
        "nominal": NOMINAL,
        "left_out": [task_id for task_id in tables if task_id not in readings],
        "tasks": {
            task_id: {"noise": one.noise, "level": one.level, "occasions": one.occasions}
            for task_id, one in readings.items()
        },
        "strategies": {label: _figures(means[label]) for label in labels},
        "per_task": [
            {"task_id": task, "strategy": label, **_figures(found[task, label])}
            for task in readings
            for label in labels
        ],
        "pairs": [_pair(first, second, means) for first, second in combinations(labels, 2)],
    }


def _scores(
    table: RecordedTable, readings: Readings, draws: int, context: ReplayContext, name: Name
) -> list[list[float]]:
    """Score a strategy in all draws with all levels: ``(draws * LEVELS, 3)``."""
    scenario = context.scenario
    ((space, guides),) = context.guided(table)
    choice = scenario.strategies[scenario.labels.index(name[-1])]
    drawn = forecast(space, readings, choice, scenario, draws=draws, runs=1, **guides)
    # By the machine alone: strategies that are compared meet the same one, and on a day on
    # which it is slower it is so for all of its tasks.
    rng = np.random.default_rng(int(content_id("levels", table.task.machine or ""), 16))
    levels = np.exp(readings.levels(rng, draws * LEVELS)).reshape(draws, LEVELS)
    budget = scenario.budget.evaluations or len(table)
    best_s = float(table.best_s or np.nan)
    rows = []
    for (run,), mine in zip(drawn, levels, strict=True):
        chosen = chosen_share(run)
        for level in mine:
            auc, final, _ = seen_scores(run[0] * level, best_s, budget)
            rows.append([round(score, 6) for score in (auc, final, chosen)])
    return rows


def _pair(first: str, second: str, means: Mapping[str, FloatArray]) -> dict[str, Any]:
    difference = _figure("difference", (means[first] - means[second])[:, 0])
    low, high = difference["difference_interval"]
    return {"first": first, "second": second, **difference, "decided": not low <= 0 <= high}


def _figures(scores: FloatArray) -> dict[str, Any]:
    auc, final, chosen = scores.T
    return _figure("auc", auc) | _figure("final", np.exp(final)) | _figure("chosen", chosen)


def _figure(name: str, draws: FloatArray) -> dict[str, Any]:
    """Median over the draws, and between which values the nominal share of them lies."""
    low, middle, high = np.quantile(draws, [(1 - NOMINAL) / 2, 0.5, (1 + NOMINAL) / 2]).tolist()
    return {name: middle, f"{name}_interval": [low, high]}
