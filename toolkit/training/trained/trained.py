"""What trained models of every kind share: members that left tasks out, and a manifest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np

from toolkit.datasets import Dataset
from toolkit.errors import LeakError, ModelError
from toolkit.features import extractor_named
from toolkit.features.base import Extractor
from toolkit.records import Task
from toolkit.training.members.crossfit import ALL, CrossFit, Judges, Member, pick_member
from toolkit.training.recipes.recipe import Recipe
from toolkit.training.table.cores import core_counts
from toolkit.training.table.gather import extractor_for
from toolkit.training.table.table import Table
from toolkit.training.trained.store import AGAIN, load_members, read_manifest, versions

M = TypeVar("M", bound="TrainedModel")


@dataclass(frozen=True)
class TrainedModel:
    """What models of every kind share: a manifest and members."""

    kind: ClassVar[str]

    manifest: Mapping[str, Any]
    members: Mapping[str, Member]

    @classmethod
    def load(cls: type[M], folder: Path | str) -> M:
        """Read a model.

        Raises
        ------
        ModelError
            Where there is none of this kind, it is damaged, or its columns mean something else
            here: an extractor that it was trained with has another version.
        """
        folder = Path(folder)
        manifest = read_manifest(folder, cls.kind)
        for name, version in manifest["extractor_versions"].items():
            own = extractor_named(name).version
            if own != version:
                raise ModelError(
                    f"was trained with version {version} of the extractor {name!r}, this toolkit "
                    f"has version {own}",
                    where=folder,
                    cure=AGAIN,
                )
        return cls(manifest, load_members(folder, manifest))

    @property
    def columns(self) -> tuple[str, ...]:
        """Feature columns, in the members' order."""
        return tuple(self.manifest["columns"])

    @property
    def recipe(self) -> Recipe:
        """What it was trained by."""
        return Recipe.model_validate(self.manifest["recipe"])

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

    def choose_member(self, task: Task) -> tuple[Member, bool]:
        """The member that knows most but never saw a task; else who saw all, and ``True``."""
        try:
            return pick_member(self.members, task), False
        except LeakError:
            return self.members[ALL], True

    def judges(self, table: Table, tasks: Mapping[str, Task]) -> Judges:
        """For each task of a table the member that knows most but never saw it, with its rows.

        Tasks that every member saw are left out.
        """
        found = []
        for number, task_id in enumerate(table.task_ids):
            member, leaked = self.choose_member(tasks[task_id])
            if not leaked:
                found.append((member, np.flatnonzero(table.task == number)))
        return found


def manifest_of(
    kind: str,
    recipe: Recipe,
    dataset: Dataset,
    table: Table,
    extractors: Mapping[str, int],
    fitted: CrossFit,
    metrics: Mapping[str, Any],
    more_columns: tuple[str, ...] = (),
) -> dict[str, Any]:
    """Return what every manifest says: how a model was made, of what, and how it was judged.

    ``extractors`` gives the version of each extractor used; ``more_columns`` names what the
    members see after the table's columns. Importances are the ones of the member that saw all
    tasks, highest first, zeros left out.
    """
    importance = fitted.members[ALL].ensemble.importance()
    names = [*table.columns, *more_columns]
    order = np.argsort(-importance, kind="stable")
    known = dataset.tasks()
    tasks = {task_id: known[task_id] for task_id in table.task_ids}
    kept = ("format", "workload", "arguments", "target", "extents")
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
        "folds": dict(zip(table.task_ids, fitted.folds.tolist(), strict=True)),
        "cores": core_counts(tasks.values()),
        # A task and its twins are known by this.
        "tasks": {
            task_id: {name: getattr(task, name) for name in kept} for task_id, task in tasks.items()
        },
    }
