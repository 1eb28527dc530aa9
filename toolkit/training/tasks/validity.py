"""Validity models: which candidates will fail to build or run, judged on tasks never seen.

A failed build costs as much time as a good one, or its whole timeout. A candidate counts as failed
when it ran on no occasion.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from toolkit.datasets import Dataset
from toolkit.errors import DatasetError, LeakError
from toolkit.locks import one_writer
from toolkit.progress import SILENT, Progress
from toolkit.records import Task
from toolkit.training.evaluate.validity_metrics import (
    TaskValidity,
    calibration_error,
    judge_task,
    summarize_validity,
    validity_rows,
)
from toolkit.training.members.crossfit import Member, cross_fit, pick_member
from toolkit.training.members.fit import check_recipe
from toolkit.training.recipes.recipe import Recipe
from toolkit.training.table.gather import gather, networks_of
from toolkit.training.table.table import Table
from toolkit.training.trained.failure import fit_failure
from toolkit.training.trained.scorer import ValidityScorer
from toolkit.training.trained.store import save_model
from toolkit.training.trained.trained import TrainedModel, manifest_of, read_model, trained_cores

KIND = "validity"

CALIBRATION_RESAMPLES = 200

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class ValidityModel(TrainedModel):
    """A trained validity model: members that each left some tasks out, and one that saw all."""

    def for_task(self, task: Task | str) -> ValidityScorer:
        """Return a scorer that never saw the task; raise ``LeakError`` where every member did."""
        if isinstance(task, str):
            task = self.known_task(task)
        member = pick_member(self.members, task)
        return ValidityScorer(member, self.extractor(task), self.columns)


def load_validity(folder: Path | str) -> ValidityModel:
    """Read a trained model; raise ``ModelError`` where there is none."""
    return ValidityModel(*read_model(folder, KIND))


@one_writer
def train_validity(
    dataset: Dataset,
    recipe: Recipe,
    out: Path | None = None,
    *,
    task_ids: Iterable[str] | None = None,
    threads: int | None = None,
    progress: Progress = SILENT,
) -> dict[str, Any]:
    """Train, judge on left-out tasks and, where ``out`` is given, keep the model there.

    Returns the metrics with their intervals, the base rate's beside them, and the seconds it took.

    Raises
    ------
    DatasetError
        When no candidate failed, or none ran: there is nothing to learn.
    """
    check_recipe(recipe, KIND)
    started = time.perf_counter()
    table, extractors = gather(
        dataset, recipe.extractor, task_ids, most=recipe.data.table_rows, progress=progress
    )
    if table.good.all() or not table.good.any():
        what = "no candidate failed" if table.good.all() else "no candidate ran"
        raise DatasetError(
            f"{what}: there is nothing to tell apart",
            where=dataset.path,
            cure="ingest logs that hold failures and successes",
        )
    by_task = networks_of(dataset)
    fitted = cross_fit(
        table,
        recipe,
        networks=tuple(by_task.get(task_id, ()) for task_id in table.task_ids),
        keep_all=out is not None,
        threads=threads,
        fit=lambda rows, share: fit_failure(table, rows, recipe, threads=share),
        usable=np.ones(len(table), dtype=bool),
        progress=progress,
    )
    by_fold = {n: fitted.members.get(f"fold-{n}") for n in np.unique(fitted.folds).tolist()}
    result: dict[str, Any] = {
        **_judged(table, [by_fold[int(f)] for f in fitted.folds], recipe, table.features),
        "n_train_tasks": int((_counts(table) >= recipe.data.min_records).sum()),
        "n_folds": len(by_fold),
        "columns": len(table.columns),
        "cores": trained_cores(dataset, table),
        "seconds": time.perf_counter() - started,
    }
    if out is not None:
        manifest = manifest_of(KIND, recipe, dataset, table, extractors, fitted, result)
        save_model(out, manifest, fitted.members)
        result["out"] = str(out)
    return result


def evaluate_validity(
    model: ValidityModel,
    dataset: Dataset,
    *,
    task_ids: Iterable[str] | None = None,
    progress: Progress = SILENT,
) -> dict[str, Any]:
    """Judge a trained model on a dataset, each task by a member that never saw it.

    Tasks that every member saw are left out and counted as ``n_leaked_tasks``.
    """
    started = time.perf_counter()
    recipe = Recipe.model_validate(model.manifest["recipe"])
    table, _ = gather(
        dataset, recipe.extractor, task_ids, most=recipe.data.table_rows, progress=progress
    )
    tasks = dataset.tasks()
    members: list[Member | None] = []
    for task_id in table.task_ids:
        try:
            members.append(pick_member(model.members, tasks[task_id]))
        except LeakError:
            members.append(None)
    return {
        **_judged(table, members, recipe, table.aligned(model.columns)),
        "n_leaked_tasks": sum(member is None for member in members),
        "seconds": time.perf_counter() - started,
    }


def _counts(table: Table) -> NDArray[np.int64]:
    return np.bincount(table.task, minlength=len(table.task_ids)).astype(np.int64)


def _judged(
    table: Table,
    members: list[Member | None],
    recipe: Recipe,
    features: NDArray[np.float32],
) -> dict[str, Any]:
    """Figures over the tasks with enough candidates, each judged by its own member."""
    judged: list[TaskValidity] = []
    parts: list[tuple[NDArray[np.bool_], Floats]] = []
    for number, task_id in enumerate(table.task_ids):
        member, rows = members[number], np.flatnonzero(table.task == number)
        if member is None or len(rows) < recipe.data.min_records:
            continue
        latency = table.latency_s[rows]
        probability = member.ensemble.predict(features[rows])
        judged.append(judge_task(task_id, latency, probability, member.ensemble.base_rate))
        parts.append((~np.isfinite(latency), probability))
    if not judged:
        raise DatasetError("no task has enough candidates to be judged")
    result = summarize_validity(judged, seed=recipe.seed)
    error, low, high = _calibration(parts, recipe.seed)
    return {
        "kind": KIND,
        **result,
        "calibration_error": error,
        "calibration_error_interval": [low, high],
        "candidates": sum(task.candidates for task in judged),
        "split": recipe.split.by,
        "tasks": validity_rows(judged),
    }


def _calibration(
    parts: list[tuple[NDArray[np.bool_], Floats]], seed: int
) -> tuple[float, float, float]:
    """Pooled calibration error, and the 2.5 and 97.5 % quantiles of its resamples by task."""
    failed = np.concatenate([part[0] for part in parts])
    probability = np.concatenate([part[1] for part in parts])
    value = calibration_error(failed, probability)
    rng = np.random.default_rng(seed)
    drawn = []
    for _ in range(CALIBRATION_RESAMPLES):
        chosen = rng.integers(0, len(parts), len(parts))
        drawn.append(
            calibration_error(
                np.concatenate([parts[i][0] for i in chosen]),
                np.concatenate([parts[i][1] for i in chosen]),
            )
        )
    low, high = np.quantile(drawn, [0.025, 0.975])
    return value, float(low), float(high)
