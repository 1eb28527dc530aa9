"""Intervals, comparisons and rankings of many runs, paired by task and then by seed.

Values come as ``(tasks, seeds)`` matrices, one per strategy. Entry (t, s) of every strategy has the
same seed and the same task, and is resampled together with the others (honesty rule 5).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np

from toolkit.replay.statistics.power import ENUMERATED, FLIPS, tasks_to_decide
from toolkit.search.moves.knobs import FloatArray, IntArray
from toolkit.training.evaluate.bootstrap import expanded_tail

Statistic = Callable[[FloatArray], Any]
"""A statistic of values, over their last axis."""

mean: Statistic = partial(np.mean, axis=-1)
maximum: Statistic = partial(np.max, axis=-1)


def median(values: FloatArray) -> FloatArray:
    """Median over the last axis; infinite if half or more of the values are."""
    n = values.shape[-1]
    # Not np.median: with an infinite upper middle value the result is infinite, never NaN.
    part = np.partition(values, [(n - 1) // 2, n // 2], axis=-1)
    low, high = part[..., (n - 1) // 2], part[..., n // 2]
    reached = np.isfinite(high)
    return np.where(reached, (np.where(reached, low, 0) + np.where(reached, high, 0)) / 2, np.inf)


def finite(value: float) -> float | None:
    """Return ``None`` for infinite ("not reached") and NaN ("unknown"): JSON has neither."""
    return float(value) if np.isfinite(value) else None


@dataclass(frozen=True)
class Resamples:
    """Indices of a hierarchical bootstrap: tasks with replacement, then seeds within each."""

    places: IntArray
    """``(resamples, tasks * seeds)``: places in a flattened matrix of values."""

    @classmethod
    def draw(cls, tasks: int, seeds: int, resamples: int, seed: int = 0) -> Resamples:
        """Draw indices; the same for every strategy, so that pairs stay pairs."""
        rng = np.random.default_rng([0xB007, seed])
        rows = rng.integers(tasks, size=(resamples, tasks))
        places = rng.integers(seeds, size=(resamples, tasks, seeds))
        places += seeds * rows[:, :, None]
        return cls(places.reshape(resamples, -1))

    def apply(self, values: FloatArray) -> FloatArray:
        """Resample a ``(tasks, seeds)`` matrix to ``(resamples, tasks * seeds)``."""
        return values.reshape(-1)[self.places]


def interval(
    values: FloatArray, statistic: Statistic, resamples: Resamples, confidence: float = 0.95
) -> tuple[float, float]:
    """Percentile interval of a statistic, widened for few units (``expanded_tail``).

    Units are tasks, or seeds if there is only one task. With a single unit the spread is unknown:
    both ends are NaN.
    """
    tasks, seeds = values.shape
    units = tasks if tasks > 1 else seeds
    if units < 2:
        return float("nan"), float("nan")
    drawn = np.sort(statistic(resamples.apply(values)))
    low = int(np.floor(expanded_tail(units, confidence) * (len(drawn) - 1)))
    return float(drawn[low]), float(drawn[len(drawn) - 1 - low])


def figure(
    name: str, values: FloatArray, statistic: Statistic, resamples: Resamples, confidence: float
) -> dict[str, Any]:
    """Statistic of all runs, and under ``<name>_interval`` its interval; JSON-ready."""
    ends = interval(values, statistic, resamples, confidence)
    return {
        name: finite(float(statistic(values.reshape(-1)))),
        f"{name}_interval": [finite(end) for end in ends],
    }


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p-values for the number of comparisons (Holm 1979, step-down)."""
    order = np.argsort(p_values, kind="stable")
    stepped = np.asarray(p_values)[order] * np.arange(len(order), 0, -1)
    adjusted = np.minimum(np.maximum.accumulate(stepped), 1.0)[np.argsort(order)]
    found: list[float] = adjusted.tolist()
    return found


def paired_p_value(differences: FloatArray) -> float:
    """Two-sided p-value of "the mean over tasks of the seeds' mean difference is 0".

    The sign of whole tasks is flipped (each task's mean difference is as likely positive as
    negative when neither strategy is better); seeds carry no information on other tasks, so that
    they are averaged first. With few tasks all sign patterns are enumerated, so that p cannot be
    smaller than they allow. With one task the seeds are flipped.
    """
    units = differences.mean(axis=1) if len(differences) > 1 else differences[0]
    n = len(units)
    observed = abs(float(units.mean()))
    if n <= ENUMERATED:
        patterns = np.array(np.meshgrid(*[[1.0, -1.0]] * n, indexing="ij")).reshape(n, -1).T
    else:
        rng = np.random.default_rng(0x5167)
        patterns = rng.choice([1.0, -1.0], size=(FLIPS, n))
        patterns = np.vstack([np.ones(n), patterns])
    means = np.abs(patterns @ units / n)
    return float((means >= observed * (1 - 1e-12)).mean())


def compare(
    values: Mapping[str, FloatArray], resamples: Resamples, confidence: float = 0.95
) -> list[dict[str, Any]]:
    """Compare every pair of strategies, first minus second, paired by task and seed.

    P-values are Holm-adjusted over all pairs. A pair's ``verdict`` is ``better`` or ``worse``
    (first against second; higher is better) at the level 1 - ``confidence``, or ``tied``; a tied
    pair has ``tasks_to_decide`` (see ``power``).
    """
    pairs = list(combinations(values, 2))
    raw = [paired_p_value(values[a] - values[b]) for a, b in pairs]
    rows: list[dict[str, Any]] = []
    for (first, second), p, adjusted in zip(pairs, raw, holm(raw), strict=True):
        apart = values[first] - values[second]
        verdict = "better" if apart.mean() > 0 else "worse"
        if adjusted > 1.0 - confidence:
            verdict = "tied"
        row = {"first": first, "second": second, "p_value": p, "p_holm": adjusted}
        row |= figure("difference", apart, mean, resamples, confidence) | {"verdict": verdict}
        if verdict == "tied":
            row["tasks_to_decide"] = tasks_to_decide(apart, len(values), confidence)
        rows.append(row)
    return rows


def ranking(
    values: Mapping[str, FloatArray], comparisons: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Order strategies by rank and then by mean, best first, with their ties.

    A strategy's rank is one more than the number of strategies that are proven better. It is
    ``tied_with`` the strategies to which no difference is proven.
    """
    tied: dict[str, set[str]] = {label: set() for label in values}
    beaten = dict.fromkeys(values, 0)
    for row in comparisons:
        first, second = row["first"], row["second"]
        if row["verdict"] == "tied":
            tied[first].add(second)
            tied[second].add(first)
        else:
            beaten[second if row["verdict"] == "better" else first] += 1
    means = {label: float(of_all.mean()) for label, of_all in values.items()}
    ordered = sorted(values, key=lambda label: (beaten[label], -means[label], label))
    return [
        {
            "strategy": label,
            "rank": 1 + beaten[label],
            "mean": means[label],
            "tied_with": [other for other in ordered if other in tied[label]],
        }
        for label in ordered
    ]


def effective_sample_size(values: FloatArray) -> float:
    """Number of independent runs that n seeds on each of k tasks are worth.

    k n / (1 + (n - 1) ICC), with the intraclass correlation of runs on one task (one-way analysis
    of variance): seeds that always give the same result are worth one run.
    """
    tasks, seeds = values.shape
    if seeds == 1 or tasks == 1:
        return float(tasks * seeds) if np.ptp(values) > 0 else float(tasks)
    between = seeds * values.mean(axis=1).var(ddof=1)
    within = values.var(axis=1, ddof=1).mean()
    if between == 0 and within == 0:
        return float(tasks)
    icc = max(0.0, float((between - within) / (between + (seeds - 1) * within)))
    return float(tasks * seeds / (1 + (seeds - 1) * icc))
