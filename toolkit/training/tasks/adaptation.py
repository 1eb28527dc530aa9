"""Correct a trained ensemble by a few records of a task or machine that it never saw.

Two corrections are mixed:

- a *process*: a Gaussian process on the prediction's error (Rasmussen and Williams 2006, algorithms
  2.1 and 5.1). Two candidates are as similar as the share of the ensemble's trees that put them
  into the same leaf (the kernel of a random forest, Breiman 2000): what the offline data say about
  similarity is used even where they are wrong about speed. The deviations of the prediction's
  error, of its slope and of a record are chosen by marginal likelihood.
- *stacked* trees (Wolpert 1992), trained only on the new records, with the offline prediction as
  one more column: with many records, they can override it.

Cross-validation on the new records decides the weight of each. A third correction is not mixed:
*residual* trees, the same on the prediction's error. They are fast, and far from the new records
the offline prediction remains. Records of a search hold only what a model preferred, so that
stacked trees know nothing about the other candidates.

Every task has a level of its own, so that records of several tasks can be used at once.
"""

from __future__ import annotations

import itertools
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from toolkit.training.arrays import Floats, Ints, Matrix
from toolkit.training.members.ensemble import Ensemble

Leaves = NDArray[np.int32]
"""Leaf of each tree that a candidate falls into, ``(n, trees)``."""

MOST = 1000
"""Maximum number of records used, the newest ones: the cost of the process is cubic."""

LEVEL = 2.0
"""Prior deviation of a task's unknown level, which does not change the candidates' order."""

GRID = tuple(itertools.product((0.25, 0.5, 1.0, 2.0), (0.1, 0.3, 0.6, 1.0), (0.1, 0.3)))
"""Deviations of the prediction's error, of its slope, and of a record, in log throughput."""

MIDDLE = (1.0, 0.6, 0.1)
"""Centre of the prior of these deviations (log-normal with deviation 1)."""

FOLDS = 4

CLIP = 1.0
"""Errors are clipped at this distance from the task's median (Huber 1981), in log throughput."""

ALONE, BESIDE = 10, 32
"""Minimum number of records for trees: without the process, and with it."""


class Process:
    """Posterior of the offline prediction's error, given new records.

    For each record: ``prior`` and ``leaves`` are the offline prediction and the leaves
    ``(n, trees)``, ``error`` is the prediction's centred and clipped error, ``group`` the task.
    """

    def __init__(self, prior: Floats, leaves: Leaves, error: Floats, group: Ints) -> None:
        self._prior, self._leaves = prior, leaves
        alike = _alike(leaves, leaves)
        level = LEVEL**2 * (group[:, None] == group[None, :])
        best = -np.inf
        for deviations in GRID:
            spread, slope, noise = deviations
            covariance = spread**2 * alike + slope**2 * np.outer(prior, prior) + level
            covariance[np.diag_indices_from(covariance)] += noise**2
            factor = np.linalg.cholesky(covariance)
            weights = np.linalg.solve(covariance, error)
            off = np.log(np.array(deviations) / MIDDLE)
            evidence = -error @ weights / 2 - np.log(np.diag(factor)).sum() - off @ off / 2
            if evidence > best:
                best = float(evidence)
                self._spread, self._slope = spread, slope
                self._weights = np.asarray(weights, dtype=np.float64)

    def predict(self, prior: Floats, leaves: Leaves) -> Floats:
        """Corrected predictions, up to a constant of the task."""
        kernel = self._spread**2 * _alike(leaves, self._leaves)
        kernel += self._slope**2 * np.outer(prior, self._prior)
        return np.asarray(prior + kernel @ self._weights)


class Stacked:
    """Boosted trees on the features and the offline prediction of the new records alone."""

    def __init__(
        self, features: Matrix, prior: Floats, target: Floats, rows: int, seed: int
    ) -> None:
        parameters: dict[str, Any] = {
            "objective": "regression",
            "num_leaves": 4 if rows < 200 else 15,
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
        import lightgbm  # takes a second or two, and few searches stack trees

        data = lightgbm.Dataset(_stack(features, prior), target, params=parameters)
        self._trees = lightgbm.train(parameters, data, num_boost_round=100)

    def predict(self, features: Matrix, prior: Floats) -> Floats:
        """Predicted log throughput, up to a constant of the task."""
        found = self._trees.predict(_stack(features, prior), num_threads=1)
        return np.asarray(found, dtype=np.float64)


class Adapted:
    """An ensemble corrected by new records; without records it predicts as the ensemble.

    ``ensemble`` was trained offline; ``None`` gives a model of the new records alone. The records
    are ``features`` ``(n, d)`` in the ensemble's columns, log of 1 / latency, and task number.
    ``method`` is ``residual``, or ``both``: the process and stacked trees, mixed.
    ``share`` is the weight of the stacked trees in the prediction, 0 to 1.
    """

    def __init__(
        self,
        ensemble: Ensemble | None,
        features: Matrix,
        log_throughput: Floats,
        group: Ints,
        *,
        method: Literal["residual", "both"] = "both",
        seed: int = 0,
    ) -> None:
        self._ensemble, self._seed = ensemble, seed
        self._leafless = method == "residual"
        self._features, self._group = features[-MOST:], group[-MOST:]
        self._value = log_throughput[-MOST:]
        self._prior, self._leaves = self._offline(self._features)
        rows = np.arange(len(self._group))
        self._process = self._stacked = self._residual = None
        self.share = self._shift = 0.0
        if method == "residual":
            if len(rows) >= ALONE:
                self._residual = self._grow(rows, self._value - self._prior, CLIP)
            return
        if ensemble is not None and len(rows):
            self._process = self._condition(rows)
        # Without the process, trees are used as soon as they can split.
        fewest = ALONE if self._process is None else BESIDE
        if len(rows) >= fewest:
            self._stacked = self._grow(rows, self._value, 2 * CLIP)
            self.share = 1.0 if self._process is None else self._mixed(rows)
            # Shifts the trees' predictions to the level of the corrected ones, on the new records.
            grown = self._stacked.predict(self._features, self._prior)
            self._shift = float(np.mean(self._corrected(self._prior, self._leaves) - grown))

    def _offline(self, features: Matrix) -> tuple[Floats, Leaves]:
        none = np.zeros((len(features), 0), dtype=np.int32)
        if self._ensemble is None:
            return np.zeros(len(features)), none
        leaves = none if self._leafless else leaves_of(self._ensemble, features)
        return self._ensemble.predict(features), leaves

    def _corrected(self, prior: Floats, leaves: Leaves) -> Floats:
        return prior if self._process is None else self._process.predict(prior, leaves)

    def _condition(self, rows: Ints) -> Process:
        error = self._centred(self._value - self._prior, rows, CLIP)
        return Process(self._prior[rows], self._leaves[rows], error, self._group[rows])

    def _grow(self, rows: Ints, values: Floats, limit: float) -> Stacked:
        target = self._centred(values, rows, limit)
        count = len(self._group)
        return Stacked(self._features[rows], self._prior[rows], target, count, self._seed)

    def _centred(self, values: Floats, rows: Ints, limit: float) -> Floats:
        """Values of some records minus their task's median, clipped."""
        medians = self._medians(values, rows)
        centred = [values[row] - medians[self._group[row]] for row in rows]
        return np.clip(np.array(centred, dtype=np.float64), -limit, limit)

    def _medians(self, values: Floats, rows: Ints) -> dict[int, float]:
        group = self._group[rows]
        return {g: float(np.median(values[rows][group == g])) for g in np.unique(group).tolist()}

    def _mixed(self, rows: Ints) -> float:
        """Return the trees' share: a weighted mean of 0, 0.5 and 1.

        The weights follow from the squared, clipped errors on left-out records, for a Gaussian
        error with the deviation of the best of the three.
        """
        errors = np.zeros(3)
        for fold in range(FOLDS):
            known, left = rows[rows % FOLDS != fold], rows[rows % FOLDS == fold]
            off = []
            for found in (
                self._condition(known).predict(self._prior, self._leaves),
                self._grow(known, self._value, 2 * CLIP).predict(self._features, self._prior),
            ):
                gap = self._value - found
                level = self._medians(gap, known)
                own = [gap[i] - level[self._group[i]] for i in left if self._group[i] in level]
                off.append(np.clip(own, -CLIP, CLIP))
            errors += [np.sum((a * off[0] + (1 - a) * off[1]) ** 2) for a in (1.0, 0.5, 0.0)]
        least = max(float(errors.min()), 1e-12)
        weight = np.exp(-(errors - least) / (2 * least / len(rows)))
        return float(weight @ [0.0, 0.5, 1.0] / weight.sum())

    def predict(self, features: Matrix) -> Floats:
        """Log throughput up to a constant of the task, one per row; higher is faster."""
        if len(features) == 0:
            return np.zeros(0)
        prior, leaves = self._offline(features)
        if self._residual is not None:
            return prior + self._residual.predict(features, prior)
        found = self._corrected(prior, leaves)
        if self._stacked is None:
            return found
        grown = self._stacked.predict(features, prior) + self._shift
        return (1 - self.share) * found + self.share * grown


def leaves_of(ensemble: Ensemble, features: Matrix) -> Leaves:
    """Leaf of each tree of an ensemble's models; models without trees have none."""
    found = [np.zeros((len(features), 0), dtype=np.int32)]
    for part in ensemble.parts:
        leaves = getattr(part.model, "leaves", None)
        if leaves is not None and len(features):
            found.append(leaves(features))
    return np.concatenate(found, axis=1)


def _alike(left: Leaves, right: Leaves) -> Floats:
    """Share of the trees that put two candidates into one leaf, ``(len(left), len(right))``."""
    alike = np.zeros((len(left), len(right)))
    if left.shape[1]:
        for place, row in enumerate(right):
            alike[:, place] = (left == row).mean(axis=1)
    return alike


def _stack(features: Matrix, prior: Floats) -> Matrix:
    return np.column_stack([features, prior.astype(np.float32)])
