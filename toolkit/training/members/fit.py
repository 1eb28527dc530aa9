"""Fits one model of a recipe; what its library refuses is told before anything is gathered."""

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
"""What a search may change beside parameters of a library."""

ABSURD = 1e30
"""Predictions are of the order of one."""


def check_recipe(recipe: Recipe, kind: str) -> None:
    """Raise ``RecipeError`` where a recipe is of another kind or a library refuses a parameter."""
    if recipe.kind != kind:
        raise RecipeError(
            f"a recipe of kind {recipe.kind!r} trains no {kind} model",
            cure=f"run: toolkit train {recipe.kind} --recipe ...",
        )
    gains = [options.objective == "gains" for options in recipe.models]
    if any(gains) and (kind != "mutation" or recipe.mutation.method != "expected" or all(gains)):
        raise RecipeError(
            "objective = 'gains' stands beside models of throughput in a mutation recipe",
            cure="take method = 'expected' and a model with another objective, or 'direct' alone",
        )
    if kind != "mutation" and any(options.neighbourhood != "any" for options in recipe.models):
        raise RecipeError(
            f"'neighbourhood' says nothing of a {kind} model", cure="leave it out, or say 'any'"
        )
    for options in recipe.models:
        check_parameters(options.library, options.params)
    for name, values in recipe.search.space.items():
        if name not in FIELDS:
            value = round(values.low) if values.integer else values.low
            check_parameters(recipe.models[0].library, {name: value})


def check_parameters(library: str, params: Mapping[str, Any]) -> None:
    """Raise ``RecipeError`` where a library does not know a parameter, or not with such a value."""
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
                raise ValueError("what it predicts is without a bound")
        fitted.append((model, options.weight / fits))
    return fitted


@contextmanager
def _told(library: str) -> Iterator[None]:
    """Turn what a library raises of its parameters into one line."""
    try:
        yield
    except (ValueError, TypeError, OverflowError, MemoryError, RuntimeError) as error:
        raise RecipeError(
            f"{library} cannot be fitted so: {first_line(error)}",
            cure="see 'params' of the recipe",
        ) from None
