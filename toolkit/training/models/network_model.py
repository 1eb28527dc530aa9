"""A small neural network: smooth where trees have steps; it errs on other tasks than trees do.

Each quantity is given twice: as its standardised signed logarithm, and as its place among the
training rows' values. Stored as one ``.npz`` of its weights: scikit-learn has no format but pickle.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from toolkit.training.arrays import Bools, Floats, Matrix
from toolkit.training.models.base import (
    SmallNetwork,
    TrainingRows,
    column_means,
    normalised,
    one_blas_thread,
    read_npz,
    signed_logs,
)
from toolkit.training.recipes.recipe import ModelOptions

PLACES = 65
"""Number of quantiles of a column that define its places; equal ones count once."""

EDGE = 1.7
"""Places run from minus this to this: about the spread of a standardised column."""

FAR = 4.0
"""Standard deviations at which logarithms are clipped: other tasks may lie far from known ones."""

_KEPT = ("mean", "scale", "marks", "partly")

_Weights = tuple[NDArray[np.float32], ...]


@dataclass(frozen=True)
class Inputs:
    """The mapping from features to a network's inputs, learned from the training rows.

    ``marks`` are each column's distinct quantiles, ascending, padded with NaN; ``partly`` marks
    the columns that are absent in some training rows.
    """

    mean: Floats
    scale: Floats
    marks: Floats
    partly: Bools

    @classmethod
    def of(cls, features: Matrix) -> Inputs:
        """Learn means, spreads and places from the training rows ``(n, d)``."""
        values = signed_logs(features)
        known, mean = np.isfinite(values), column_means(values)
        spread = np.sqrt(column_means((values - mean) ** 2))
        marks = np.full((values.shape[1], PLACES), np.nan)
        for column in range(values.shape[1]):
            own = values[known[:, column], column]
            if len(own):
                distinct = np.unique(np.quantile(own, np.linspace(0.0, 1.0, PLACES)))
                marks[column, : len(distinct)] = distinct
        partly = np.asarray(known.any(axis=0) & ~known.all(axis=0))
        return cls(mean, np.where(spread > 0, spread, 1.0), marks, partly)

    @cached_property
    def _places(self) -> list[tuple[int, Floats, Floats]]:
        """Columns that have places: number, distinct quantiles, and where each of them lies."""
        found = []
        for column, marks in enumerate(self.marks):
            distinct = marks[np.isfinite(marks)]
            if len(distinct) > 1:
                found.append((column, distinct, np.linspace(-EDGE, EDGE, len(distinct))))
        return found

    @classmethod
    def load(cls, kept: Mapping[str, Any]) -> Inputs:
        """Rebuild from the arrays that ``arrays`` returned."""
        return cls(*(kept[name] for name in _KEPT))

    def arrays(self) -> dict[str, Any]:
        """Return the arrays to store, by name."""
        return {name: getattr(self, name) for name in _KEPT}

    def shares(self, ways: Floats) -> Floats:
        """Add up the inputs' weights ``ways`` by column; the result sums to 1 or 0."""
        width = len(self.mean)
        found = np.asarray(ways[:width] + ways[width : 2 * width])
        found[self.partly] += ways[2 * width :]
        return normalised(found)

    def apply(self, features: Matrix) -> Matrix:
        """Return inputs: logarithms, places, and absence of a quantity; absent ones are 0."""
        values = np.ascontiguousarray(signed_logs(features).T)  # Work goes column by column.
        known = np.isfinite(values)
        width = len(values)
        inputs = np.zeros((2 * width + int(self.partly.sum()), len(features)), dtype=np.float32)
        mean, scale = self.mean[:, None], self.scale[:, None]
        standard = np.clip((np.where(known, values, 0.0) - mean) / scale, -FAR, FAR)
        inputs[:width] = np.where(known, standard, 0.0)
        for column, distinct, places in self._places:
            found = np.interp(values[column], distinct, places)
            inputs[width + column] = np.where(known[column], found, 0.0)
        inputs[2 * width :] = ~known[self.partly]
        return np.ascontiguousarray(inputs.T)


class NetworkModel(SmallNetwork):
    """A perceptron of two hidden layers with rectified linear units."""

    library = "network"
    suffix = ".npz"
    SUBJECT = "a network"
    DEFAULTS: ClassVar = {"width": 128.0, "alpha": 1e-3, "learning_rate": 2e-3, "batch": 512.0}
    """Units of the first hidden layer (the second has half of it), penalty of squared weights,
    step of Adam, rows per step."""

    def __init__(self, inputs: Inputs, weights: _Weights, biases: _Weights) -> None:
        self._inputs, self._weights, self._biases = inputs, weights, biases

    @classmethod
    def fit(
        cls, rows: TrainingRows, options: ModelOptions, *, seed: int, threads: int, device: str
    ) -> NetworkModel:
        """Fit by scikit-learn's ``MLPRegressor`` (Adam), ``rounds`` times over all rows."""
        del threads  # One thread: more threads slow small products down.
        from sklearn.neural_network import MLPRegressor

        chosen = cls.chosen(options, device)
        width = max(2, int(chosen["width"]))
        inputs = Inputs.of(rows.features)
        centre = float(np.average(rows.target, weights=rows.weight))
        spread = max(float(np.std(rows.target)), 1e-12)
        model = MLPRegressor(
            hidden_layer_sizes=(width, width // 2),
            alpha=chosen["alpha"],
            learning_rate_init=chosen["learning_rate"],
            batch_size=min(max(1, int(chosen["batch"])), len(rows.target)),
            max_iter=1,
            random_state=seed,
        )
        given = inputs.apply(rows.features)
        wanted = ((rows.target - centre) / spread).astype(np.float32)
        weight = rows.weight.astype(np.float32)
        with one_blas_thread():
            for _ in range(options.rounds):
                model.partial_fit(given, wanted, sample_weight=weight)
        # Row-major, as they are read back, so that sums are formed in the same order.
        weights = [np.ascontiguousarray(w, dtype=np.float32) for w in model.coefs_]
        biases = [np.asarray(b, dtype=np.float32) for b in model.intercepts_]
        weights[-1] = weights[-1] * np.float32(spread)
        biases[-1] = biases[-1] * np.float32(spread) + np.float32(centre)
        return cls(inputs, tuple(weights), tuple(biases))

    @classmethod
    def load(cls, path: Path) -> NetworkModel:
        """Read the weights."""
        with read_npz(path) as kept:
            layers = range(int(kept["layers"]))
            return cls(
                Inputs.load(kept),
                tuple(kept[f"weight_{n}"] for n in layers),
                tuple(kept[f"bias_{n}"] for n in layers),
            )

    def save(self, path: Path) -> None:
        """Write the weights."""
        kept: dict[str, Any] = {"layers": np.array(len(self._weights)), **self._inputs.arrays()}
        kept.update((f"weight_{n}", weight) for n, weight in enumerate(self._weights))
        kept.update((f"bias_{n}", bias) for n, bias in enumerate(self._biases))
        np.savez_compressed(path, **kept)

    def predict(self, features: Matrix) -> Floats:
        """Output of the last layer, in the target's unit."""
        passed = self._inputs.apply(features)
        last = len(self._weights) - 1
        with one_blas_thread():
            for number, (weight, bias) in enumerate(zip(self._weights, self._biases, strict=True)):
                passed = passed @ weight + bias
                if number < last:
                    np.maximum(passed, 0.0, out=passed)
        return np.asarray(passed[:, 0], dtype=np.float64)

    def importance(self) -> Floats:
        """Share of each column in the absolute weights along all paths to the output."""
        ways = np.abs(self._weights[-1].astype(np.float64))
        for weight in reversed(self._weights[:-1]):
            ways = np.abs(weight) @ ways
        return self._inputs.shares(ways[:, 0])
