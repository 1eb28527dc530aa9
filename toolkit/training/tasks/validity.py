"""Validity models: which candidates will fail to build or run, judged on unseen tasks.

A failed build costs as much time as a good one, or its whole timeout. A candidate counts as failed
when it ran on no occasion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from toolkit.cluster import Cluster
from toolkit.datasets import Dataset
from toolkit.errors import DatasetError
from toolkit.locks import one_writer
from toolkit.progress import SILENT, Progress
from toolkit.records import Task
from toolkit.training.arrays import Bools, Ints
from toolkit.training.evaluate.bootstrap import Interval
from toolkit.training.evaluate.validity_metrics import (
    ValidityMetrics,
    calibration_interval,
    judge_task,
    summarize_validity,
)
from toolkit.training.members.crossfit import Judges, members_by_task
from toolkit.training.members.ensemble import fit_failure
from toolkit.training.recipes.recipe import Recipe
from toolkit.training.table.gather import Gathered
from toolkit.training.table.table import drawn_alike
from toolkit.training.tasks.trainer import Kind, ModelResult, train
from toolkit.training.trained.loading import TrainedModel
from toolkit.training.trained.scorer import ValidityScorer


@dataclass(frozen=True)
class ValidityModel(TrainedModel):
    """A trained validity model: members that each left some tasks out, and one that saw all."""

    kind = "validity"

    def for_task(self, task: Task | str) -> ValidityScorer:
        """Return a scorer that never saw the task; raise ``LeakError`` where every member did."""
        return ValidityScorer(self, task)


@dataclass(frozen=True, repr=False, kw_only=True)
class ValidityResult(ModelResult, ValidityMetrics):
    """How a validity model was judged."""

    calibration_error: float
    calibration_error_interval: Interval
    candidates: int
    split: str


class _Validity(Kind[ValidityResult]):
    model = ValidityModel
    choose = staticmethod(drawn_alike)  # so that the share of failures stays the same

    def usable(self, data: Gathered) -> Bools:
        good = data.table.good
        check_outcomes(good, data.dataset)
        return np.ones(len(good), dtype=bool)

    def fitter(self, data: Gathered) -> Callable[[Ints, int], Any]:
        table, recipe = data.table, data.recipe  # only these go to another process
        return lambda rows, threads: fit_failure(table, rows, recipe, threads=threads)

    def judge(
        self, data: Gathered, judges: Judges, model: TrainedModel | None
    ) -> tuple[ValidityResult, dict[str, Any]]:
        table, recipe = data.table, data.recipe
        member_of = members_by_task(table, judges)
        judged, parts = [], []
        for number, task_id in enumerate(table.task_ids):
            member, rows = member_of.get(task_id), np.flatnonzero(table.task == number)
            if member is None or len(rows) < recipe.data.min_records:
                continue
            latency = table.latency_s[rows]
            probability = member.ensemble.predict(table.features[rows])
            judged.append(judge_task(task_id, latency, probability, member.ensemble.base_rate))
            parts.append((~np.isfinite(latency), probability))
        if not judged:
            raise DatasetError("no task has enough candidates to be judged")
        result = ValidityResult(
            kind=self.model.kind,
            **summarize_validity(judged, seed=recipe.seed),
            **calibration_interval(parts, recipe.seed),
            candidates=sum(task.candidates for task in judged),
            split=recipe.split.by,
            tasks=[{**asdict(task), "base_rate": task.base_rate} for task in judged],
        )
        return result, {}


VALIDITY = _Validity()


def check_outcomes(good: Bools, dataset: Dataset) -> None:
    """Raise ``DatasetError`` when all candidates of a dataset ran, or none did."""
    if good.all() or not good.any():
        what = "no candidate failed" if good.all() else "no candidate ran"
        raise DatasetError(
            f"{what}: a validity model needs failed and good ones",
            where=dataset.path,
            cure="ingest logs with failed and with good candidates",
        )


@one_writer
def train_validity(
    dataset: Dataset,
    recipe: Recipe,
    out: Path | None = None,
    *,
    task_ids: Iterable[str] | None = None,
    threads: int | Cluster | None = None,
    progress: Progress = SILENT,
) -> ValidityResult:
    """Train, judge on left-out tasks and, where ``out`` is given, keep the model there.

    Raises ``DatasetError`` when no candidate failed, or none ran.
    """
    return train(VALIDITY, dataset, recipe, out, task_ids, threads, progress)


def load_validity(folder: Path | str) -> ValidityModel:
    """Read a trained model; raise ``ModelError`` where there is none."""
    return ValidityModel.load(folder)
