"""Recipes, throughput models, mutation classifiers, metrics, model files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from toolkit.datasets import Dataset
from toolkit.progress import SILENT, Progress
from toolkit.training.mutation import (
    MutationModel,
    evaluate_mutation,
    load_mutation,
    train_mutation,
)
from toolkit.training.recipe import Recipe, load_recipe, recipe_names
from toolkit.training.store import read_manifest
from toolkit.training.throughput import (
    ThroughputModel,
    evaluate_throughput,
    load_throughput,
    train_throughput,
)

__all__ = [
    "MutationModel",
    "Recipe",
    "ThroughputModel",
    "evaluate_model",
    "load_mutation",
    "load_recipe",
    "load_throughput",
    "recipe_names",
    "train_mutation",
    "train_throughput",
]


def evaluate_model(
    folder: Path | str, dataset: Dataset, *, progress: Progress = SILENT
) -> dict[str, Any]:
    """Judge a trained model of either kind on a dataset, by members that never saw the task."""
    if read_manifest(Path(folder))["kind"] == "mutation":
        return evaluate_mutation(load_mutation(folder), dataset, progress=progress)
    return evaluate_throughput(load_throughput(folder), dataset, progress=progress)
