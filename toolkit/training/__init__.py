"""Recipes, throughput models, mutation classifiers, metrics, model files."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolkit.progress import SILENT, Progress

if TYPE_CHECKING:
    from toolkit.datasets import Dataset
    from toolkit.training.recipes.recipe import Recipe, load_recipe, recipe_names
    from toolkit.training.tasks.mutation import MutationModel, load_mutation, train_mutation
    from toolkit.training.tasks.throughput import ThroughputModel, load_throughput, train_throughput
    from toolkit.training.tasks.trainer import ModelResult
    from toolkit.training.tasks.validity import ValidityModel, load_validity, train_validity

# Name → module, as in ``toolkit``. A module is imported on first use: the training modules take
# seconds to import, and a search that only loads models does not need them.
_PUBLIC = {
    **dict.fromkeys(("Recipe", "load_recipe", "recipe_names"), "recipes.recipe"),
    **dict.fromkeys(("MutationModel", "load_mutation", "train_mutation"), "tasks.mutation"),
    **dict.fromkeys(("ThroughputModel", "load_throughput", "train_throughput"), "tasks.throughput"),
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


def evaluate_model(
    folder: Path | str,
    dataset: Dataset,
    *,
    task_ids: Iterable[str] | None = None,
    progress: Progress = SILENT,
) -> ModelResult:
    """Judge a trained model of any kind on a dataset: each task by a member that never saw it.

    Tasks that every member saw are left out and counted as ``n_leaked_tasks``.
    """
    from toolkit.datasets.urls import folder_at
    from toolkit.training.tasks.trainer import evaluate
    from toolkit.training.trained.loading import KINDS
    from toolkit.training.trained.store import read_manifest

    kind = KINDS.get(read_manifest(folder_at(folder))["kind"])
    result: ModelResult = evaluate(kind, folder, dataset, task_ids, progress)
    return result
