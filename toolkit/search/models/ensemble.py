"""A bootstrap ensemble of cost models, and its acquisition values.

Chen et al. 2018 (AutoTVM), section 5.1, compare expected improvement and upper confidence bounds on
bootstrapped models with the plain mean, and find little benefit.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from toolkit.search.models.cost_model import CostModelOptions, OnlineCostModel
from toolkit.search.moves.knobs import FloatArray


class BootstrapEnsemble(OnlineCostModel):
    """Models on bootstrap samples; predicts an acquisition value (higher is more worth trying)."""

    def __init__(
        self,
        options: CostModelOptions,
        rng: np.random.Generator,
        members: int,
        acquisition: Literal["ei", "ucb"],
        exploration: float,
    ) -> None:
        super().__init__(options, 0)
        self._rng, self._acquisition, self._exploration = rng, acquisition, exploration
        seeds = rng.integers(2**31, size=members).tolist()
        self._members = [OnlineCostModel(options, int(seed)) for seed in seeds]

    @property
    def fitted(self) -> bool:
        """Whether every member is trained."""
        return all(member.fitted for member in self._members)

    def fit(
        self,
        features: NDArray[np.float32],
        throughput: FloatArray,
        weight: FloatArray | None = None,
    ) -> None:
        """Train each member on its own sample, drawn with replacement."""
        if throughput.max(initial=0.0) <= 0:
            return
        best = int(throughput.argmax())
        for member in self._members:
            drawn = self._rng.integers(len(throughput), size=len(throughput))
            drawn[0] = best  # so that all members have the same scale
            member.fit(features[drawn], throughput[drawn])

    def predict(self, features: NDArray[np.float32]) -> FloatArray:
        """Acquisition value of each row."""
        each = np.array([member.predict(features) for member in self._members])
        mean, deviation = each.mean(axis=0), each.std(axis=0, ddof=1)
        if self._acquisition == "ucb":
            return np.asarray(mean + self._exploration * deviation)
        return expected_improvement(mean, deviation, 1.0)  # the best measured has target 1


def expected_improvement(mean: FloatArray, deviation: FloatArray, best: float) -> FloatArray:
    """Mean of max(value - best, 0) for normal values, plus a millionth of value - best."""
    from scipy.special import ndtr

    gap = mean - best
    z = gap / np.maximum(deviation, 1e-12)
    density = np.exp(-0.5 * z * z) / np.sqrt(2.0 * np.pi)
    # Far below the best the mean underflows to 0: the small multiple of the gap keeps the order.
    return np.asarray(gap * ndtr(z) + deviation * density + 1e-6 * gap)
