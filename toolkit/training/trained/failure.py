"""How likely a candidate is to fail: boosted trees with logistic loss, averaged."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from toolkit.errors import RecipeError
from toolkit.training.members.fit import fit_one
from toolkit.training.models import MODELS
from toolkit.training.models.base import Model, TrainingRows
from toolkit.training.recipes.recipe import Recipe
from toolkit.training.table.table import Table, draw_key

Floats = NDArray[np.float64]

SURE = 1e-4
"""Probabilities are kept this far from 0 and 1: no log says that something cannot happen."""


@dataclass(frozen=True)
class FailureEnsemble:
    """Fitted classifiers; ``predict`` gives the probability that a candidate does not run.

    ``base_rate`` is the share of failures among the training rows, every task counting alike.
    """

    models: tuple[Model, ...]
    weights: tuple[float, ...]
    base_rate: float

    def predict(self, features: NDArray[np.float32]) -> Floats:
        """Weighted mean probability of failure, one a row, in (0, 1)."""
        if len(features) == 0 or not self.models:
            return np.full(len(features), np.clip(self.base_rate, SURE, 1 - SURE))
        summed = np.zeros(len(features))
        for model, weight in zip(self.models, self.weights, strict=True):
            summed += weight * model.predict(features)
        return np.clip(summed / sum(self.weights), SURE, 1 - SURE)

    def importance(self) -> Floats:
        """Mean share of each column in what the models gained."""
        shares = [model.importance() for model in self.models]
        return np.asarray(np.mean(shares, axis=0)) if shares else np.zeros(0)

    def save(self, folder: Path) -> list[dict[str, Any]]:
        """Write each model in its library's format; returns what the manifest needs to load."""
        folder.mkdir(parents=True, exist_ok=True)
        written: list[dict[str, Any]] = [{"base_rate": self.base_rate}]
        for number, (model, weight) in enumerate(zip(self.models, self.weights, strict=True)):
            name = f"{number}-{model.library}{model.suffix}"
            model.save(folder / name)
            written.append({"file": name, "library": model.library, "weight": weight})
        return written

    @classmethod
    def load(cls, folder: Path, written: list[dict[str, Any]]) -> FailureEnsemble:
        """Read what ``save`` wrote."""
        first, *entries = written
        return cls(
            tuple(MODELS.get(e["library"]).load(folder / e["file"]) for e in entries),
            tuple(float(e["weight"]) for e in entries),
            float(first["base_rate"]),
        )


def fit_failure(
    table: Table, rows: NDArray[np.int64], recipe: Recipe, *, threads: int
) -> FailureEnsemble:
    """Fit a recipe's models to which of some rows (good and failed candidates) failed.

    Where all rows did, or none, there is nothing to tell apart: the base rate is the prediction.
    """
    if any(options.objective != "logistic" for options in recipe.models):
        raise RecipeError(
            "a validity model is fitted with objective = 'logistic'",
            cure="see the bundled recipe 'validity'",
        )
    chosen = _sample(table, rows, recipe)
    failed = (~table.good[chosen]).astype(np.float64)
    group = table.task[chosen]
    sizes = np.bincount(group, minlength=len(table.task_ids))
    of_task = np.bincount(group, weights=failed, minlength=len(sizes))[sizes > 0]
    base_rate = float(np.mean(of_task / sizes[sizes > 0]))
    if failed.min() == failed.max():
        return FailureEnsemble((), (), base_rate)
    # A task with many records counts more than one with few, but not in proportion.
    weight = 1 / np.sqrt(sizes[group])
    fitted: list[Model] = []
    weights: list[float] = []
    for options in recipe.models_for(len(np.unique(group))):
        fits = recipe.fits_of(options, len(chosen))
        for number in range(fits):
            rows_of = TrainingRows(table.features[chosen], failed, weight / weight.mean(), group)
            fitted.append(fit_one(rows_of, options, recipe, number, threads=threads))
            weights.append(options.weight / fits)
    return FailureEnsemble(tuple(fitted), tuple(weights), base_rate)


def _sample(table: Table, rows: NDArray[np.int64], recipe: Recipe) -> NDArray[np.int64]:
    """At most ``rows_per_task`` rows of each task and ``max_rows`` of all, drawn at random."""
    numbers, starts = np.unique(table.task[rows], return_index=True)
    data = recipe.data
    quota = max(10, min(data.rows_per_task, data.max_rows // max(len(numbers), 1)))
    chosen = []
    for number, own in zip(numbers, np.split(rows, starts[1:]), strict=True):
        if len(own) > quota:
            rng = np.random.default_rng([recipe.seed, draw_key(table.workloads[number])])
            own = np.sort(rng.choice(own, quota, replace=False))
        chosen.append(own)
    return np.concatenate(chosen) if chosen else rows
