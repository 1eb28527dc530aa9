"""What trained models of every kind share: members that left tasks out, and a manifest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from toolkit.datasets import Dataset
from toolkit.features import extractor_named
from toolkit.features.base import Extractor
from toolkit.records import Task
from toolkit.training.members.crossfit import ALL, CrossFit, Member
from toolkit.training.recipes.recipe import Recipe
from toolkit.training.table.cores import core_counts
from toolkit.training.table.gather import check_extractors, extractor_for
from toolkit.training.table.table import Table
from toolkit.training.trained.store import load_members, read_manifest, versions


@dataclass(frozen=True)
class TrainedModel:
    """What models of every kind share: a manifest and members."""

    manifest: Mapping[str, Any]
    members: Mapping[str, Member]

    @property
    def columns(self) -> tuple[str, ...]:
        """Feature columns, in the members' order."""
        return tuple(self.manifest["columns"])

    def extractor(self, task: Task) -> Extractor:
        """Return the extractor that this model reads a task's candidates with."""
        found = extractor_for(self.manifest["extractor"], task)
        if found is None or found.name not in self.manifest["extractor_versions"]:
            # A model may be asked about a format that it was not trained on: columns are shared.
            found = found or extractor_named(next(iter(self.manifest["extractor_versions"])))
        return found

    def known_task(self, task_id: str) -> Task:
        """Stand-in for a task of which only the id is known.

        Its workload is looked up among the training tasks, so that a twin of it is left out too.
        """
        return Task.stand_in(task_id, self.manifest["tasks"].get(task_id, {}))


def read_model(folder: Path | str, kind: str) -> tuple[dict[str, Any], dict[str, Member]]:
    """Read a model's manifest and members.

    Raises
    ------
    ModelError
        Where there is none of that kind, it is damaged, or its columns mean something else here.
    """
    folder = Path(folder)
    manifest = read_manifest(folder, kind)
    check_extractors(folder, manifest)
    return manifest, load_members(folder, manifest)


def manifest_of(
    kind: str,
    recipe: Recipe,
    dataset: Dataset,
    table: Table,
    extractors: Mapping[str, int],
    fitted: CrossFit,
    metrics: Mapping[str, Any],
    *,
    more_columns: Sequence[str] = (),
) -> dict[str, Any]:
    """Return what every manifest says: how a model was made, of what, and how it was judged.

    ``extractors`` gives the version of each extractor used; ``more_columns`` names what the
    members see after the table's columns. Importances are the ones of the member that saw all
    tasks, highest first, zeros left out.
    """
    importance = fitted.members[ALL].ensemble.importance()
    names = [*table.columns, *more_columns]
    order = np.argsort(-importance, kind="stable")
    return {
        "kind": kind,
        "versions": versions(),
        "extractor": recipe.extractor,
        "extractor_versions": dict(extractors),
        "columns": list(table.columns),
        "seed": recipe.seed,
        "dataset": {"path": str(dataset.path), "fingerprint": dataset.fingerprint()},
        "recipe": recipe.model_dump(mode="json"),
        "metrics": metrics,
        "importance": {names[i]: float(importance[i]) for i in order if importance[i] > 0},
        "folds": {t: int(f) for t, f in zip(table.task_ids, fitted.folds, strict=True)},
        "cores": trained_cores(dataset, table),
        "tasks": task_entries(dataset, table),
    }


def trained_cores(dataset: Dataset, table: Table) -> dict[str, list[int]]:
    """Core counts of a table's tasks, by target kind."""
    tasks = dataset.tasks()
    return core_counts(tasks[task_id] for task_id in table.task_ids)


def task_entries(dataset: Dataset, table: Table) -> dict[str, dict[str, Any]]:
    """What a manifest keeps of each task, so that a task and its twins are known by it."""
    tasks = dataset.tasks()
    return {
        task_id: {
            "format": tasks[task_id].format,
            "workload": tasks[task_id].workload,
            "arguments": tasks[task_id].arguments,
            "target": tasks[task_id].target,
            "extents": list(tasks[task_id].extents),
        }
        for task_id in table.task_ids
    }
