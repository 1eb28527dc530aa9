"""Recipes, throughput models, mutation classifiers, metrics, model files."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from toolkit.datasets import Dataset
from toolkit.progress import SILENT, Progress
from toolkit.training.recipes.recipe import Recipe, load_recipe, recipe_names
from toolkit.training.tasks.mutation import (
    MutationModel,
    evaluate_mutation,
    load_mutation,
    train_mutation,
)
from toolkit.training.tasks.throughput import (
    ThroughputModel,
    evaluate_throughput,
    load_throughput,
    train_throughput,
)
from toolkit.training.tasks.validity import (
    ValidityModel,
    evaluate_validity,
    load_validity,
    train_validity,
)
from toolkit.training.trained.store import read_manifest

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


def evaluate_model(
    folder: Path | str,
    dataset: Dataset,
    *,
    task_ids: Iterable[str] | None = None,
    progress: Progress = SILENT,
) -> dict[str, Any]:
    """Judge a trained model of any kind on a dataset, by members that never saw the task."""
    kind = read_manifest(Path(folder))["kind"]
    if kind == "mutation":
        return evaluate_mutation(
            load_mutation(folder), dataset, task_ids=task_ids, progress=progress
        )
    if kind == "validity":
        return evaluate_validity(
            load_validity(folder), dataset, task_ids=task_ids, progress=progress
        )
    return evaluate_throughput(
        load_throughput(folder), dataset, task_ids=task_ids, progress=progress
    )
