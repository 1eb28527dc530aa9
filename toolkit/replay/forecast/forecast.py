"""Forecasts of what runs on the device will see: replays in posterior draws of the latencies.

A replay draws the same recorded readings again and again: it shows how runs differ by their seeds,
but not how uncertain a reading is. Here every *draw* has its own latencies, drawn from their
posterior given the readings, and each evaluation is a fresh reading of them. None of this is a
measurement (honesty rule 1): a forecast is never among the results of a replay.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from toolkit.cluster import Cluster
from toolkit.progress import Progress
from toolkit.records import Candidate, Trial, TrialState, content_id
from toolkit.replay.execute.task_run import run_over, strategy_of
from toolkit.replay.execute.work import Name, ReplayContext, Work, finish
from toolkit.replay.record.models import StrategyModels
from toolkit.replay.record.oracle import Missing, RecordedOracle
from toolkit.replay.record.readings import PosteriorDraw, Readings
from toolkit.replay.record.space import RecordedSpace
from toolkit.replay.record.table import RecordedTable
from toolkit.replay.scenario import Scenario, StrategyChoice
from toolkit.search.moves.knobs import FloatArray

if TYPE_CHECKING:
    from typing_extensions import Unpack

# First seed of the forecast runs, so that no run shares a seed with a replay.
FIRST_SEED = 1_000_000

NOMINAL = 0.90
"""Nominal coverage of the intervals; ``docs/results/forecasts.md`` has the observed one."""

LEVELS = 20
"""Machine levels that each draw is scored with: they need no further run."""


class ForecastOracle(RecordedOracle):
    """A record with new readings from one draw instead of the good ones; failures stay.

    A run uses a stretch of the draw's noise that begins at a random place. ``pace``: number of
    readings that the record took in the time of one evaluation; each one's noise lasts until the
    next one.
    """

    def __init__(
        self,
        space: RecordedSpace,
        draw: PosteriorDraw,
        *,
        seed: int = 0,
        missing: Missing = "skip",
        pace: float = 1.0,
    ) -> None:
        super().__init__(space, seed=seed, missing=missing)
        self._posterior = draw
        self._pace = pace
        key = int(content_id("readings", space.task.task_id), 16)
        self._begin = np.random.default_rng([seed, key]).random() * len(draw.noise)

    def measure(self, candidates: Sequence[Candidate]) -> list[Trial]:
        """Return a fresh reading of each recorded candidate, in order; none for the others."""
        before = len(self.occasions)
        trials = super().measure(candidates)
        numbers = self.table.owner[self.occasions[before:]]
        places = self._begin + self._pace * np.arange(before, len(self.occasions))
        seconds = self._posterior.read(numbers, places.astype(np.int64)).tolist()
        return [
            replace(trial, run_times_s=(value,)) if trial.state is TrialState.OK else trial
            for trial, value in zip(trials, seconds, strict=True)
        ]


def forecast(
    space: RecordedSpace,
    readings: Readings,
    choice: StrategyChoice,
    scenario: Scenario,
    *,
    draws: int,
    runs: int,
    pace: float = 1.0,
    **guides: Unpack[StrategyModels],
) -> list[list[FloatArray]]:
    """Run a strategy several times in each of many draws, each time for the scenario's budget.

    A draw depends on the task and its number only: all strategies get the same draws. The machine's
    level is the record's mean; scale by ``Readings.levels`` for another day. ``pace`` is the time
    of an evaluation over the time of a recorded reading: a shorter run sees less change.

    Returns for each draw and run an array ``(2, evaluations)``: the latencies in seconds that the
    run saw, and the candidates' latencies in the draw over the lowest of any candidate (1: the
    best); NaN for a failure.
    """
    # The best recorded candidate need not be the best in a draw: no run ends there.
    whole = scenario.model_copy(update={"stop_at_best": False})
    task = int(content_id("worlds", space.task.task_id), 16)
    found = []
    for number in range(draws):
        draw = readings.draw(np.random.default_rng([number, task]))
        slower = np.exp(draw.log_latency - np.nanmin(draw.log_latency))
        alike = []
        for one in range(runs):
            seed = FIRST_SEED + number * runs + one
            strategy = strategy_of(space, choice, seed, **guides)
            oracle = ForecastOracle(space, draw, seed=seed, missing=scenario.missing, pace=pace)
            done = run_over(oracle, strategy, choice, whole)
            seen = np.array([np.nan if t.latency_s is None else t.latency_s for t in done.trials])
            behind = slower[space.table.owner[oracle.occasions]]
            alike.append(np.array([seen, np.where(np.isnan(seen), np.nan, behind)]))
        found.append(alike)
    return found


def seen_scores(latencies: FloatArray, best_s: float, budget: int) -> tuple[float, float, float]:
    """Scores of one run from the latencies in seconds that it saw, in order; NaN for a failure.

    First, the area under the curve: mean over the budget's evaluations of the record's best over
    the best seen so far (0 before the first success, higher is better). Second, the logarithm of
    that ratio at the end. Third, the evaluations until a latency within 10 % of the record's best
    was seen, or the budget.
    """
    curve = np.zeros(budget)
    ratios = best_s / np.fmin.accumulate(latencies[:budget])
    # Before the first success there is no best: the ratio counts as 0.
    ratios[np.isnan(ratios)] = 0.0
    last = ratios[-1] if len(ratios) else 0.0
    curve[: len(ratios)], curve[len(ratios) :] = ratios, last
    hits = np.flatnonzero(curve >= 1 / 1.1)
    to_goal = float(hits[0] + 1) if len(hits) else float(budget)
    # A run without any success: as if it had found a program a hundred times slower.
    return float(curve.mean()), float(np.log(max(last, 0.01))), to_goal


def chosen_share(run: FloatArray) -> float:
    """Relative speed of the program that a run would choose, from an array of ``forecast``.

    The best latency of the draw over the latency of the candidate with the fastest reading: 1 is
    perfect. The fastest reading itself is too low by luck, the more readings the more so. 0 without
    any success.
    """
    seen, slower = run
    return float(1.0 / slower[np.nanargmin(seen)]) if np.isfinite(seen).any() else 0.0


def forecast_scenario(
    tables: Mapping[str, RecordedTable],
    readings: Mapping[str, Readings],
    draws: int,
    context: ReplayContext,
    progress: Progress,
    workers: int | Cluster = 1,
) -> dict[str, Any]:
    """Forecast one run of every strategy on every task whose noise is known.

    In ``strategies`` (mean over the tasks), ``per_task`` and ``pairs`` every figure has the
    interval in which ``nominal`` of the draws lie. ``auc`` is the mean over the budget's
    evaluations of best recorded over best seen, ``final`` that ratio at the end (above 1 if a run
    will see a faster reading than the record's best value), ``chosen`` the relative speed of the
    program that it would choose, without the luck of that reading (1: the best; 1 minus it is the
    simple regret, in throughput). ``left_out``: tasks whose noise is not known.
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
    # Seeded by the machine alone: all strategies get the same levels, and on a slow day all tasks
    # of a machine are slow.
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
    """Median over the draws, and the interval that holds the nominal share of them."""
    low, middle, high = np.quantile(draws, [(1 - NOMINAL) / 2, 0.5, (1 + NOMINAL) / 2]).tolist()
    return {name: middle, f"{name}_interval": [low, high]}
