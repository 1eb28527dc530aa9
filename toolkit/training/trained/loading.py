"""Trained models: a manifest and members; and the one place that finds and loads them.

A model is named by its folder, or by its name in the workspace (``tuning/models/<name>``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np

from toolkit.datasets.urls import folder_at, is_remote, local_copy
from toolkit.errors import LeakError, ModelError, did_you_mean
from toolkit.features import extractor_named
from toolkit.features.base import Extractor
from toolkit.records import Task
from toolkit.registry import Registry
from toolkit.training.members.crossfit import ALL, CrossFit, Judges, Member, pick_member
from toolkit.training.recipes.recipe import Recipe
from toolkit.training.table.cores import core_counts
from toolkit.training.table.gather import Gathered, extractor_for
from toolkit.training.table.table import Table, workload_key
from toolkit.training.trained.store import (
    AGAIN,
    MANIFEST,
    load_members,
    read_manifest,
    told_kind,
    versions,
)
from toolkit.workspace import Workspace

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

        Raises ``ModelError`` if there is none of this kind, if it is damaged, or if an extractor
        that it was trained with has another version here: its columns mean something else.
        """
        folder = folder_at(folder)
        manifest = read_manifest(folder, cls.kind)
        for name, version in manifest["extractor_versions"].items():
            own = extractor_named(name).version
            if own != version:
                raise ModelError(
                    f"was trained with version {version} of the extractor {name!r}; this toolkit "
                    f"has version {own}",
                    where=folder,
                    cure=AGAIN,
                )
        with local_copy(folder) as there:
            return cls(manifest, load_members(there, manifest))

    @property
    def columns(self) -> tuple[str, ...]:
        """Feature columns, in the members' order."""
        return tuple(self.manifest["columns"])

    @property
    def recipe(self) -> Recipe:
        """Recipe that the model was trained with."""
        return Recipe.model_validate(self.manifest["recipe"])

    def extractor(self, task: Task) -> Extractor:
        """Return the extractor that this model reads a task's candidates with."""
        found = extractor_for(self.manifest["extractor"], task)
        # A model may be asked about a format that it was not trained on: columns are shared.
        return found or extractor_named(next(iter(self.manifest["extractor_versions"])))

    def known_task(self, task_id: str) -> Task:
        """Return a stand-in for a task that is known only by its id.

        Its workload is looked up among the training tasks: members that saw it are left out too.
        """
        return Task.stand_in(task_id, self.manifest["tasks"].get(task_id, {}))

    def choose_member(self, task: Task) -> tuple[Member, bool]:
        """Return the best member that never saw a task, or the full one; and whether all saw it."""
        try:
            return pick_member(self.members, task), False
        except LeakError:
            return self.members[ALL], True

    def judges(self, table: Table, tasks: Mapping[str, Task]) -> Judges:
        """Return for each task of a table the best member that never saw it, and its rows.

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
    data: Gathered,
    fitted: CrossFit,
    metrics: Mapping[str, Any],
    more_columns: tuple[str, ...],
) -> dict[str, Any]:
    """Return the content that manifests of all kinds share: origin, recipe, metrics and tasks.

    ``more_columns`` names the members' columns after the table's. Importances are those of the
    member that saw all tasks, highest first, without zeros.
    """
    table, recipe, tasks = data.table, data.recipe, data.tasks()
    importance = fitted.members[ALL].ensemble.importance()
    names = [*table.columns, *more_columns]
    order = np.argsort(-importance, kind="stable")
    kept = ("format", "workload", "arguments", "target", "extents")
    family = dict(zip(table.task_ids, table.families(), strict=True))
    return {
        "kind": kind,
        "versions": versions(),
        "extractor": recipe.extractor,
        "extractor_versions": data.extractors,
        "columns": list(table.columns),
        "seed": recipe.seed,
        "dataset": {"path": str(data.dataset.path), "fingerprint": data.dataset.fingerprint()},
        "recipe": recipe.model_dump(mode="json"),
        "metrics": metrics,
        "importance": {names[i]: float(importance[i]) for i in order if importance[i] > 0},
        "folds": dict(zip(table.task_ids, fitted.folds.tolist(), strict=True)),
        "cores": core_counts(tasks.values()),
        # Identifies a task, and other tasks with the same workload.
        "tasks": {
            task_id: {
                **{n: getattr(task, n) for n in kept},
                "identity": workload_key(task),
                "family": family[task_id],
            }
            for task_id, task in tasks.items()
        },
    }


KINDS = Registry(
    "model kind",
    {
        "throughput": "toolkit.training.tasks.throughput:THROUGHPUT",
        "mutation": "toolkit.training.tasks.mutation:MUTATION",
        "validity": "toolkit.training.tasks.validity:VALIDITY",
    },
)
"""How each kind of model is trained, judged and loaded (``tasks.trainer.Kind``)."""


def workspace_models() -> dict[str, Path]:
    """Return the folders of the workspace's models by name, the latest first."""
    root = Workspace().model("throughput").parent
    made = {path.parent: path.stat().st_mtime_ns for path in root.glob(f"*/{MANIFEST}")}
    return {folder.name: folder for folder in sorted(made, key=lambda f: (-made[f], f.name))}


def default_folders() -> list[Path]:
    """The workspace's throughput and mutation models under their default names, if any.

    A validity model must be named explicitly: whether it helps a search depends on the logs.
    """
    known = workspace_models()
    return [known[kind] for kind in ("mutation", "throughput") if kind in known]


def find_model(name: str | Path | None, kind: str) -> Path:
    """Return a model's folder: by path, by name in the workspace, or (``None``) its kind's latest.

    Raises ``ModelError`` when there is none. The model is not checked before it is loaded.
    """
    known = workspace_models()
    if name is None:
        kinds = {folder: told_kind(folder) for folder in known.values()}
        # The kind of an unreadable model is unknown: it is taken if there is no other.
        for wanted in (kind, None):
            for folder, found in kinds.items():
                if found == wanted:
                    return folder
        raise ModelError(
            f"the workspace has no {kind} model",
            where=Workspace().model(kind).parent,
            cure=f"run: toolkit train {kind}, or name a model's folder",
        )
    folder = folder_at(name)
    if is_remote(folder) or (folder / MANIFEST).is_file():
        return folder
    if str(name) in known:
        return known[str(name)]
    raise ModelError(
        "there is no model with this name or in this folder",
        where=name,
        cure=did_you_mean(str(name), known) if known else f"run: toolkit train {kind}",
    )
