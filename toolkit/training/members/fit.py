"""Check recipes before any data is gathered, and fit their models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from toolkit.errors import RecipeError, did_you_mean, first_line
from toolkit.training.models import MODELS
from toolkit.training.models.base import Model, TrainingRows
from toolkit.training.recipes.recipe import ModelOptions, Recipe

FIELDS = ("rounds", "emphasis")
"""Fields of a model that a search may change, besides the parameters of its library."""

ABSURD = 1e30
"""Limit of predictions, which are normally of the order of one."""


def check_recipe(recipe: Recipe, kind: str) -> None:
    """Raise ``RecipeError`` where a recipe is of another kind or a library refuses a parameter."""
    if recipe.kind != kind:
        raise RecipeError(
            f"a recipe of kind {recipe.kind!r} cannot train a {kind} model",
            cure=f"run: toolkit train {recipe.kind} --recipe ...",
        )
    gains = [options.objective == "gains" for options in recipe.models]
    if any(gains) and (kind != "mutation" or recipe.mutation.method != "expected" or all(gains)):
        raise RecipeError(
            "objective = 'gains' needs a mutation recipe, method = 'expected' and another model",
            cure="add a model with another objective, or use method = 'direct' without 'gains'",
        )
    if kind != "mutation" and any(options.neighbourhood != "any" for options in recipe.models):
        raise RecipeError(
            f"'neighbourhood' does not apply to a {kind} model", cure="remove it, or set 'any'"
        )
    for options in recipe.models:
        check_parameters(options.library, options.params)
    for name, values in recipe.search.space.items():
        if name not in FIELDS:
            value = round(values.low) if values.integer else values.low
            check_parameters(recipe.models[0].library, {name: value})


def check_parameters(library: str, params: Mapping[str, Any]) -> None:
    """Raise ``RecipeError`` where a library does not know a parameter or refuses its value."""
    check = getattr(MODELS.get(library), "check", None)
    if check is None:
        return
    with _told(library):
        unknown, known = check(dict(params))
    if unknown:
        cure = did_you_mean(unknown[0], known) if known else None
        raise RecipeError(f"{library} has no parameter {unknown[0]!r}", cure=cure)


def fit_all(
    rows: TrainingRows, options: ModelOptions, recipe: Recipe, *, threads: int
) -> list[tuple[Model, float]]:
    """Make all fits of one of a recipe's models, each with its weight in the recipe's mean."""
    fits = recipe.fits_of(options, len(rows.target))
    fitted = []
    for number in range(fits):
        with _told(options.library):
            model: Model = MODELS.get(options.library).fit(
                rows,
                options,
                seed=recipe.seed + 1000 * number,
                threads=threads,
                device=recipe.device if options.library == "xgboost" else "cpu",
            )
            if not (np.abs(model.predict(rows.features[:100])) < ABSURD).all():
                raise ValueError(f"its predictions are not finite or exceed {ABSURD:g}")
        fitted.append((model, options.weight / fits))
    return fitted


@contextmanager
def _told(library: str) -> Iterator[None]:
    """Turn an error that a library raises into a one-line ``RecipeError``."""
    try:
        yield
    except (ValueError, TypeError, OverflowError, MemoryError, RuntimeError) as error:
        raise RecipeError(
            f"{library} cannot be fitted with this recipe: {first_line(error)}",
            cure="check 'params' in the recipe",
        ) from None
