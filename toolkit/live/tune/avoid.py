"""Leave out candidates that would probably fail, or take far too long to build and run.

A classifier on the space's features learns from the trials of the run, and from earlier records of
the same search. Failures and outliers in elapsed seconds are its positives. Candidates that it
leaves out are not measured and not counted. A fixed share of them is measured all the same, so
that a wrong classifier is noticed. Candidates that TVM refuses are not counted either: four of five
random candidates for a GPU exceed its limits.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from toolkit.live.space.space import MetaScheduleSpace
from toolkit.records import Candidate, Trial, TrialState
from toolkit.search.base import Oracle

# Elapsed seconds are an outlier above this multiple of the median and above this many seconds.
SLOW = 5.0
SLOW_S = 1.0

# Trials, and bad trials among them, before the first fit; and new trials before the next fit.
ENOUGH, ENOUGH_BAD, REFIT = 48, 6, 32

# Probability from which a candidate is left out, and the share that is measured all the same.
CERTAIN = 0.9
LOOK_AGAIN = 0.1


class AvoidingOracle:
    """Measures, through another oracle, the candidates that are not predicted to be a waste.

    ``avoided`` is the number of candidates that were left out so far.
    """

    def __init__(self, oracle: Oracle, space: MetaScheduleSpace) -> None:
        self._oracle = oracle
        self._space = space
        self._features: list[NDArray[np.float32]] = []
        self._elapsed: list[float] = []
        self._failed: list[bool] = []
        self._fitted_at = 0
        self._model: Any = None
        self._told: NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)
        self.avoided = 0

    def measure(self, candidates: Sequence[Candidate]) -> list[Trial]:
        """Measure the promising candidates; at least one of a batch, so that a search goes on.

        Candidates that TVM refuses have no trial in the result, unless it refuses all.
        """
        chance = self.chances(candidates)
        taken = [
            candidate
            for candidate, bad in zip(candidates, chance, strict=True)
            if bad < CERTAIN or _look_again(candidate)
        ]
        if candidates and not taken:
            taken = [candidates[int(np.argmin(chance))]]
        self.avoided += len(candidates) - len(taken)
        trials = self._oracle.measure(taken)
        self._learn(trials)
        return [t for t in trials if t.state is not TrialState.INSTANTIATION] or trials[:1]

    def chances(self, candidates: Sequence[Candidate]) -> NDArray[np.float64]:
        """Return each candidate's probability to fail or take too long; 0 before the first fit."""
        if self._model is None or not candidates:
            return np.zeros(len(candidates))
        features = self._space.features(candidates)
        with _one_thread():
            chance = self._model.predict_proba(features[:, self._told])[:, 1]
        return np.asarray(chance, dtype=np.float64)

    def _learn(self, trials: Sequence[Trial]) -> None:
        # A candidate that TVM refuses costs nothing, and is no failure of the device.
        told = [t for t in trials if t.state is not TrialState.INSTANTIATION]
        if not told:
            return
        self._features.append(self._space.features([t.candidate for t in told]))
        self._elapsed += [t.elapsed_s for t in told]
        self._failed += [t.state is not TrialState.OK for t in told]
        count = len(self._elapsed)
        if count < ENOUGH or count - self._fitted_at < REFIT:
            return
        self._fitted_at = count
        elapsed = np.array(self._elapsed)
        slow = elapsed > max(SLOW * float(np.median(elapsed)), SLOW_S)
        bad = slow | np.array(self._failed)
        features = np.concatenate(self._features)
        # The classifier cannot bin columns without any value in this space.
        self._told = np.asarray(np.isfinite(features).any(axis=0))
        self._model = None
        if bad.sum() < ENOUGH_BAD or bad.all() or not self._told.any():
            return
        from sklearn.ensemble import HistGradientBoostingClassifier

        model = HistGradientBoostingClassifier(
            max_iter=60, max_leaf_nodes=15, min_samples_leaf=3, random_state=0
        )
        with _one_thread():
            self._model = model.fit(features[:, self._told], bad)


def _one_thread() -> AbstractContextManager[Any]:
    """Limit OpenMP to one thread: more do not help with few rows, and wait on a busy machine."""
    from threadpoolctl import threadpool_limits

    limit: AbstractContextManager[Any] = threadpool_limits(limits=1, user_api="openmp")
    return limit


def _look_again(candidate: Candidate) -> bool:
    """Return whether a candidate is in the share measured anyway; the same in every run."""
    digits = "".join(c for c in candidate.candidate_id if c in "0123456789abcdef")
    return int(digits[-8:] or "0", 16) / 0xFFFFFFFF < LOOK_AGAIN
