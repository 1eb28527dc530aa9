"""Uncertainty-aware choice: a bootstrap ensemble and an acquisition function.

Chen et al. 2018 (AutoTVM), section 5.1, compare expected improvement and upper confidence bounds on
bootstrapped models with the plain mean, and find that they bring little.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from scipy.special import ndtr

from toolkit.search.models.cost_model import CostModelOptions, OnlineCostModel
from toolkit.search.strategies.annealing import Annealing, AnnealingOptions

FloatArray = NDArray[np.float64]


class BayesOptions(AnnealingOptions):
    """Options of annealing and of the ensemble."""

    members: int = Field(default=5, ge=2, description="models, each on a bootstrap sample")
    exploration: float = Field(
        default=1.0, ge=0, description="deviations above the mean (upper confidence bound)"
    )
    model: CostModelOptions = CostModelOptions(loss="squared")


class BootstrapEnsemble(OnlineCostModel):
    """Models on bootstrap samples; predicts an acquisition value (higher is more worth trying)."""

    def __init__(
        self, options: BayesOptions, rng: np.random.Generator, acquisition: Literal["ei", "ucb"]
    ) -> None:
        super().__init__(options.model, 0)
        self._rng, self._acquisition = rng, acquisition
        self._exploration = options.exploration
        seeds = rng.integers(2**31, size=options.members).tolist()
        self._members = [OnlineCostModel(options.model, int(seed)) for seed in seeds]
        self._best = 1.0  # targets are relative to the best measured

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
        top = float(throughput.max(initial=0.0))
        if top <= 0:
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
        return expected_improvement(mean, deviation, self._best)


def expected_improvement(mean: FloatArray, deviation: FloatArray, best: float) -> FloatArray:
    """Mean of max(value - best, 0) for normal values; the plain gap where nothing is uncertain."""
    gap = mean - best
    z = gap / np.maximum(deviation, 1e-12)
    density = np.exp(-0.5 * z * z) / np.sqrt(2.0 * np.pi)
    # Far below the best the integral underflows: the gap then keeps the order.
    return np.asarray(gap * ndtr(z) + deviation * density + 1e-6 * gap)


class Bayes(Annealing):
    """Annealing over an acquisition value in place of a prediction."""

    Options = BayesOptions
    options: BayesOptions
    acquisition: ClassVar[Literal["ei", "ucb"]]

    def setup(self) -> None:
        """Start without a model."""
        super().setup()
        self._model = BootstrapEnsemble(self.options, self.rng, self.acquisition)


class BayesEI(Bayes):
    """Annealing over the expected improvement that a bootstrap ensemble predicts."""

    name = "bayes-ei"
    source = "Chen et al. 2018 (AutoTVM), section 5.1; expected improvement (Mockus 1978)"
    acquisition = "ei"


class BayesUCB(Bayes):
    """Annealing over the upper confidence bound of a bootstrap ensemble."""

    name = "bayes-ucb"
    source = "Chen et al. 2018 (AutoTVM), section 5.1; upper confidence bound (Auer 2002)"
    acquisition = "ucb"
