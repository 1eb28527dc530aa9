"""Recipes, throughput models, mutation classifiers, metrics, model files."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolkit.training.recipes.recipe import Recipe, load_recipe, recipe_names
    from toolkit.training.tasks.mutation import MutationModel, load_mutation, train_mutation
    from toolkit.training.tasks.throughput import ThroughputModel, load_throughput, train_throughput
    from toolkit.training.tasks.trainer import evaluate_model
    from toolkit.training.tasks.validity import ValidityModel, load_validity, train_validity

# Name → module, as in ``toolkit``. A module is imported on first use: the training modules take
# seconds to import, and a search that only loads models does not need them.
_PUBLIC = {
    **dict.fromkeys(("Recipe", "load_recipe", "recipe_names"), "recipes.recipe"),
    **dict.fromkeys(("MutationModel", "load_mutation", "train_mutation"), "tasks.mutation"),
    **dict.fromkeys(("ThroughputModel", "load_throughput", "train_throughput"), "tasks.throughput"),
    "evaluate_model": "tasks.trainer",
    **dict.fromkeys(("ValidityModel", "load_validity", "train_validity"), "tasks.validity"),
}

__all__ = [
    "MutationModel",
    "Recipe",
    "ThroughputModel",
    "ValidityModel",
    "evaluate_model",
    "load_mutation",
    "load_recipe",
    "load_throughput",
    "load_validity",
    "recipe_names",
    "train_mutation",
    "train_throughput",
    "train_validity",
]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(import_module(f"{__name__}.{_PUBLIC[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
