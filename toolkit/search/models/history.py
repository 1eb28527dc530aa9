"""What a run has measured so far, in the arrays that models are trained on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from toolkit.records import Candidate, Trial
from toolkit.search.base import Space
from toolkit.search.strategy import throughput

FloatArray = NDArray[np.float64]


class History:
    """Measured candidates with features and throughput (1/s; 0 for a failure).

    A candidate that is measured again keeps both measurements.
    """

    def __init__(self, space: Space) -> None:
        self._space = space
        self.candidates: list[Candidate] = []
        self._throughput: list[float] = []
        self._features: list[NDArray[np.float32]] = []

    def __len__(self) -> int:
        """Number of measurements."""
        return len(self.candidates)

    def add(self, trials: Sequence[Trial]) -> None:
        """Keep a batch."""
        if not trials:
            return
        batch = [trial.candidate for trial in trials]
        self.candidates += batch
        self._throughput += [throughput(trial) for trial in trials]
        self._features.append(self._space.features(batch))

    def features(self) -> NDArray[np.float32]:
        """Features of all measurements, ``(n, d)``."""
        return np.concatenate(self._features)

    def throughput(self) -> FloatArray:
        """Throughput of all measurements, ``(n,)``, in 1/s; 0 for failures."""
        return np.array(self._throughput)

    def best(self, n: int) -> list[Candidate]:
        """Return the n fastest measured candidates, best first; failures never."""
        order = np.argsort(-np.array(self._throughput), kind="stable")
        found: dict[str, Candidate] = {}
        for i in order.tolist():
            if len(found) == n or self._throughput[i] <= 0:
                break
            found.setdefault(self.candidates[i].candidate_id, self.candidates[i])
        return list(found.values())
