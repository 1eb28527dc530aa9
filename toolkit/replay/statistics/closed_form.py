"""What random search without replacement is expected to do, in closed form.

Of n candidates m are good enough. The number of draws until the first of them has a negative
hypergeometric distribution: its mean is (n + 1) / (m + 1), and it exceeds k with probability
C(n - m, k) / C(n, k). Each candidate counts once, with its recorded value; failures are candidates
that are never good enough.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

FloatArray = NDArray[np.float64]


def expected_evaluations(n: int, good: int) -> float:
    """Mean number of draws until the first of ``good`` among n candidates; infinite for none."""
    return (n + 1) / (good + 1) if good else float("inf")


def not_reached(
    n: int, good: int | NDArray[np.int64], evaluations: int | NDArray[np.int64]
) -> FloatArray:
    """Probability that none of ``good`` is among the first k draws; arrays are broadcast."""
    k = np.minimum(np.asarray(evaluations, dtype=np.float64), n)
    good = np.asarray(good, dtype=np.float64)
    possible = n - good - k >= 0
    left = np.where(possible, n - good - k, 0.0)
    logs = gammaln(n - good + 1) - gammaln(left + 1) - gammaln(n + 1) + gammaln(n - k + 1)
    return np.where(possible, np.exp(logs), 0.0)


def quantile_evaluations(n: int, good: int, share: float) -> int | None:
    """Smallest number of draws that suffices with at least this probability."""
    if good == 0:
        return None
    enough = not_reached(n, good, np.arange(n + 1)) <= 1.0 - share + 1e-12
    return int(np.flatnonzero(enough)[0])


def expected_best(values: FloatArray, evaluations: NDArray[np.int64]) -> FloatArray:
    """Mean of the best value after k draws, given that one of them succeeded, for each k.

    ``values`` has one entry a candidate, NaN for those that never succeed; lower is better. The
    best of k draws is the i-th best value when the i - 1 better ones are all missing and the i-th
    is there: a difference of two ``not_reached``.
    """
    n = len(values)
    ascending = np.sort(values[np.isfinite(values)])
    ks = np.asarray(evaluations, dtype=np.int64)
    out = np.full(len(ks), np.nan)
    for j, k in enumerate(ks.tolist()):
        if k < 1 or not len(ascending):
            continue
        weights = -np.diff(not_reached(n, np.arange(len(ascending) + 1), k))
        if weights.sum() > 0:
            out[j] = float((weights * ascending).sum() / weights.sum())
    return out
