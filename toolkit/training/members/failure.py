"""How likely a candidate is to fail: boosted trees with logistic loss, averaged."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from toolkit.errors import RecipeError
from toolkit.training.arrays import Floats, Ints, Matrix
from toolkit.training.members.ensemble import load_model, mean_importance, save_models
from toolkit.training.members.fit import fit_all
from toolkit.training.models.base import Model, TrainingRows
from toolkit.training.recipes.recipe import Recipe
from toolkit.training.table.table import Table, draw_key, quota_of

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

    def predict(self, features: Matrix) -> Floats:
        """Weighted mean probability of failure, one a row, in (0, 1)."""
        if len(features) == 0 or not self.models:
            return np.full(len(features), np.clip(self.base_rate, SURE, 1 - SURE))
        summed = np.zeros(len(features))
        for model, weight in zip(self.models, self.weights, strict=True):
            summed += weight * model.predict(features)
        return np.clip(summed / sum(self.weights), SURE, 1 - SURE)

    def importance(self) -> Floats:
        """Mean share of each column in what the models gained."""
        return mean_importance(self.models)

    def save(self, folder: Path) -> list[dict[str, Any]]:
        """Write each model in its library's format; returns what the manifest needs to load."""
        written = zip(save_models(folder, self.models), self.weights, strict=True)
        return [{"base_rate": self.base_rate}, *(e | {"weight": weight} for e, weight in written)]

    @classmethod
    def load(cls, folder: Path, written: list[dict[str, Any]]) -> FailureEnsemble:
        """Read what ``save`` wrote."""
        first, *entries = written
        models = tuple(load_model(folder, entry) for entry in entries)
        return cls(models, tuple(e["weight"] for e in entries), first["base_rate"])


def fit_failure(table: Table, rows: Ints, recipe: Recipe, *, threads: int) -> FailureEnsemble:
    """Fit a recipe's models to which of some rows (good and failed candidates) failed.

    At most ``rows_per_task`` rows of each task and ``max_rows`` of all are drawn. Where all rows
    failed, or none, there is nothing to tell apart: the base rate is the prediction.
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
    given = TrainingRows(table.features[chosen], failed, weight / weight.mean(), group)
    fitted = [
        fit
        for options in recipe.models_for(len(np.unique(group)))
        for fit in fit_all(given, options, recipe, threads=threads)
    ]
    models, weights = zip(*fitted, strict=True)
    return FailureEnsemble(models, weights, base_rate)


def _sample(table: Table, rows: Ints, recipe: Recipe) -> Ints:
    quota = quota_of(rows, table, recipe.data.rows_per_task, recipe.data.max_rows)
    numbers, starts = np.unique(table.task[rows], return_index=True)
    chosen = [rows[:0]]
    for number, own in zip(numbers, np.split(rows, starts[1:]), strict=True):
        if len(own) > quota:
            rng = np.random.default_rng([recipe.seed, draw_key(table.workloads[number])])
            own = np.sort(rng.choice(own, quota, replace=False))
        chosen.append(own)
    return np.concatenate(chosen)
