"""Forecasts of a scenario: what one run of each strategy will show on the device, and how sure.

One piece a task and strategy, in any process; each is kept when it is done, as replays are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from toolkit.progress import Progress
from toolkit.records import content_id
from toolkit.replay.forecast import chosen_share, forecast, seen_scores
from toolkit.replay.jobs import Models
from toolkit.replay.models import ModelSet, load_models
from toolkit.replay.parts import Parts
from toolkit.replay.processes import in_processes
from toolkit.replay.readings import Readings, readings_of
from toolkit.replay.scenario import Scenario
from toolkit.replay.space import RecordedSpace
from toolkit.replay.table import RecordedTable
from toolkit.search.base import DirectionScorer, Scorer

FloatArray = NDArray[np.float64]

NOMINAL = 0.90
"""What the intervals promise; how often they held is in ``docs/explanation/replay.md``."""

LEVELS = 20
"""Levels of the machine that each draw is looked at with: they cost no run."""


@dataclass(frozen=True)
class Piece:
    """One strategy on one task, in all draws."""

    task_id: str
    label: str
    draws: int

    @property
    def name(self) -> tuple[str, ...]:
        """Under which the piece is kept."""
        return ("forecast", self.task_id, self.label, str(self.draws))


@dataclass
class Bench:
    """What pieces are made with: records, their noise, models, the scenario, where to keep them."""

    tables: Mapping[str, RecordedTable]
    readings: Mapping[str, Readings]
    models: ModelSet
    scenario: Scenario
    parts: Parts
    _opened: tuple[RecordedSpace, Scorer | None, DirectionScorer | None] | None = None

    def opened(self, task_id: str) -> tuple[RecordedSpace, Scorer | None, DirectionScorer | None]:
        """A task's space and its models; those of the last one asked for are kept."""
        if self._opened is None or self._opened[0].task.task_id != task_id:
            space = RecordedSpace(self.tables[task_id])
            scorers = self.models.scorer(space), self.models.direction_scorer(space)
            self._opened = space, *scorers
        return self._opened


def forecast_scenario(
    tables: Mapping[str, RecordedTable],
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

    Raises
    ------
    DatasetError
        When no task was measured on several occasions.
    """
    readings = readings_of(tables)
    pieces = [Piece(task, label, draws) for task in readings for label in scenario.labels]
    todo = [piece for piece in pieces if parts.kept(piece.name) is None]
    with progress.step("forecasting", len(pieces)) as step:
        done = len(pieces) - len(todo)
        step.advance(done, note="resumed" if done else None)
        if workers <= 1 or len(todo) <= 1:
            loaded = models if isinstance(models, ModelSet) else load_models(models)
            bench = Bench(tables, readings, loaded, scenario, parts)
            for piece in todo:
                step.advance(note=_run(piece, bench))
        else:
            # The largest first, so that no worker begins a long one when the others are done.
            todo.sort(key=lambda p: (-len(tables[p.task_id]), p.name))
            shared = (dict(tables), readings, models, scenario, parts)
            for note in in_processes(_work, [(p,) for p in todo], workers, _start, shared):
                step.advance(note=note)
    found = {(p.task_id, p.label): np.array(parts.kept(p.name)) for p in pieces}
    return {
        "draws": draws,
        "nominal": NOMINAL,
        "left_out": [task_id for task_id in tables if task_id not in readings],
        "tasks": {
            task_id: {
                "noise": float(one.noise.std()),
                "level": one.level,
                "occasions": one.occasions,
            }
            for task_id, one in readings.items()
        },
        **_summarise(found, list(readings), scenario.labels),
    }


def _run(piece: Piece, bench: Bench) -> str:
    """Score all draws of one piece with all levels: ``(draws * levels, 3)``."""
    space, scorer, direction_scorer = bench.opened(piece.task_id)
    table, readings = space.table, bench.readings[piece.task_id]
    choice = next(c for c in bench.scenario.strategies if c.label == piece.label)
    drawn = forecast(
        space,
        readings,
        choice,
        bench.scenario,
        draws=piece.draws,
        runs=1,
        scorer=scorer,
        direction_scorer=direction_scorer,
    )
    # By the task alone: strategies that are compared meet the same machine.
    rng = np.random.default_rng(int(content_id("levels", piece.task_id), 16))
    levels = np.exp(readings.levels(rng, piece.draws * LEVELS)).reshape(piece.draws, LEVELS)
    budget = bench.scenario.budget.evaluations or len(table)
    best_s = float(table.best_s or np.nan)
    rows = []
    for (run,), mine in zip(drawn, levels, strict=True):
        chosen = chosen_share(run)
        for level in mine:
            auc, final, _ = seen_scores(run[0] * level, best_s, budget)
            rows.append([round(score, 6) for score in (auc, final, chosen)])
    bench.parts.keep(piece.name, rows)
    return piece.label


_worker: list[Bench] = []


def _start(
    tables: Mapping[str, RecordedTable],
    readings: Mapping[str, Readings],
    models: Models,
    scenario: Scenario,
    parts: Parts,
) -> None:
    loaded = models if isinstance(models, ModelSet) else load_models(models)
    _worker[:] = [Bench(tables, readings, loaded, scenario, parts)]


def _work(piece: Piece) -> str:
    return _run(piece, _worker[0])


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
