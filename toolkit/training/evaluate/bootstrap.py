"""Percentile intervals by resampling whole tasks, with all their candidates."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import special

from toolkit.training.arrays import Floats, Ints

RESAMPLES = 2000
LEVEL = 0.95

Interval = list[float]
Estimate = tuple[float, float, float]
"""A figure, and the lower and upper end of its interval."""

UNKNOWN = (float("nan"),) * 3


def _draws(n: int, seed: int) -> Ints:
    return np.random.default_rng(seed).integers(0, n, size=(RESAMPLES, n))


def _quantiles(values: Floats) -> tuple[float, float]:
    tail = (1 - LEVEL) / 2
    low, high = np.nanquantile(values, [tail, 1 - tail])
    return float(low), float(high)


def mean_interval(values: Floats, *, seed: int = 0) -> Estimate:
    """Mean over tasks and its 95 % interval; tasks without a value (NaN) do not count."""
    values = values[np.isfinite(values)]
    if len(values) == 0:
        return UNKNOWN
    means = values[_draws(len(values), seed)].mean(axis=1)
    return float(values.mean()), *_quantiles(means)


def ratio_interval(numerator: Floats, denominator: Floats, *, seed: int = 0) -> Estimate:
    """Ratio of two sums over tasks and its 95 % interval; both sums use the same tasks."""
    if len(numerator) == 0 or denominator.sum() == 0:
        return UNKNOWN
    drawn = _draws(len(numerator), seed)
    below = denominator[drawn].sum(axis=1)
    usable = below != 0
    ratios = numerator[drawn].sum(axis=1)[usable] / below[usable]
    return float(numerator.sum() / denominator.sum()), *_quantiles(ratios)


def expanded_tail(units: int, level: float = LEVEL) -> float:
    """Return the quantile level at which an interval of so many units is cut at each end.

    The percentile bootstrap of n units is too narrow: it acts as if sqrt((n - 1) / n) and normal
    quantiles were right. Levels are taken at Phi(sqrt(n / (n - 1)) t) instead (Hesterberg 2015,
    "What teachers should know about the bootstrap", section 4.1.2, "expanded percentile").
    """
    widened = np.sqrt(units / (units - 1)) * special.stdtrit(units - 1, (1.0 - level) / 2.0)
    return float(special.ndtr(widened))


def named(name: str, estimate: Estimate) -> dict[str, Any]:
    """Return a figure and its interval under the names that results use."""
    value, low, high = estimate
    return {name: value, f"{name}_interval": [low, high]}
