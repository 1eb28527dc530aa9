"""The trainer of all kinds of models: gather, cross-fit, judge on unseen tasks, save."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import orjson

from toolkit.cluster import Cluster
from toolkit.datasets import Dataset
from toolkit.datasets.urls import folder_at
from toolkit.errors import DatasetError
from toolkit.progress import SILENT, Progress
from toolkit.records import content_id
from toolkit.results import Result
from toolkit.training.arrays import Bools, Ints
from toolkit.training.members.crossfit import Judges, cross_fit
from toolkit.training.members.fit import check_recipe
from toolkit.training.recipes.recipe import Recipe
from toolkit.training.table.cores import core_counts
from toolkit.training.table.gather import Gathered, gather, networks_of
from toolkit.training.table.table import Choose, fastest_and_drawn
from toolkit.training.trained.loading import KINDS, TrainedModel, manifest_of
from toolkit.training.trained.store import (
    KeptFits,
    check_folder,
    read_manifest,
    save_model,
    versions,
)


@dataclass(frozen=True, repr=False, kw_only=True)
class ModelResult(Result):
    """Result for a model of any kind, besides its metrics; ``tasks`` has one row per task.

    After training: folds, feature columns, core counts by target kind, the model's folder. After
    evaluation: the kind, and the number of tasks that were left out because every member saw them.
    """

    tasks: list[dict[str, Any]]
    kind: str | None = None
    n_train_tasks: int | None = None
    n_leaked_tasks: int | None = None
    n_folds: int | None = None
    columns: int | None = None
    cores: dict[str, list[int]] | None = None
    out: str | None = None
    seconds: float | None = None


R = TypeVar("R", bound=ModelResult)
TaskIds = Iterable[str] | None


class Kind(Generic[R]):
    """Description of a kind of model; the default is an ensemble of the candidates that ran."""

    model: type[TrainedModel]
    choose: Choose = staticmethod(fastest_and_drawn)
    """Which candidates of large tasks are kept."""

    def gather(
        self, dataset: Dataset, recipe: Recipe, task_ids: TaskIds, progress: Progress
    ) -> Gathered:
        """Return the data that a model is trained and judged on."""
        most = recipe.data.table_rows
        found = gather(
            dataset, recipe.extractor, task_ids, most=most, choose=self.choose, progress=progress
        )
        return Gathered(dataset, recipe, *found)

    def usable(self, data: Any) -> Bools:
        """Return which rows a model may be fitted to."""
        good: Bools = data.table.good
        return good

    def fitter(self, data: Any) -> Callable[[Ints, int], Any] | None:
        """Return what fits a member to rows with some threads; ``None``: an ``Ensemble``."""
        return None

    def more_columns(self, recipe: Recipe) -> tuple[str, ...]:
        """Return the columns that members see after the table's."""
        return ()

    def judge(
        self, data: Any, judges: Judges, model: TrainedModel | None
    ) -> tuple[R, dict[str, Any]]:
        """Judge tasks by members that never saw them; ``model`` is ``None`` during training.

        Returns the figures, and further entries for the manifest of a model in training. Raises
        ``DatasetError`` during training when no task can be judged.
        """
        raise NotImplementedError


def train(
    kind: Kind[R],
    dataset: Dataset,
    recipe: Recipe,
    out: Path | None,
    task_ids: TaskIds,
    threads: int | Cluster | None,
    progress: Progress,
) -> R:
    """Train, judge on left-out tasks and, where ``out`` is given, keep the model there.

    An interrupted training can be run again: members that were already fitted are kept there.
    """
    name = kind.model.kind
    check_recipe(recipe, name)
    started = time.perf_counter()
    if out is not None:
        check_folder(Path(out))
    data = kind.gather(dataset, recipe, task_ids, progress)
    table, usable = data.table, kind.usable(data)
    networks = networks_of(dataset, table.task_ids)
    kept = None if out is None else KeptFits(Path(out), _key(name, data, networks))
    fitted = cross_fit(
        table,
        recipe,
        networks=networks,
        keep_all=out is not None,
        threads=threads,
        fit=kind.fitter(data),
        usable=usable,
        kept=kept,
        progress=progress,
    )
    result, told = kind.judge(data, fitted.judges(table), None)
    result = replace(
        result,
        n_train_tasks=int((table.counts(usable) >= recipe.data.min_records).sum()),
        n_folds=len(set(fitted.folds.tolist())),
        columns=len(table.columns),
        cores=core_counts(data.tasks().values()),
    )
    if out is not None and kept is not None:
        more = kind.more_columns(data.recipe)
        manifest = manifest_of(name, data, fitted, result.to_json(), more)
        save_model(Path(out), manifest | told, fitted.members)
        kept.remove()
        result = replace(result, out=str(out))
    return replace(result, seconds=time.perf_counter() - started)


def _key(name: str, data: Gathered, networks: Sequence[tuple[str, ...]]) -> str:
    """Return an id of everything that decides what is fitted."""
    recipe = data.recipe.model_dump(mode="json", by_alias=True)
    table = data.table
    # A dataset's fingerprint covers neither labels of networks nor imported features.
    features = blake2b(np.ascontiguousarray(table.features).data).hexdigest()
    read = (data.dataset.fingerprint(), sorted(table.task_ids), data.extractors)
    made = (name, recipe, read, table.columns, features, networks, versions())
    return content_id(orjson.dumps(made, option=orjson.OPT_SORT_KEYS))


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
    kind: Kind[ModelResult] = KINDS.get(read_manifest(folder_at(folder))["kind"])
    model = kind.model.load(folder)
    started = time.perf_counter()
    data = kind.gather(dataset, model.recipe, task_ids, progress)
    data = replace(data, table=data.table.aligned(model.columns))
    judges = model.judges(data.table, dataset.tasks())
    result, _ = kind.judge(data, judges, model)
    tasks = len(data.table.task_ids)
    leaked = tasks - len(judges)
    if not result.tasks:
        raise DatasetError(
            f"no task can be judged: every member was trained on {leaked} of {tasks} tasks, the "
            "others have too few good candidates",
            where=dataset.path,
            cure="evaluate on logs that the model was not trained on, or ingest more",
        )
    return replace(
        result,
        kind=model.kind,
        n_leaked_tasks=leaked,
        seconds=time.perf_counter() - started,
    )
