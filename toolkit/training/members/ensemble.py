"""Ensembles: several models on one scale, averaged to log relative throughput.

A model whose target or objective is not the squared error of log relative throughput has a scale of
its own. Each model is then divided by its standard deviation on the training rows, so that all have
the same influence, and a linear function maps their mean to log relative throughput. Models of
relative throughput, or of a rank that spreads the fastest candidates out, order fast candidates
better than slow ones; a model of the logarithm does the opposite. Their mean is good at both. A
failure ensemble is a mean of probabilities, which need no scale.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from toolkit.errors import RecipeError
from toolkit.features.base import CandidateGroup
from toolkit.training.arrays import Floats, Ints, Matrix
from toolkit.training.members.fit import fit_all
from toolkit.training.members.shortlist import mean_opinion
from toolkit.training.models import MODELS
from toolkit.training.models.base import Model, TrainingRows
from toolkit.training.recipes.recipe import ModelOptions, Recipe
from toolkit.training.table.neighbours import find_cliques
from toolkit.training.table.table import Table, drawn_alike, sample_rows

SLOWEST = -7.0
"""Log relative throughput is clipped here in training (1/1000 of the best)."""

TOP_SHARE = 1e-3
"""``top_rank`` hardly distinguishes ranks within this fastest share of a task's candidates."""


def save_models(folder: Path, models: Iterable[Model]) -> list[dict[str, Any]]:
    """Write each model in its library's format; returns what the manifest needs to load it."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for number, model in enumerate(models):
        name = f"{number}-{model.library}{model.suffix}"
        model.save(folder / name)
        written.append({"file": name, "library": model.library})
    return written


def load_model(folder: Path, entry: dict[str, Any]) -> Model:
    """Read one of the models that ``save_models`` wrote."""
    model: Model = MODELS.get(entry["library"]).load(folder / entry["file"])
    return model


def mean_importance(models: Sequence[Model]) -> Floats:
    """Mean importance of each column over the models."""
    return np.mean([model.importance() for model in models], axis=0) if models else np.zeros(0)


@dataclass(frozen=True)
class _Part:
    model: Model
    target: str
    weight: float
    slope: float = 1.0
    intercept: float = 0.0

    def log_speed(self, features: Matrix) -> Floats:
        return np.asarray(self.intercept + self.slope * self.model.predict(features))


_KEPT = ("target", "weight", "slope", "intercept")


@dataclass(frozen=True)
class Ensemble:
    """Fitted models of one set of tasks.

    ``predict`` gives log relative throughput: 0 is the task's best, lower is slower.
    """

    parts: tuple[_Part, ...]

    def predict(self, features: Matrix) -> Floats:
        """Weighted mean of the members' predictions, one per row."""
        return mean_opinion(self.opinions(features), self.weights)

    def opinions(self, features: Matrix) -> Floats:
        """Each member's prediction of each row, ``(members, rows)``, all in one unit."""
        if len(features) == 0:
            return np.zeros((len(self.parts), 0))
        return np.array([part.log_speed(features) for part in self.parts])

    @property
    def weights(self) -> Floats:
        """Each member's share in the mean."""
        own = np.array([part.weight for part in self.parts])
        return np.asarray(own / own.sum())

    def importance(self) -> Floats:
        """Mean importance of each column over the members."""
        return mean_importance([part.model for part in self.parts])

    def save(self, folder: Path) -> list[dict[str, Any]]:
        """Write each model in its library's format; returns what the manifest needs to load."""
        written = save_models(folder, (part.model for part in self.parts))
        return [
            entry | {name: getattr(part, name) for name in _KEPT}
            for entry, part in zip(written, self.parts, strict=True)
        ]

    @classmethod
    def load(cls, folder: Path, written: list[dict[str, Any]]) -> Ensemble:
        """Read what ``save`` wrote."""
        return cls(
            tuple(
                _Part(load_model(folder, entry), **{name: entry[name] for name in _KEPT})
                for entry in written
            )
        )


def fit_ensemble(
    table: Table,
    rows: Ints,
    recipe: Recipe,
    *,
    threads: int,
    groups: Iterable[tuple[int, CandidateGroup]] = (),
) -> Ensemble:
    """Fit a recipe's models to the throughput of some rows (good candidates) of a table.

    ``groups`` gives each group with its first row, for the objective ``neighbours``.
    """
    data = recipe.data
    chosen, weight = sample_rows(table, rows, data.rows_per_task, data.max_rows, recipe.seed)
    group = table.task[chosen]
    # A task with many records counts more than one with few, but not in proportion.
    sums = np.bincount(group, weights=weight, minlength=len(table.task_ids))
    cliques = find_cliques(groups, chosen) if groups else None
    features, value = table.features[chosen], table.log_speed()[chosen]
    weight = weight / np.sqrt(sums[group])
    given = TrainingRows(features, value, weight, group, cliques, table.columns)
    return fit_models(given, recipe, threads=threads)


def fit_models(given: TrainingRows, recipe: Recipe, *, threads: int) -> Ensemble:
    """Fit a recipe's models to rows whose targets are log relative throughput, or gains in it."""
    value, group = given.target, given.group
    parts: list[_Part] = []
    models = recipe.models_for(len(np.unique(group)))
    for options in models:
        own = given.weight * np.exp(options.emphasis * value)
        own = own / max(float(np.mean(own)), 1e-300)
        rows = replace(given, target=_target(value, group, options), weight=own)
        for model, share in fit_all(rows, options, recipe, threads=threads):
            parts.append(_Part(model, options.target, share))
    same = all(
        options.target == "log_speed" and options.objective in ("squared", "neighbours")
        for options in models
    )
    return Ensemble(tuple(parts if same else _one_scale(parts, given.features, value)))


def _target(log_speed: Floats, group: Ints, options: ModelOptions) -> Floats:
    if options.target == "speed":
        return np.exp(log_speed)
    if options.target == "log_speed":
        return np.maximum(log_speed, SLOWEST)
    rank = np.empty(len(log_speed))
    for number in np.unique(group):
        own = np.flatnonzero(group == number)
        order = np.argsort(log_speed[own], kind="stable")
        rank[own[order]] = (np.arange(len(own)) + 1) / len(own)
        if options.target == "top_rank":
            slower = np.arange(len(own)) / len(own)
            rank[own[order]] = -np.log(1.0 - slower + TOP_SHARE)
    return rank


def _one_scale(parts: list[_Part], features: Matrix, value: Floats) -> list[_Part]:
    """Give all parts the same spread on the training rows, and their mean the value's unit."""
    raw = [part.model.predict(features) for part in parts]
    spreads = [max(float(np.std(found)), 1e-12) for found in raw]
    total = sum(part.weight for part in parts)
    mixed = np.zeros(len(value))
    for part, found, spread in zip(parts, raw, spreads, strict=True):
        mixed += part.weight / total * (found - found.mean()) / spread
    truth = np.maximum(value, SLOWEST)
    variance = float(np.var(mixed))
    gain = float(np.mean(mixed * (truth - truth.mean()))) / variance if variance > 0 else 0.0
    scaled = []
    for part, found, spread in zip(parts, raw, spreads, strict=True):
        intercept = float(truth.mean() - gain * found.mean() / spread)
        scaled.append(replace(part, slope=gain / spread, intercept=intercept))
    return scaled


SURE = 1e-4
"""Probabilities stay this far from 0 and 1: no log proves that something cannot happen."""


@dataclass(frozen=True)
class FailureEnsemble:
    """Fitted classifiers; ``predict`` gives the probability that a candidate does not run.

    ``base_rate`` is the share of failures among the training rows; all tasks have equal weight.
    """

    models: tuple[Model, ...]
    weights: tuple[float, ...]
    base_rate: float

    def predict(self, features: Matrix) -> Floats:
        """Weighted mean probability of failure, one per row, in (0, 1)."""
        if len(features) == 0 or not self.models:
            return np.full(len(features), np.clip(self.base_rate, SURE, 1 - SURE))
        summed = np.zeros(len(features))
        for model, weight in zip(self.models, self.weights, strict=True):
            summed += weight * model.predict(features)
        return np.clip(summed / sum(self.weights), SURE, 1 - SURE)

    def importance(self) -> Floats:
        """Mean importance of each column over the models."""
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
    """Fit a recipe's models to predict which rows (good and failed candidates) failed.

    At most ``rows_per_task`` rows of each task and ``max_rows`` of all are drawn. If all rows
    failed, or none, no model is fitted, and the base rate is the prediction.
    """
    if any(options.objective != "logistic" for options in recipe.models):
        raise RecipeError(
            "every model of a validity recipe needs objective = 'logistic'",
            cure="see the bundled recipe 'validity'",
        )
    data, seed = recipe.data, recipe.seed
    chosen, _ = sample_rows(table, rows, data.rows_per_task, data.max_rows, seed, drawn_alike)
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
