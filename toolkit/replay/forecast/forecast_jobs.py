"""Forecasts of a scenario: what one run of each strategy will show on the device, and how sure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from toolkit.progress import Progress
from toolkit.records import content_id
from toolkit.replay.execute.parts import Parts
from toolkit.replay.execute.pieces import finish
from toolkit.replay.forecast.forecast import chosen_share, forecast, seen_scores
from toolkit.replay.record.models import Models, ModelSet, opened
from toolkit.replay.record.readings import Readings
from toolkit.replay.record.space import RecordedSpace
from toolkit.replay.record.table import RecordedTable
from toolkit.replay.scenario import Scenario
from toolkit.search.base import DirectionScorer, Scorer

FloatArray = NDArray[np.float64]

NOMINAL = 0.90
"""What the intervals promise; how often they held is in ``docs/results/forecasts.md``."""

LEVELS = 20
"""Levels of the machine that each draw is looked at with: they cost no run."""


@dataclass(frozen=True)
class ForecastPiece:
    """One strategy on one task, in all draws."""

    task_id: str
    label: str
    draws: int

    @property
    def name(self) -> tuple[str, ...]:
        """Under which the piece is kept."""
        return ("forecast", self.task_id, self.label, str(self.draws))

    @property
    def note(self) -> str:
        """What progress says."""
        return self.label


@dataclass
class _Maker:
    """What pieces are made with; the space and the models of the last task are kept."""

    tables: Mapping[str, RecordedTable]
    readings: Mapping[str, Readings]
    models: Models
    scenario: Scenario
    _task: tuple[RecordedSpace, Scorer | None, DirectionScorer | None] | None = None

    @cached_property
    def _models(self) -> ModelSet:
        return opened(self.models)

    def _opened(self, task_id: str) -> tuple[RecordedSpace, Scorer | None, DirectionScorer | None]:
        if self._task is None or self._task[0].task.task_id != task_id:
            space = RecordedSpace(self.tables[task_id])
            scorers = self._models.scorer(space), self._models.direction_scorer(space)
            self._task = space, *scorers
        return self._task

    def size(self, piece: ForecastPiece) -> int:
        return len(self.tables[piece.task_id])

    def run(self, piece: ForecastPiece) -> list[list[float]]:
        """Score all draws with all levels: ``(draws * levels, 3)``."""
        space, scorer, direction_scorer = self._opened(piece.task_id)
        readings = self.readings[piece.task_id]
        drawn = forecast(
            space,
            readings,
            next(c for c in self.scenario.strategies if c.label == piece.label),
            self.scenario,
            draws=piece.draws,
            runs=1,
            scorer=scorer,
            direction_scorer=direction_scorer,
        )
        # By the machine alone: strategies that are compared meet the same one, and on a day on
        # which it is slower it is so for all of its tasks.
        rng = np.random.default_rng(int(content_id("levels", space.task.machine or ""), 16))
        levels = np.exp(readings.levels(rng, piece.draws * LEVELS)).reshape(piece.draws, LEVELS)
        budget = self.scenario.budget.evaluations or len(space.table)
        best_s = float(space.table.best_s or np.nan)
        rows = []
        for (run,), mine in zip(drawn, levels, strict=True):
            chosen = chosen_share(run)
            for level in mine:
                auc, final, _ = seen_scores(run[0] * level, best_s, budget)
                rows.append([round(score, 6) for score in (auc, final, chosen)])
        return rows


def forecast_scenario(
    tables: Mapping[str, RecordedTable],
    readings: Mapping[str, Readings],
    scenario: Scenario,
    models: Models,
    draws: int,
    parts: Parts,
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
    pieces = [ForecastPiece(task, label, draws) for task in readings for label in scenario.labels]
    maker = _Maker(dict(tables), readings, models, scenario)
    rows = finish("forecasting", pieces, maker, parts, progress, workers)
    found = {(p.task_id, p.label): np.array(r) for p, r in zip(pieces, rows, strict=True)}
    return {
        "draws": draws,
        "nominal": NOMINAL,
        "left_out": [task_id for task_id in tables if task_id not in readings],
        "tasks": {
            task_id: {
                "noise": one.noise,
                "level": one.level,
                "occasions": one.occasions,
            }
            for task_id, one in readings.items()
        },
        **_summarise(found, list(readings), scenario.labels),
    }


def _summarise(
    found: Mapping[tuple[str, str], FloatArray], tasks: Sequence[str], labels: Sequence[str]
) -> dict[str, Any]:
    over_tasks = {label: np.mean([found[t, label] for t in tasks], axis=0) for label in labels}
    pairs = []
    for i, first in enumerate(labels):
        for second in labels[i + 1 :]:
            difference = _figure((over_tasks[first] - over_tasks[second])[:, 0], "difference")
            low, high = difference["difference_interval"]
            pairs.append(
                {"first": first, "second": second, **difference, "decided": not low <= 0 <= high}
            )
    return {
        "strategies": {label: _figures(over_tasks[label]) for label in labels},
        "per_task": [
            {"task_id": task, "strategy": label, **_figures(found[task, label])}
            for task in tasks
            for label in labels
        ],
        "pairs": pairs,
    }


def _figures(scores: FloatArray) -> dict[str, Any]:
    auc, final, chosen = scores.T
    return {
        **_figure(auc, "auc"),
        **_figure(np.exp(final), "final"),
        **_figure(chosen, "chosen"),
    }


def _figure(draws: FloatArray, name: str) -> dict[str, Any]:
    """Median over the draws, and between which values the nominal share of them lies."""
    low, middle, high = np.quantile(draws, [(1 - NOMINAL) / 2, 0.5, (1 + NOMINAL) / 2]).tolist()
    return {name: middle, f"{name}_interval": [low, high]}
