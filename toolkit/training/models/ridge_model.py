"""A scikit-learn baseline: ridge regression on signed logarithms of the features.

Stored as one ``.npz`` of its coefficients: scikit-learn has no format of its own but pickle.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from toolkit.errors import RecipeError
from toolkit.training.arrays import Floats, Matrix
from toolkit.training.models.base import (
    TrainingRows,
    column_means,
    normalised,
    read_npz,
    signed_logs,
)
from toolkit.training.recipes.recipe import ModelOptions


class RidgeModel:
    """Linear in signed logarithms; an absent quantity counts as its mean."""

    library = "ridge"
    suffix = ".npz"

    def __init__(self, mean: Floats, scale: Floats, slope: Floats, intercept: float) -> None:
        self._mean, self._scale, self._slope = mean, scale, slope
        self._intercept = intercept

    @classmethod
    def check(cls, params: dict[str, Any]) -> tuple[list[str], list[str]]:
        """Return the unknown names among parameters, and the one known name."""
        alpha = params.get("alpha", 10.0)
        if isinstance(alpha, str | bool) or not 0 <= alpha < float("inf"):
            raise ValueError(f"alpha must be a finite number of 0 or more, not {alpha!r}")
        return [name for name in params if name != "alpha"], ["alpha"]

    @classmethod
    def fit(
        cls, rows: TrainingRows, options: ModelOptions, *, seed: int, threads: int, device: str
    ) -> RidgeModel:
        """Fit by scikit-learn's ``Ridge``; ``params.alpha`` is the penalty (default 10)."""
        del seed, threads
        from sklearn.linear_model import Ridge

        if options.objective != "squared" or device != "cpu":
            raise RecipeError("ridge needs objective = 'squared' and device = 'cpu'")
        values = signed_logs(rows.features)
        mean = column_means(values)
        centred = np.where(np.isfinite(values), values - mean, 0.0)
        scale = np.sqrt((centred**2).mean(axis=0))
        scale[scale == 0] = 1.0
        model = Ridge(alpha=float(options.params.get("alpha", 10.0)))
        model.fit(centred / scale, rows.target, sample_weight=rows.weight)
        return cls(mean, scale, np.asarray(model.coef_), float(model.intercept_))

    @classmethod
    def load(cls, path: Path) -> RidgeModel:
        """Read the coefficients."""
        with read_npz(path) as kept:
            return cls(kept["mean"], kept["scale"], kept["slope"], float(kept["intercept"]))

    def save(self, path: Path) -> None:
        """Write the coefficients."""
        kept: dict[str, Any] = {"mean": self._mean, "scale": self._scale, "slope": self._slope}
        np.savez(path, **kept, intercept=np.array(self._intercept))

    def predict(self, features: Matrix) -> Floats:
        """Linear prediction."""
        values = signed_logs(features)
        centred = np.where(np.isfinite(values), values - self._mean, 0.0) / self._scale
        return np.asarray(centred @ self._slope + self._intercept)

    def importance(self) -> Floats:
        """Share of the absolute standardised coefficients."""
        return normalised(np.abs(self._slope))
