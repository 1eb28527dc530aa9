"""Scores of recorded candidates: a dataset (or logs) in, one row per candidate out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from toolkit.datasets import Dataset, task_name
from toolkit.errors import ModelError
from toolkit.features import cached_blocks
from toolkit.features.base import FeatureBlock
from toolkit.features.task.operation import FAMILIES
from toolkit.progress import SILENT, Progress
from toolkit.records import Task
from toolkit.training.arrays import Floats
from toolkit.training.members.shortlist import mean_opinion, preference
from toolkit.training.table.cores import core_warnings
from toolkit.training.table.table import FAMILY, align
from toolkit.training.tasks.throughput import ThroughputModel
from toolkit.training.tasks.validity import ValidityModel
from toolkit.training.trained.loading import TrainedModel

LOW_COVERAGE = 0.5
"""Below this coverage the model hardly knows a task's features, and a warning says so."""


@dataclass(frozen=True)
class Predictions:
    """What ``predict`` found.

    Attributes
    ----------
    rows
        One row per candidate, by task and then ``rank``: ``task_id``, ``candidate_id``,
        ``sketch_id``, ``source`` and ``line`` of its first record, ``rank`` in its task (the order
        to measure in, see ``shortlist``; 1 is predicted fastest), ``score`` (predicted log relative
        throughput: differences count, higher is faster), ``relative_throughput`` (its exponential;
        1 is the task's best), ``spread`` (standard deviation between the ensemble's models), with a
        validity model ``failure_probability``, ``trained_on``, ``member``, and what was measured:
        ``state`` and ``latency_s`` (seconds).
    tasks
        One entry per task: its name, numbers, whether the model was trained on it or its workload
        (``trained_on``), the member that predicted (``member``), whether that member saw the task
        (``leaked``), ``coverage``, the share of the model's feature importance that the task's
        candidates have columns for, ``family``, the kind of operator it is, and ``relatives``, how
        many tasks of that family the member was trained on (both ``None`` where unknown).
    unreadable
        Tasks whose candidates the model's extractor cannot read.
    warnings
        Core counts that the models have not seen.
    """

    rows: pl.DataFrame
    tasks: list[dict[str, Any]]
    unreadable: list[str]
    warnings: list[str]


def predict(
    model: ThroughputModel,
    dataset: Dataset,
    *,
    validity: ValidityModel | None = None,
    task_ids: Iterable[str] | None = None,
    progress: Progress = SILENT,
) -> Predictions:
    """Score every candidate of a dataset.

    A task that the model was trained on is scored by the member that left it out, and flagged;
    where every member saw it, by the one that saw all, and flagged as ``leaked``.

    Raises ``ModelError`` when no task can be read, or none shares a column with the model.
    """
    tasks = dataset.tasks()
    wanted = list(tasks) if task_ids is None else [dataset.task(t).task_id for t in task_ids]
    extractors = {task_id: model.extractor(tasks[task_id]) for task_id in wanted}
    readable = {t: found for t, found in extractors.items() if found.supports(tasks[t])}
    if not readable:
        raise ModelError(
            f"the model was trained with the extractor {_names(model)}, which reads no task here",
            where=dataset.path,
            cure="train a model on logs of this format, or with extractor = 'auto'",
        )
    by_extractor: dict[str, list[str]] = {}
    for task_id, extractor in readable.items():
        by_extractor.setdefault(extractor.name, []).append(task_id)
    weights = _column_weights(model)
    scored: dict[str, _Scored] = {}
    with progress.step("predicting", total=len(readable)) as step:
        for own in by_extractor.values():
            # One pass over the dataset for all tasks of an extractor.
            for group, rows, block in cached_blocks(dataset, readable[own[0]], own):
                task_id = group.task.task_id
                if task_id not in scored:
                    scored[task_id] = _Scored(model, group.task, validity, weights)
                    step.advance(note=group.task.workload[:30])
                scored[task_id].add(rows, block)
    finished = [scored[task_id].finish() for task_id in readable if task_id in scored]
    entries = [entry for _, entry in finished]
    if not entries or all(entry["coverage"] == 0 for entry in entries):
        raise ModelError(
            "the model knows no feature column of these candidates",
            cure=f"it was trained with {_names(model)}; train a model on logs of this format",
        )
    rows = pl.concat([frame for frame, _ in finished])
    rows = rows.join(_places(dataset), on="candidate_id", how="left", maintain_order="left")
    front = ["task_id", "candidate_id", "sketch_id", "source", "line"]
    rows = rows.select(*front, pl.exclude(front))
    unreadable = [t for t in extractors if t not in readable]
    warnings = core_warnings((model, validity), [tasks[t] for t in readable])
    return Predictions(rows, entries, unreadable, warnings)


def _names(model: TrainedModel) -> str:
    return " and ".join(repr(name) for name in model.manifest["extractor_versions"])


class _Scored:
    """Scores of one task's candidates, collected sketch by sketch."""

    def __init__(
        self,
        model: ThroughputModel,
        task: Task,
        validity: ValidityModel | None,
        weights: dict[str, float],
    ) -> None:
        self._model, self._task = model, task
        self._validity, self._weights = validity, weights
        self._member, self._leaked = model.choose_member(task)
        self._trained_on = any(each.saw(task) for each in model.members.values())
        self._parts: list[pl.DataFrame] = []
        self._opinions: list[Floats] = []
        self._covered = 0.0
        self._families = np.zeros(len(FAMILIES), dtype=np.int64)

    def add(self, rows: pl.DataFrame, block: FeatureBlock) -> None:
        """Score the candidates of one sketch."""
        opinions = self._member.ensemble.opinions(align(block, self._model.columns))
        self._opinions.append(opinions)
        score = mean_opinion(opinions, self._member.ensemble.weights)
        columns: dict[str, Any] = {
            "score": score,
            "relative_throughput": np.exp(score),
            "spread": np.std(opinions, axis=0),
        }
        if self._validity is not None:
            columns["failure_probability"] = _failure(self._validity, self._task, block)
        if FAMILY in block.columns:
            told = block.values[:, block.columns.index(FAMILY)]
            codes = told[np.isfinite(told)].astype(np.int64)
            self._families += np.bincount(codes, minlength=len(FAMILIES))
        known = np.isfinite(block.values).any(axis=0)
        own = np.array([self._weights.get(name, 0.0) for name in block.columns])
        self._covered += float(own[known].sum()) * len(rows)
        self._parts.append(
            rows.select("task_id", "candidate_id", "sketch_id").with_columns(
                *(pl.Series(name, values) for name, values in columns.items()),
                trained_on=pl.lit(self._trained_on),
                member=pl.lit(self._member.name),
                state=rows["state"],
                latency_s=rows["latency_s"],
            )
        )

    def finish(self) -> tuple[pl.DataFrame, dict[str, Any]]:
        """Return all rows in the order to measure in, and the task's entry."""
        opinions = np.concatenate(self._opinions, axis=1)
        order = np.argsort(-preference(opinions, self._member.ensemble.weights), kind="stable")
        frame = pl.concat(self._parts)[order].with_row_index("rank", offset=1)
        front = ["task_id", "candidate_id", "sketch_id", "rank"]
        family = self._family()
        return frame.select(*front, pl.exclude(front)), {
            "task_id": self._task.task_id,
            "name": task_name(self._task),
            "candidates": frame.height,
            "trained_on": self._trained_on,
            "member": self._member.name,
            "leaked": self._leaked,
            "coverage": self._covered / frame.height,
            "family": family,
            "relatives": None if family is None else self._relatives(family),
        }

    def _family(self) -> str | None:
        """Return the family of operators of most candidates; ``None`` where it is unknown."""
        most = FAMILIES[int(self._families.argmax())]
        return most if self._families.any() and most != "other" else None

    def _relatives(self, family: str) -> int | None:
        """Return the number of training tasks of a family; ``None`` in models without families."""
        trained = self._model.manifest["tasks"]
        told = [trained[task_id].get("family") for task_id in self._member.training_task_ids]
        return None if None in told else told.count(family)


def _column_weights(model: TrainedModel) -> dict[str, float]:
    """Share of the model's importance in each of its columns; equal shares if unknown."""
    known: dict[str, float] = dict(model.manifest.get("importance", {}))
    total = sum(known.values())
    if total <= 0:
        return {name: 1 / len(model.columns) for name in model.columns}
    return {name: share / total for name, share in known.items()}


def _failure(validity: ValidityModel, task: Task, block: FeatureBlock) -> Floats:
    extractor = validity.extractor(task)
    if not extractor.supports(task) or not set(block.columns) & set(validity.columns):
        raise ModelError(
            f"the validity model was trained with {_names(validity)}, which does not read task "
            f"{task.task_id}",
            cure="train both models with the same extractor",
        )
    member, _ = validity.choose_member(task)
    return np.asarray(member.ensemble.predict(align(block, validity.columns)))


def _places(dataset: Dataset) -> pl.DataFrame:
    """File and line of each candidate's first record."""
    paths = dataset.sources().select("source_id", source="path")
    records = dataset.records(["candidate_id", "source_id", "line"])
    first = records.unique("candidate_id", keep="first", maintain_order=True).collect()
    joined = first.join(paths, on="source_id", how="left", maintain_order="left")
    return joined.select("candidate_id", "source", "line")
