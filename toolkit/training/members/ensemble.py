"""Several models as one: brought to one scale, averaged, and put into log relative throughput.

Members with other targets or objectives than the squared error of log relative throughput have
scales of their own. Each is divided by its standard deviation on the training rows, so that all
have the same say, and a straight line takes their mean to log relative throughput. Members that
predict relative throughput, or a rank that spreads the fastest out, tell fast candidates apart
better than slow ones, one that predicts the logarithm does the opposite: their mean does well at
both.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from toolkit.features.base import CandidateGroup
from toolkit.training.members.fit import fit_one
from toolkit.training.members.shortlist import mean_opinion
from toolkit.training.models import MODELS
from toolkit.training.models.base import Model, TrainingRows
from toolkit.training.recipes.recipe import ModelOptions, Recipe
from toolkit.training.table.cliques import Cliques, find_cliques
from toolkit.training.table.table import Table, sample_rows

Floats = NDArray[np.float64]

SLOWEST = -7.0
"""Log relative throughput is cut here in training (1/1000 of the best)."""

TOP_SHARE = 1e-3
"""Share of a task's candidates below which ``top_rank`` tells no ranks apart any more."""


@dataclass(frozen=True)
class _Part:
    model: Model
    target: str
    weight: float
    slope: float = 1.0
    intercept: float = 0.0

    def log_speed(self, features: NDArray[np.float32]) -> Floats:
        return np.asarray(self.intercept + self.slope * self.model.predict(features))


@dataclass(frozen=True)
class Ensemble:
    """Fitted models of one set of tasks.

    ``predict`` gives log relative throughput: 0 is the task's best, lower is slower.
    """

    parts: tuple[_Part, ...]

    def predict(self, features: NDArray[np.float32]) -> Floats:
        """Weighted mean of the members' predictions, one a row."""
        return mean_opinion(self.opinions(features), self.weights)

    def opinions(self, features: NDArray[np.float32]) -> Floats:
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
        """Mean share of each column in what the members gained."""
        shares = [part.model.importance() for part in self.parts]
        return np.asarray(np.mean(shares, axis=0))

    def save(self, folder: Path) -> list[dict[str, Any]]:
        """Write each model in its library's format; returns what the manifest needs to load."""
        folder.mkdir(parents=True, exist_ok=True)
        written = []
        for number, part in enumerate(self.parts):
            name = f"{number}-{part.model.library}{part.model.suffix}"
            part.model.save(folder / name)
            written.append(
                {
                    "file": name,
                    "library": part.model.library,
                    "target": part.target,
                    "weight": part.weight,
                    "slope": part.slope,
                    "intercept": part.intercept,
                }
            )
        return written

    @classmethod
    def load(cls, folder: Path, written: list[dict[str, Any]]) -> Ensemble:
        """Read what ``save`` wrote."""
        return cls(
            tuple(
                _Part(
                    MODELS.get(entry["library"]).load(folder / entry["file"]),
                    entry["target"],
                    entry["weight"],
                    entry["slope"],
                    entry["intercept"],
                )
                for entry in written
            )
        )


def fit_ensemble(
    table: Table,
    rows: NDArray[np.int64],
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
    weight = weight / np.sqrt(sums[group])
    return fit_models(
        table.features[chosen],
        table.log_speed()[chosen],
        group,
        weight,
        recipe,
        threads=threads,
        cliques=find_cliques(groups, chosen) if groups else None,
    )


def fit_models(
    features: NDArray[np.float32],
    value: Floats,
    group: NDArray[np.int64],
    weight: Floats,
    recipe: Recipe,
    *,
    threads: int,
    cliques: Cliques | None = None,
) -> Ensemble:
    """Fit a recipe's models to one value a row: log relative throughput, or a gain in it.

    ``cliques`` says which rows are neighbours, for the objective ``neighbours``.
    """
    parts: list[_Part] = []
    models = recipe.models_for(len(np.unique(group)))
    for options in models:
        own = weight * np.exp(options.emphasis * value)
        own = own / max(float(np.mean(own)), 1e-300)
        rows = TrainingRows(features, _target(value, group, options), own, group, cliques)
        fits = recipe.fits_of(options, len(value))
        for number in range(fits):
            model = fit_one(rows, options, recipe, number, threads=threads)
            parts.append(_Part(model, options.target, options.weight / fits))
    same = all(
        options.target == "log_speed" and options.objective in ("squared", "neighbours")
        for options in models
    )
    return Ensemble(tuple(parts if same else _one_scale(parts, features, value)))


def _target(log_speed: Floats, group: NDArray[np.int64], options: ModelOptions) -> Floats:
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


def _one_scale(parts: list[_Part], features: NDArray[np.float32], value: Floats) -> list[_Part]:
    """Give all parts the same spread on the training rows, and their mean the value's unit."""
    raw = [part.model.predict(features) for part in parts]
    scales = [max(float(np.std(found)), 1e-12) for found in raw]
    total = sum(part.weight for part in parts)
    mixed = np.zeros(len(value))
    for part, found, scale in zip(parts, raw, scales, strict=True):
        mixed += part.weight / total * (found - found.mean()) / scale
    truth = np.maximum(value, SLOWEST)
    spread = float(np.var(mixed))
    gain = float(np.mean(mixed * (truth - truth.mean()))) / spread if spread > 0 else 0.0
    return [
        replace(
            part,
            slope=gain / scale,
            intercept=float(truth.mean() - gain * found.mean() / scale),
        )
        for part, found, scale in zip(parts, raw, scales, strict=True)
    ]
