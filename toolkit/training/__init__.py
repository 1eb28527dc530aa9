"""Recipes, throughput models, mutation classifiers, metrics, model files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from toolkit.datasets import Dataset
from toolkit.progress import SILENT, Progress
from toolkit.training.recipe import Recipe, load_recipe, recipe_names
from toolkit.training.store import read_manifest
from toolkit.training.throughput import (
    ThroughputModel,
    evaluate_throughput,
    load_throughput,
    train_throughput,
)

__all__ = [
    "Recipe",
    "ThroughputModel",
    "evaluate_model",
    "load_recipe",
    "load_throughput",
    "recipe_names",
    "train_throughput",
]


def evaluate_model(
    folder: Path | str, dataset: Dataset, *, progress: Progress = SILENT
) -> dict[str, Any]:
    """Judge a trained model of either kind on a dataset, by members that never saw the task."""
    read_manifest(Path(folder))
    return evaluate_throughput(load_throughput(folder), dataset, progress=progress)
