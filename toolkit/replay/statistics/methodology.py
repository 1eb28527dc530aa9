"""The score of "A methodology for comparing optimization algorithms for auto-tuning".

Willemsen, Schoonhoven, Filipovic, Tørring, van Nieuwpoort, van Werkhoven, Future Generation
Computer Systems 159 (2024). Between the time at which random search is expected to come 1 % of the
way from the median to the optimum and the time at which it has come 95 %, a strategy's curve is
placed between random search (0) and the optimum (1); the score is its mean over time and then over
spaces. Numbers equal those of the package ``autotuning-methodology`` 1.1 (checked to 1e-6 on its
own T4 spaces). The constants are the package's. The package draws from numpy's global generator,
this module from the generator that it is given.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil

import numpy as np

from toolkit.replay.record.table import RecordedTable
from toolkit.replay.statistics.metrics import Replayed
from toolkit.search.moves.knobs import FloatArray

START, END = 0.01, 0.95
RESOLUTION = 1000
# Reasons why a run ends before its budget without having measured the best candidate.
GAVE_UP = ("exhausted", "misses")


@dataclass(frozen=True)
class SpaceFacts:
    """Values and costs of a space's candidates."""

    values: FloatArray  # one per candidate, lower is better; NaN if it never succeeded
    seconds: FloatArray  # one per candidate: cost of its evaluation

    @classmethod
    def of(cls, table: RecordedTable) -> SpaceFacts:
        """Take candidates' recorded values and the mean of their recorded costs."""
        totals = np.add.reduceat(table.elapsed_s, table.offsets[:-1])
        return cls(table.value_s, totals / table.occasions)

    @cached_property
    def ascending(self) -> FloatArray:
        """Values of the candidates that succeeded, best first."""
        return np.sort(self.values[np.isfinite(self.values)])

    def evaluations_to(self, share: float) -> int:
        """Evaluations after which random search is expected to be this share from median to best.

        Expected position after m of N draws without replacement: m (N + 1) / (m + 1).
        """
        descending = self.ascending[::-1]
        best, median = float(descending[-1]), float(np.median(descending))
        target = best + (median - best) * (1.0 - share)
        position = int(np.flatnonzero(descending <= target)[0])
        if share != 1.0 and descending[position] == best and position > 0:
            position -= 1  # the optimum alone lies beyond the target: stop just before it
        return ceil(position / (len(descending) + 1 - position))

    def time_range(self, resolution: int = RESOLUTION) -> FloatArray:
        """Points in time at which curves are compared."""
        start, end = self.evaluations_to(START), self.evaluations_to(END)
        if end - start < 2:
            start, end = (start, end + 2) if start == 0 else (start - 1, end + 1)
        per_evaluation = float(np.median(self.seconds))
        return np.linspace(start * per_evaluation, end * per_evaluation, resolution)

    def mean_seconds(self) -> float:
        """Mean cost of a success, plus that of a failure times the share of failures."""
        failed = np.isnan(self.values)
        if not failed.any():
            return float(self.seconds.mean())
        return float(self.seconds[~failed].mean() + failed.mean() * self.seconds[failed].mean())


def random_baseline(space: SpaceFacts, time_s: FloatArray) -> FloatArray:
    """Value that random search without replacement is expected to have reached at each time."""
    evaluations = np.round(np.maximum(time_s / space.mean_seconds(), 1)).astype(np.int64)
    descending = space.ascending[::-1]
    n = len(descending)
    # Python's round (half to even) as in the package.
    position = [min(n - 1, round(m * (n + 1) / (m + 1))) for m in evaluations.tolist()]
    drawn = descending[position]
    x, first = np.unique(evaluations, return_index=True)
    if len(evaluations) <= 2 or len(x) < 2:
        return drawn
    even = np.linspace(evaluations[0], evaluations[-1], len(evaluations))
    from scipy.interpolate import PchipInterpolator  # takes half a second, and no worker needs it

    return np.asarray(PchipInterpolator(x, drawn[first])(even))


def strategy_curve(
    space: SpaceFacts,
    times: FloatArray,
    best: FloatArray,
    time_s: FloatArray,
    random_state: np.random.RandomState,
) -> FloatArray | None:
    """Value that a strategy has reached at each time, over its repeated runs.

    Isotonic regression of the rank of the best so far on time, bagged over the runs. ``times`` and
    ``best``, ``(evaluations, runs)``: when each evaluation ended, and the best value so far; NaN
    beyond a run's end and before its first success. ``None`` where a run has fewer than two points
    near the range of time. Scikit-learn accepts only this kind of generator.
    """
    from sklearn.ensemble import BaggingRegressor
    from sklearn.isotonic import IsotonicRegression

    some = ~np.isnan(best).all(axis=1)
    times, best = np.where(np.isnan(best), np.nan, times)[some], best[some]
    runs = best.shape[1]
    if not len(best) or np.isnan(times).all(axis=0).any():
        return None
    ends = np.sort(np.nanmax(times, axis=0))
    later = ends[ends > np.nanmedian(ends)]
    stop = float(later[0]) if len(later) else float(time_s[-1])
    margin = 0.1 + 0.25 * runs / times.size
    near = (time_s[0] * (1 - margin) <= times) & (times <= time_s[-1] * (1 + margin))
    if not (near.sum(axis=0) > 1).all():
        return None
    known = near & ~np.isnan(best)
    ascending = space.ascending
    ranks = np.searchsorted(ascending, best[known]).astype(np.float64)
    count = max(runs, 3)
    bagging = BaggingRegressor(
        IsotonicRegression(
            increasing=False, y_min=ranks.min(), y_max=ranks.max(), out_of_bounds="clip"
        ),
        n_estimators=count,
        max_samples=max(1, int(len(ranks) / np.sqrt(count))),
        bootstrap=True,
        random_state=random_state,
    )
    bagging.fit(times[known].reshape(-1, 1), ranks)
    predicted = bagging.predict(time_s.reshape(-1, 1))
    curve: FloatArray = ascending[np.clip(np.round(predicted).astype(int), 0, len(ascending) - 1)]
    if time_s[0] < stop < time_s[-1]:
        # Fewer than half of the runs continue beyond this time: their values there are not used.
        at = int(np.flatnonzero(time_s > stop)[0])
        curve[at:] = curve[at]
    return curve


def standardised(space: SpaceFacts, curve: FloatArray, time_s: FloatArray) -> FloatArray:
    """Place a curve between random search (0) and the optimum (1)."""
    random = random_baseline(space, time_s)
    return np.asarray((curve - random) / (space.ascending[0] - random))


def score(
    space: SpaceFacts, times: FloatArray, best: FloatArray, random_state: np.random.RandomState
) -> float | None:
    """Score of a strategy's runs (``strategy_curve``); ``None`` if the methodology has none.

    It has none for fewer than three good values, if the median equals the best, if random search is
    expected to reach the best within the range of time, or if a run has too few points there.
    """
    ascending = space.ascending
    if len(ascending) < 3 or ascending[0] == np.median(ascending):
        return None
    time_s = space.time_range()
    if (random_baseline(space, time_s) == ascending[0]).any():
        return None
    curve = strategy_curve(space, times, best, time_s, random_state)
    return None if curve is None else float(standardised(space, curve, time_s).mean())


def score_runs(
    space: SpaceFacts, runs: Sequence[Replayed], random_state: np.random.RandomState
) -> float | None:
    """Score of replayed runs on one space.

    If the methodology defines none because a run gave up too soon, that run is continued with its
    best value. Otherwise one strategy that gives up would leave all strategies without a score.
    """
    found = score(space, *run_matrices(space, runs), random_state)
    if found is None and any(run.stopped in GAVE_UP for run in runs):
        found = score(space, *run_matrices(space, runs, ("stopped", *GAVE_UP)), random_state)
    return found


def run_matrices(
    space: SpaceFacts, runs: Sequence[Replayed], continued: Sequence[str] = ("stopped",)
) -> tuple[FloatArray, FloatArray]:
    """Times and best values of replayed runs as ``(evaluations, runs)``.

    A run that was ended because it had measured the best candidate (``stopped``) is continued with
    evaluations of mean cost that change nothing: otherwise it would count as a run that gave up.
    ``continued`` lists the stop reasons of the runs to continue.
    """
    end = float(space.time_range(2)[-1]) * 1.2
    step = space.mean_seconds()
    all_times, all_best = [], []
    for run in runs:
        times, best = run.clock_s, run.best_s()
        if run.stopped in continued and len(times) and times[-1] < end:
            more = np.arange(times[-1] + step, end + step, step)
            times, best = np.r_[times, more], np.r_[best, np.full(len(more), best[-1])]
        all_times.append(times)
        all_best.append(best)
    return _columns(all_times), _columns(all_best)


def _columns(runs: Sequence[FloatArray]) -> FloatArray:
    """Arrays side by side; NaN beyond their ends."""
    out = np.full((max(map(len, runs)), len(runs)), np.nan)
    for column, values in enumerate(runs):
        out[: len(values), column] = values
    return out
