"""A trained ensemble, corrected by a few records of what it never saw: another task or machine.

Two corrections are averaged, each of which may be left out:

- ``process``: a Gaussian process on the prediction's error (Rasmussen and Williams 2006, algorithm
  2.1). Two candidates are alike as far as the ensemble's trees put them into the same leaves (the
  kernel of a random forest, Breiman 2000): what the offline data say of similarity is kept even
  where what they say of speed is wrong. The offline prediction's slope is uncertain as well.
- ``stacked``: boosted trees from nothing but the new records, on their features and the offline
  prediction as one more column (Wolpert 1992): with many records, they can leave it behind.

Every task has a level of its own, so that records of several tasks can be learnt from at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import lightgbm
import numpy as np
from numpy.typing import NDArray

from toolkit.training.ensemble import Ensemble

Floats = NDArray[np.float64]

MOST = 1000
"""The process is conditioned on at most so many records, the newest: its cost is cubic."""


@dataclass(frozen=True)
class AdaptOptions:
    """How far the offline prediction is believed; deviations are of log throughput.

    Attributes
    ----------
    method
        ``process``, ``stacked``, or both, averaged (see the module).
    error, slope, noise
        Prior deviations of the prediction's error, of its slope, and of a measurement.
    clip
        Largest error that is believed, around the task's median (Huber 1981).
    fewest
        Records that a task needs before trees are grown on them.
    """

    method: Literal["process", "stacked", "both"] = "both"
    error: float = 1.0
    slope: float = 0.6
    noise: float = 0.1
    clip: float = 1.0
    fewest: int = 16


class Adapted:
    """An ensemble and what new records say of it; without records it predicts as the ensemble.

    Parameters
    ----------
    ensemble
        What was trained offline; ``None`` for a model of the new records alone.
    features, log_throughput, group
        The new records: ``(n, d)`` in the ensemble's columns, log of 1 / latency, task number.
    """

    def __init__(
        self,
        ensemble: Ensemble | None,
        features: NDArray[np.float32],
        log_throughput: Floats,
        group: NDArray[np.int64],
        options: AdaptOptions | None = None,
        *,
        seed: int = 0,
    ) -> None:
        self._ensemble = ensemble
        self._options = options or AdaptOptions()
        features, log_throughput, group = (
            part[-MOST:] for part in (features, log_throughput, group)
        )
        self._prior = self._offline(features)
        error = _centred(log_throughput - self._prior, group)
        self._error = np.clip(error, -self._options.clip, self._options.clip)
        self._weights: Floats | None = None
        self._trees: lightgbm.Booster | None = None
        self._shift = 0.0
        process = self._options.method != "stacked" and ensemble is not None
        if process and len(group):
            self._condition(features, group)
        stacked = self._options.method != "process" or ensemble is None
        if stacked and len(group) >= self._options.fewest:
            self._grow(features, log_throughput, group, seed)

    def _offline(self, features: NDArray[np.float32]) -> Floats:
        if self._ensemble is None:
            return np.zeros(len(features))
        return self._ensemble.predict(features)

    def _condition(self, features: NDArray[np.float32], group: NDArray[np.int64]) -> None:
        assert self._ensemble is not None
        o = self._options
        self._leaves = leaves_of(self._ensemble, features)
        covariance = self._kernel(self._prior, self._leaves)
        # The level of a task is unknown; what it is does not change the order of its candidates.
        covariance += 4.0 * (group[:, None] == group[None, :])
        covariance[np.diag_indices_from(covariance)] += o.noise**2
        self._weights = np.linalg.solve(covariance, self._error)

    def _kernel(self, prior: Floats, leaves: NDArray[np.int32]) -> Floats:
        o = self._options
        alike = np.empty((len(prior), len(self._prior)))
        for i, row in enumerate(self._leaves):
            alike[:, i] = (leaves == row).mean(axis=1) if leaves.shape[1] else 0.0
        return o.error**2 * alike + o.slope**2 * np.outer(prior, self._prior)

    def _grow(
        self,
        features: NDArray[np.float32],
        log_throughput: Floats,
        group: NDArray[np.int64],
        seed: int,
    ) -> None:
        parameters: dict[str, Any] = {
            "objective": "regression",
            "num_leaves": 4 if len(group) < 200 else 15,
            "min_data_in_leaf": 5,
            "min_data_in_bin": 1,
            "learning_rate": 0.1,
            "lambda_l2": 1.0,
            "feature_fraction": 0.5,
            "num_threads": 1,
            "seed": seed,
            "deterministic": True,
            "force_row_wise": True,
            "verbosity": -1,
        }
        limit = 2 * self._options.clip
        target = np.clip(_centred(log_throughput, group), -limit, limit)
        data = lightgbm.Dataset(self._stack(features, self._prior), target, params=parameters)
        self._trees = lightgbm.train(parameters, data, num_boost_round=100)
        # The trees' constant is brought to the offline prediction's, on the new records.
        prior = self._prior
        known = self._corrected(features, prior) - self._grown(features, prior)
        self._shift = float(known.mean())

    @staticmethod
    def _stack(features: NDArray[np.float32], prior: Floats) -> NDArray[np.float32]:
        return np.column_stack([features, prior.astype(np.float32)])

    def predict(self, features: NDArray[np.float32]) -> Floats:
        """Log throughput up to a constant of the task, one a row; higher is faster."""
        if len(features) == 0:
            return np.zeros(0)
        prior = self._offline(features)
        found = self._corrected(features, prior)
        if self._trees is None:
            return found
        grown = self._grown(features, prior) + self._shift
        return grown if self._weights is None else (found + grown) / 2

    def _corrected(self, features: NDArray[np.float32], prior: Floats) -> Floats:
        if self._weights is None:
            return prior
        assert self._ensemble is not None
        kernel = self._kernel(prior, leaves_of(self._ensemble, features))
        return np.asarray(prior + kernel @ self._weights)

    def _grown(self, features: NDArray[np.float32], prior: Floats) -> Floats:
        assert self._trees is not None
        found = self._trees.predict(self._stack(features, prior), num_threads=1)
        return np.asarray(found, dtype=np.float64)


def leaves_of(ensemble: Ensemble, features: NDArray[np.float32]) -> NDArray[np.int32]:
    """Leaf of each tree of an ensemble's models, ``(n, trees)``; models without trees have none."""
    found = [np.zeros((len(features), 0), dtype=np.int32)]
    for part in ensemble.parts:
        leaves = getattr(part.model, "leaves", None)
        if leaves is not None:
            found.append(leaves(features))
    return np.concatenate(found, axis=1)


def _centred(values: Floats, group: NDArray[np.int64]) -> Floats:
    """Values minus the median of their task."""
    result = np.empty(len(values))
    for number in np.unique(group):
        own = group == number
        result[own] = values[own] - np.median(values[own])
    return result
