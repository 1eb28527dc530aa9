"""A Gaussian process on the error of a prior prediction, over one space's candidates.

Rasmussen and Williams 2006, "Gaussian Processes for Machine Learning", algorithm 2.1, with the
Cholesky factor grown by a row for each measurement. The residual of log throughput is

    c + b * prior + sum over columns of a main effect + an interaction of all columns + noise

with Matern 5/2 kernels on the columns. Residuals are clipped around their median: a
candidate that is four times slower than predicted says little about its neighbours (bounded
influence, Huber 1981).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, NonNegativeFloat, PositiveFloat

from toolkit.search.moves.knobs import FloatArray
from toolkit.search.strategy import StrategyOptions

LEVEL = 2.0  # prior standard deviation of c: the task's level, unknown to models of other tasks


class ResidualOptions(StrategyOptions):
    """Standard deviations are of log throughput; lengths are in units of the columns (log2)."""

    main: PositiveFloat = Field(default=0.15, description="prior deviation of the main effects")
    interaction: NonNegativeFloat = Field(
        default=0.15, description="prior deviation of interactions"
    )
    main_length: PositiveFloat = Field(
        default=2.0, description="length scale of main effects, in log2 of a knob's value"
    )
    interaction_length: PositiveFloat = Field(
        default=3.0, description="length scale of interactions, likewise"
    )
    slope: NonNegativeFloat = Field(
        default=0.6, description="prior deviation of b: uncertainty of the prediction's scale"
    )
    noise: PositiveFloat = Field(default=0.03, description="standard deviation of a measurement")
    clip: PositiveFloat = Field(
        default=0.3, description="residuals are clipped at this distance from their median"
    )


def matern(squared: FloatArray) -> FloatArray:
    """Matern 5/2 kernel of squared distances in units of the length."""
    r = np.sqrt(5.0 * squared)
    return np.asarray((1.0 + r + r * r / 3.0) * np.exp(-r))


class ResidualProcess:
    """Posterior of all candidates given the measured ones.

    ``columns``, ``(n, d)``, are numbers that describe the candidates; NaN (a knob that a sketch
    lacks) counts as 0, and an extra column marks it. ``prior``, ``(n,)``, is
    predicted log throughput, up to a constant and a factor.
    """

    def __init__(
        self, columns: NDArray[np.float32], prior: FloatArray, options: ResidualOptions
    ) -> None:
        absent = np.isnan(columns)
        some = absent.any(axis=0)
        x = np.hstack([np.where(absent, 0.0, columns), 4.0 * absent[:, some]]).astype(np.float64)
        self._x = x[:, np.ptp(x, axis=0) > 0] if len(x) else x
        self.prior = prior - prior.max(initial=-np.inf) if len(prior) else prior
        self._options = o = options
        self._variance = (
            LEVEL**2
            + o.slope**2 * self.prior**2
            + (o.main**2 if self._x.shape[1] else 0.0)
            + o.interaction**2
        )
        n = len(self.prior)
        self._left = self._variance.copy()  # posterior variance
        self._rows = np.empty((64, n))  # L^-1 K, one row per measurement
        self._factor = np.zeros((64, 64))
        self.measured: list[int] = []
        self._residuals: list[float] = []
        self._known: tuple[FloatArray, FloatArray] | None = None

    def __len__(self) -> int:
        """Number of measurements taken in."""
        return len(self.measured)

    def _kernel(self, i: int) -> FloatArray:
        o = self._options
        squared = (self._x - self._x[i]) ** 2
        out: FloatArray = LEVEL**2 + o.slope**2 * self.prior * self.prior[i]
        if squared.shape[1]:
            out = out + o.main**2 * matern(squared / o.main_length**2).mean(axis=1)
        return out + o.interaction**2 * matern(squared.sum(axis=1) / o.interaction_length**2)

    def add(self, i: int, log_throughput: float) -> None:
        """Take in a measurement of candidate i; ``-inf`` for a failure."""
        t = len(self.measured)
        if t == len(self._rows):
            self._rows = np.vstack([self._rows, np.empty_like(self._rows)])
            self._factor = np.pad(self._factor, (0, t))
        kernel = self._kernel(i)
        above = self._rows[:t, i]
        diagonal = np.sqrt(self._variance[i] + self._options.noise**2 - above @ above)
        row = (kernel - above @ self._rows[:t]) / diagonal
        self._rows[t] = row
        self._factor[t, :t], self._factor[t, t] = above, diagonal
        self._left = np.maximum(self._left - row * row, 1e-12)
        self._known = None
        self.measured.append(i)
        self._residuals.append(log_throughput - float(self.prior[i]))

    def posterior(self) -> tuple[FloatArray, FloatArray]:
        """Mean and standard deviation of every candidate's log throughput."""
        if self._known is None:
            self._known = self._mean(), np.sqrt(self._left)
        return self._known

    def _mean(self) -> FloatArray:
        from scipy.linalg import solve_triangular

        t = len(self.measured)
        if t == 0:
            return self.prior
        residuals = np.array(self._residuals)
        known = residuals[np.isfinite(residuals)]
        middle = float(np.median(known)) if len(known) else 0.0
        clip = self._options.clip
        believed = np.clip(residuals, middle - clip, middle + clip)
        factor = self._factor[:t, :t]
        weights = solve_triangular(factor, believed, lower=True, check_finite=False)
        return np.asarray(self.prior + weights @ self._rows[:t])
