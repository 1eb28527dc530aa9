"""Throughput models: trained on other tasks, judged on tasks that they never saw."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from toolkit.cluster import Cluster
from toolkit.datasets import Dataset
from toolkit.errors import DatasetError
from toolkit.features.base import CandidateGroup
from toolkit.locks import one_writer
from toolkit.progress import SILENT, Progress
from toolkit.records import Task
from toolkit.training.arrays import Floats
from toolkit.training.evaluate.metrics import (
    JudgedTask,
    ThroughputMetrics,
    summarize,
    summarize_all,
    task_metrics,
    task_rows,
)
from toolkit.training.evaluate.noise import noise_ceiling
from toolkit.training.members.crossfit import ALL, Judges, pick_member, predict_unseen
from toolkit.training.members.fit import check_recipe
from toolkit.training.recipes.recipe import Recipe, load_recipe
from toolkit.training.table.gather import Gathered, candidate_counts, networks_of
from toolkit.training.table.table import Table, align
from toolkit.training.tasks.trainer import Kind, ModelResult, train
from toolkit.training.tasks.validity import ValidityResult, check_outcomes, train_validity
from toolkit.training.trained.loading import TrainedModel
from toolkit.training.trained.scorer import ThroughputScorer

SHOWN = 2000
"""Number of predictions that a manifest keeps with their measurements, drawn with a fixed seed."""


@dataclass(frozen=True)
class ThroughputModel(TrainedModel):
    """A trained throughput model: members that each left some tasks out, and one that saw all."""

    kind = "throughput"

    def for_task(self, task: Task | str) -> ThroughputScorer:
        """Return a scorer that never saw the task; raise ``LeakError`` where every member did."""
        return ThroughputScorer(self, task)

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


@dataclass(frozen=True, repr=False, kw_only=True)
class ThroughputResult(ModelResult, ThroughputMetrics):
    """Metrics of a throughput model, with a constant predictor and the noise ceiling to compare.

    ``judged_records`` is the number of good candidates that a task needed to be judged,
    ``validity`` the result of the validity model that was trained with it, ``search`` the result of
    the search for parameters before it.
    """

    judged_records: int
    baseline_constant: ThroughputMetrics
    noise_ceiling: Mapping[str, Any]
    split: str | None = None
    candidates: int | None = None
    recorded_candidates: int | None = None
    validity: ValidityResult | None = None
    search: Mapping[str, Any] | None = None


def judge(
    table: Table,
    predictions: Floats,
    judged_records: int,
    networks: Sequence[tuple[str, ...]] = (),
    enumerated: Mapping[str, bool] | None = None,
    preferences: Floats | None = None,
) -> list[JudgedTask]:
    """Judge every task that has predictions and enough good candidates.

    ``preferences`` gives the order to measure in, if it is not that of the predictions.
    """
    judged = []
    good, families = table.good, table.families()
    for number, task_id in enumerate(table.task_ids):
        rows = np.flatnonzero((table.task == number) & good)
        if len(rows) < judged_records or not np.isfinite(predictions[rows]).all():
            continue
        latency = table.latency_s[rows]
        preferred = None if preferences is None else preferences[rows]
        judged.append(
            JudgedTask(
                task_id=task_id,
                candidates=len(rows),
                best_s=float(latency.min()),
                metrics=task_metrics(latency, predictions[rows], preferred),
                networks=networks[number] if networks else (),
                enumerated=bool(enumerated and enumerated.get(task_id)),
                family=families[number],
            )
        )
    return judged


class _Throughput(Kind[ThroughputResult]):
    model = ThroughputModel

    def judge(
        self, data: Gathered, judges: Judges, model: TrainedModel | None
    ) -> tuple[ThroughputResult, dict[str, Any]]:
        table, dataset, seed = data.table, data.dataset, data.recipe.seed
        predictions, preferences = predict_unseen(table, judges)
        wanted = table.judged_records(data.recipe.data)
        networks = networks_of(dataset, table.task_ids)
        judged = judge(table, predictions, wanted, networks, dataset.enumerated(), preferences)
        if model is None and not judged:
            raise DatasetError("no task has enough good candidates to be judged")
        constant = judge(table, np.where(np.isfinite(predictions), 0.0, np.nan), wanted)
        ids = [task.task_id for task in judged]
        result = ThroughputResult(
            **summarize_all(judged, seed=seed),
            judged_records=wanted,
            baseline_constant=summarize(constant, seed=seed),
            noise_ceiling=noise_ceiling(dataset, ids, seed=seed),
            tasks=task_rows(judged),
        )
        if model is not None:
            seen = frozenset().union(*(m.training_task_ids for m in model.members.values()))
            return replace(result, n_train_tasks=len(seen)), {}
        result = replace(
            result,
            split=data.recipe.split.by,
            candidates=int(table.good.sum()),
            recorded_candidates=sum(candidate_counts(dataset, table.task_ids).values()),
        )
        return result, {"predictions": _scatter(table, predictions, ids)}


THROUGHPUT = _Throughput()


@one_writer
def train_throughput(
    dataset: Dataset,
    recipe: Recipe,
    out: Path | None = None,
    *,
    task_ids: Iterable[str] | None = None,
    threads: int | Cluster | None = None,
    progress: Progress = SILENT,
) -> ThroughputResult:
    """Train, judge on left-out tasks and, where ``out`` is given, keep the model there.

    The validity model that the recipe names goes into the model's folder ``validity``.
    """
    task_ids = None if task_ids is None else list(task_ids)
    if recipe.validity is not None:
        check_recipe(load_recipe(recipe.validity), "validity")
        # Checked before anything is trained.
        latency = dataset.candidates_lazily(task_ids).select("latency_s").collect()["latency_s"]
        check_outcomes(latency.is_not_null().to_numpy(), dataset)
    started = time.perf_counter()
    result = train(THROUGHPUT, dataset, recipe, out, task_ids, threads, progress)
    if recipe.validity is None:
        return result
    beside = train_validity(
        dataset,
        load_recipe(recipe.validity),
        None if out is None else Path(out) / "validity",
        task_ids=task_ids,
        threads=threads,
        progress=progress,
    )
    return replace(result, validity=beside, seconds=time.perf_counter() - started)


def load_throughput(folder: Path | str) -> ThroughputModel:
    """Read a trained model; raise ``ModelError`` where there is none."""
    return ThroughputModel.load(folder)


def _scatter(table: Table, predictions: Floats, judged: Sequence[str]) -> dict[str, list[float]]:
    """Predicted and measured log relative throughput of left-out tasks, a fixed sample."""
    shown = np.isin(table.task_ids, judged)
    rows = np.flatnonzero(table.good & shown[table.task])
    if len(rows) > SHOWN:
        rows = np.sort(np.random.default_rng(0).choice(rows, SHOWN, replace=False))
    return {
        "predicted": np.round(predictions[rows], 4).tolist(),
        "measured": np.round(table.log_speed()[rows], 4).tolist(),
    }
