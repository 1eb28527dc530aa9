"""Throughput models: trained on other tasks, judged on tasks that they never saw."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from toolkit.datasets import Dataset
from toolkit.errors import DatasetError
from toolkit.features.base import CandidateGroup
from toolkit.locks import one_writer
from toolkit.progress import SILENT, Progress
from toolkit.records import Task
from toolkit.training.evaluate.metrics import JudgedTask, summarize, task_metrics, task_rows
from toolkit.training.evaluate.noise import noise_ceiling
from toolkit.training.members.crossfit import ALL, cross_fit, judged_rows, pick_member
from toolkit.training.members.fit import check_recipe
from toolkit.training.recipes.recipe import Recipe, load_recipe
from toolkit.training.table.gather import (
    candidate_counts,
    gather,
    networks_of,
)
from toolkit.training.table.table import Table, align
from toolkit.training.trained.scorer import ThroughputScorer
from toolkit.training.trained.store import save_model
from toolkit.training.trained.trained import TrainedModel, manifest_of, read_model, trained_cores

KIND = "throughput"

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class ThroughputModel(TrainedModel):
    """A trained throughput model: members that each left some tasks out, and one that saw all."""

    def for_task(self, task: Task | str) -> ThroughputScorer:
        """Return a scorer that never saw the task (given itself, or by the id it was trained as).

        Raises
        ------
        LeakError
            When every member saw it.
        """
        if isinstance(task, str):
            task = self.known_task(task)
        member = pick_member(self.members, task)
        return ThroughputScorer(member, self.extractor(task), self.columns)

    def predict(self, groups: Iterable[CandidateGroup], *, unseen: bool = True) -> list[Floats]:
        """Predict log relative throughput of each group's candidates.

        With ``unseen`` a member that never saw the task judges it; else the one that saw all.
        """
        results = []
        for group in groups:
            member = pick_member(self.members, group.task) if unseen else self.members[ALL]
            block = self.extractor(group.task).extract(group)
            results.append(member.ensemble.predict(align(block, self.columns)))
        return results


def load_throughput(folder: Path | str) -> ThroughputModel:
    """Read a trained model; raise ``ModelError`` where there is none."""
    return ThroughputModel(*read_model(folder, KIND))


def judge(
    table: Table,
    predictions: Floats,
    judged_records: int,
    networks: Sequence[tuple[str, ...]] = (),
    enumerated: Mapping[str, bool] | None = None,
    preferences: Floats | None = None,
) -> list[JudgedTask]:
    """Judge every task that has predictions and enough good candidates.

    ``preferences`` is the order to measure in, where it is not that of the predictions.
    """
    judged = []
    good = table.good
    for number, task_id in enumerate(table.task_ids):
        rows = np.flatnonzero((table.task == number) & good)
        if len(rows) < judged_records or not np.isfinite(predictions[rows]).all():
            continue
        latency = table.latency_s[rows]
        judged.append(
            JudgedTask(
                task_id=task_id,
                candidates=len(rows),
                best_s=float(latency.min()),
                metrics=task_metrics(
                    latency,
                    predictions[rows],
                    None if preferences is None else preferences[rows],
                ),
                networks=tuple(networks[number]) if networks else (),
                enumerated=bool(enumerated and enumerated.get(task_id)),
            )
        )
    return judged


def report(judged: Sequence[JudgedTask], seed: int) -> dict[str, Any]:
    """Pooled metrics, the same for enumerated tasks alone, and one row a task."""
    complete = [task for task in judged if task.enumerated]
    result: dict[str, Any] = summarize(judged, seed=seed)
    if complete and len(complete) < len(judged):
        result["enumerated"] = summarize(complete, seed=seed)
    result["tasks"] = task_rows(judged)
    return result


@one_writer
def train_throughput(
    dataset: Dataset,
    recipe: Recipe,
    out: Path | None = None,
    *,
    task_ids: Iterable[str] | None = None,
    threads: int | None = None,
    progress: Progress = SILENT,
) -> dict[str, Any]:
    """Train, judge on left-out tasks and, where ``out`` is given, keep the model there.

    Returns the metrics with their intervals, baselines and the noise ceiling beside them, the
    number of training and test tasks, and the seconds it took.
    """
    check_recipe(recipe, KIND)
    if recipe.validity is not None:
        check_recipe(load_recipe(recipe.validity), "validity")
    started = time.perf_counter()
    table, extractors = gather(
        dataset, recipe.extractor, task_ids, most=recipe.data.table_rows, progress=progress
    )
    by_task = networks_of(dataset)
    networks = tuple(by_task.get(task_id, ()) for task_id in table.task_ids)
    fitted = cross_fit(
        table,
        recipe,
        networks=networks,
        keep_all=out is not None,
        threads=threads,
        progress=progress,
    )
    wanted = recipe.data.judged_records
    enough = int((table.good_counts() >= wanted).sum())
    if enough == 0:
        # Small datasets: rather judge short tasks than none, and say so.
        wanted = recipe.data.min_records
    enumerated = dataset.enumerated()
    judged = judge(table, fitted.predictions, wanted, networks, enumerated, fitted.preferences)
    if not judged:
        raise DatasetError("no task has enough good candidates to be judged")
    constant = judge(table, np.zeros(len(table)), wanted)
    metrics = report(judged, recipe.seed)
    result: dict[str, Any] = {
        **{key: value for key, value in metrics.items() if key != "tasks"},
        "n_train_tasks": int((table.good_counts() >= recipe.data.min_records).sum()),
        "n_folds": len({int(f) for f in fitted.folds}),
        "split": recipe.split.by,
        "judged_records": wanted,
        "candidates": int(table.good.sum()),
        "recorded_candidates": sum(candidate_counts(dataset, table.task_ids).values()),
        "columns": len(table.columns),
        "cores": trained_cores(dataset, table),
        "baseline_constant": summarize(constant, seed=recipe.seed),
        "noise_ceiling": noise_ceiling(dataset, [t.task_id for t in judged], seed=recipe.seed),
        "tasks": metrics["tasks"],
    }
    if out is not None:
        manifest = manifest_of(KIND, recipe, dataset, table, extractors, fitted, result) | {
            "predictions": scatter(table, fitted.predictions, judged),
        }
        save_model(out, manifest, fitted.members)
        result["out"] = str(out)
    if recipe.validity is not None:
        result["validity"] = _validity_beside(dataset, recipe, out, task_ids, threads, progress)
    result["seconds"] = time.perf_counter() - started
    return result


def _validity_beside(
    dataset: Dataset,
    recipe: Recipe,
    out: Path | None,
    task_ids: Iterable[str] | None,
    threads: int | None,
    progress: Progress,
) -> dict[str, Any]:
    """Train the validity model that the recipe names, into the model's folder ``validity``."""
    from toolkit.training.tasks.validity import train_validity

    own = load_recipe(str(recipe.validity))
    folder = None if out is None else out / "validity"
    return train_validity(
        dataset, own, folder, task_ids=task_ids, threads=threads, progress=progress
    )


def scatter(
    table: Table, predictions: Floats, judged: Sequence[JudgedTask], limit: int = 2000
) -> dict[str, list[float]]:
    """Predicted against measured log relative throughput of left-out tasks, a fixed sample."""
    ids = {task.task_id for task in judged}
    shown = np.array([task_id in ids for task_id in table.task_ids], dtype=bool)
    rows = np.flatnonzero(table.good & shown[table.task])
    if len(rows) > limit:
        rows = np.sort(np.random.default_rng(0).choice(rows, limit, replace=False))
    return {
        "predicted": np.round(predictions[rows], 4).tolist(),
        "measured": np.round(table.log_speed()[rows], 4).tolist(),
    }


def evaluate_throughput(
    model: ThroughputModel,
    dataset: Dataset,
    *,
    task_ids: Iterable[str] | None = None,
    progress: Progress = SILENT,
) -> dict[str, Any]:
    """Judge a trained model on a dataset, each task by a member that never saw it.

    Tasks that every member saw are left out and counted as ``n_leaked_tasks``; ``n_train_tasks``
    counts what all members together saw.
    """
    from toolkit.errors import LeakError

    started = time.perf_counter()
    recipe = Recipe.model_validate(model.manifest["recipe"])
    table, _ = gather(
        dataset, recipe.extractor, task_ids, most=recipe.data.table_rows, progress=progress
    )
    tasks = dataset.tasks()
    features = table.aligned(model.columns)
    predictions, preferences = np.full(len(table), np.nan), np.full(len(table), np.nan)
    leaked = 0
    for number, task_id in enumerate(table.task_ids):
        rows = np.flatnonzero(table.task == number)
        try:
            member = pick_member(model.members, tasks[task_id])
        except LeakError:
            leaked += 1
            continue
        predictions[rows], preferences[rows] = judged_rows(
            member.ensemble, features[rows], np.where(table.good[rows], number, -1)
        )
    by_task = networks_of(dataset)
    networks = tuple(by_task.get(task_id, ()) for task_id in table.task_ids)
    wanted = recipe.data.judged_records
    if int((table.good_counts() >= wanted).sum()) == 0:
        wanted = recipe.data.min_records
    judged = judge(table, predictions, wanted, networks, dataset.enumerated(), preferences)
    constant = judge(table, np.where(np.isfinite(predictions), 0.0, np.nan), wanted)
    metrics = report(judged, recipe.seed)
    return {
        **metrics,
        "kind": KIND,
        "n_leaked_tasks": leaked,
        "n_train_tasks": len(
            frozenset().union(*(member.training_task_ids for member in model.members.values()))
        ),
        "judged_records": wanted,
        "baseline_constant": summarize(constant, seed=recipe.seed),
        "noise_ceiling": noise_ceiling(dataset, [t.task_id for t in judged], seed=recipe.seed),
        "seconds": time.perf_counter() - started,
    }
