"""The one trainer of all kinds of models: gather, cross-fit, judge on tasks never seen, keep."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from toolkit.datasets import Dataset
from toolkit.progress import SILENT, Progress
from toolkit.results import Result
from toolkit.training.arrays import Bools, Ints
from toolkit.training.members.crossfit import Judges, cross_fit
from toolkit.training.members.fit import check_recipe
from toolkit.training.recipes.recipe import Recipe
from toolkit.training.table.cores import core_counts
from toolkit.training.table.gather import Gathered, gather, networks_of
from toolkit.training.table.table import Table
from toolkit.training.trained.store import save_model
from toolkit.training.trained.trained import TrainedModel, manifest_of


@dataclass(frozen=True, repr=False, kw_only=True)
class ModelResult(Result):
    """What is said of a model of any kind, beside its metrics.

    Attributes
    ----------
    tasks
        One row a judged task.
    n_folds, columns, cores, out
        Where it was trained: folds, feature columns, core counts by target kind, its folder.
    n_leaked_tasks
        Where it was evaluated: tasks that every member saw, and that were left out.
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


class Kind(Generic[R]):
    """Description of a kind of model; by default it is an ensemble of what ran."""

    model: type[TrainedModel]

    def gather(
        self,
        dataset: Dataset,
        recipe: Recipe,
        task_ids: Iterable[str] | None,
        progress: Progress,
    ) -> Gathered:
        """What it is trained and judged on."""
        most = recipe.data.table_rows
        return Gathered(*gather(dataset, recipe.extractor, task_ids, most=most, progress=progress))

    def usable(self, dataset: Dataset, table: Table) -> Bools:
        """Rows that it may be fitted to."""
        return table.good

    def fitter(self, data: Any, recipe: Recipe) -> Callable[[Ints, int], Any] | None:
        """What makes a member of rows, with so many threads; ``None``: an ``Ensemble``."""
        return None

    def more_columns(self, recipe: Recipe) -> tuple[str, ...]:
        """Columns that members see after the table's."""
        return ()

    def judge(
        self,
        dataset: Dataset,
        data: Any,
        recipe: Recipe,
        judges: Judges,
        model: TrainedModel | None,
    ) -> tuple[R, dict[str, Any]]:
        """Judge tasks by members that never saw them; ``model`` is given where it is trained.

        Returns the figures, and what the manifest of a model in training keeps beside them.

        Raises
        ------
        DatasetError
            When it is trained and no task can be judged.
        """
        raise NotImplementedError


def train(
    kind: Kind[R],
    dataset: Dataset,
    recipe: Recipe,
    out: Path | None,
    task_ids: Iterable[str] | None,
    threads: int | None,
    progress: Progress,
) -> R:
    """Train, judge on left-out tasks and, where ``out`` is given, keep the model there."""
    name = kind.model.kind
    check_recipe(recipe, name)
    started = time.perf_counter()
    data = kind.gather(dataset, recipe, task_ids, progress)
    table, usable = data.table, kind.usable(dataset, data.table)
    fitted = cross_fit(
        table,
        recipe,
        networks=networks_of(dataset, table.task_ids),
        keep_all=out is not None,
        threads=threads,
        fit=kind.fitter(data, recipe),
        usable=usable,
        progress=progress,
    )
    result, kept = kind.judge(dataset, data, recipe, fitted.judges(table), None)
    tasks = dataset.tasks()
    result = replace(
        result,
        n_train_tasks=int((table.counts(usable) >= recipe.data.min_records).sum()),
        n_folds=len(set(fitted.folds.tolist())),
        columns=len(table.columns),
        cores=core_counts(tasks[task_id] for task_id in table.task_ids),
    )
    if out is not None:
        metrics, more = result.to_json(), kind.more_columns(recipe)
        manifest = manifest_of(name, recipe, dataset, table, data.extractors, fitted, metrics, more)
        save_model(Path(out), manifest | kept, fitted.members)
        result = replace(result, out=str(out))
    return replace(result, seconds=time.perf_counter() - started)


def evaluate(
    kind: Kind[R],
    folder: Path | str,
    dataset: Dataset,
    task_ids: Iterable[str] | None = None,
    progress: Progress = SILENT,
) -> R:
    """Judge a trained model on a dataset, each task by a member that never saw it."""
    model = kind.model.load(folder)
    started = time.perf_counter()
    data = kind.gather(dataset, model.recipe, task_ids, progress)
    data = replace(data, table=data.table.aligned(model.columns))
    judges = model.judges(data.table, dataset.tasks())
    result, _ = kind.judge(dataset, data, model.recipe, judges, model)
    return replace(
        result,
        kind=model.kind,
        n_leaked_tasks=len(data.table.task_ids) - len(judges),
        seconds=time.perf_counter() - started,
    )
