"""Forecasts what runs on the device will see: replays in posterior draws of the latencies.

A replay draws recorded readings, the same ones again and again: it knows how runs differ by their
seeds, and nothing of what a reading hides. Here every *draw* has latencies of its own, from
what the readings leave open, and each evaluation is a fresh reading of those. Nothing of it
is a measurement (honesty rule 1): it forecasts, and is never among the results of a replay.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from toolkit.records import Candidate, Trial, TrialState, content_id
from toolkit.replay.execute.task_run import run_over, strategy_of
from toolkit.replay.record.models import StrategyModels
from toolkit.replay.record.oracle import Missing, RecordedOracle
from toolkit.replay.record.readings import PosteriorDraw, Readings
from toolkit.replay.record.space import RecordedSpace
from toolkit.replay.scenario import Scenario, StrategyChoice

if TYPE_CHECKING:
    from typing_extensions import Unpack

FloatArray = NDArray[np.float64]

# Draws take their seeds from here on, so that no run shares one with a replay.
FIRST_SEED = 1_000_000


class ForecastOracle(RecordedOracle):
    """A record whose good readings are new ones of one draw; failures stay as recorded.

    Parameters
    ----------
    draw
        Latencies of the space's candidates, and the noise of readings: a run meets a stretch of
        it that begins anywhere.
    pace
        Readings that the record took in the time of one evaluation; the noise of each holds
        until the next one.
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
        """Return a fresh reading of each recorded candidate, in order; the others have none."""
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

    Draws depend on the task and their number alone: strategies that are compared meet the same.
    The machine's level is the record's mean; scale by ``Readings.levels`` for another day. Where an
    evaluation takes another time than a reading of the record took, ``pace`` is the ratio: a run
    that is over sooner meets less change.

    Returns
    -------
    list
        For each draw and run ``(2, evaluations)``: the latencies in seconds that the run saw, and
        the latencies that those candidates have in the draw over the least of any candidate (1:
        the best there is); NaN for a failure.
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
            done = run_over(oracle, strategy, choice, whole, seed)
            seen = np.array([np.nan if t.latency_s is None else t.latency_s for t in done.trials])
            behind = slower[space.table.owner[oracle.occasions]]
            alike.append(np.array([seen, np.where(np.isnan(seen), np.nan, behind)]))
        found.append(alike)
    return found


def seen_scores(latencies: FloatArray, best_s: float, budget: int) -> tuple[float, float, float]:
    """Scores of one run from the latencies in seconds that it saw, in order; NaN for a failure.

    Returns
    -------
    tuple
        Area under the curve: mean over the budget's evaluations of the record's best over the best
        seen so far (0 before the first success, higher is better; ``area_under_curve`` of
        ``replay.statistics.metrics``, of seen latencies). The logarithm of that ratio at the end.
        Evaluations until a latency within 10 % of the record's best was seen; the budget where
        none was.
    """
    curve = np.nan_to_num(best_s / np.fmin.accumulate(latencies), nan=0.0)[:budget]
    last = curve[-1] if len(curve) else 0.0
    curve = np.r_[curve, np.full(budget - len(curve), last)]
    hits = np.flatnonzero(curve >= 1 / 1.1)
    to_goal = float(hits[0] + 1) if len(hits) else float(budget)
    # A run without any success: as if it had found a program a hundred times slower.
    return float(curve.mean()), float(np.log(max(last, 0.01))), to_goal


def chosen_share(run: FloatArray) -> float:
    """What the program that a run would choose is worth, of what ``forecast`` gives for the run.

    The best latency of the draw over that of the candidate whose reading was the fastest: 1 is
    perfect. The reading itself was lucky, the more so the more were taken. 0 without any success.
    """
    seen, slower = run
    return float(1.0 / slower[np.nanargmin(seen)]) if np.isfinite(seen).any() else 0.0
