"""Mutation models: which change of a candidate gains most, judged on unseen tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
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
from toolkit.training.evaluate.gain_judge import Labelled, judge_gains
from toolkit.training.evaluate.mutation_metrics import GainMetrics
from toolkit.training.evaluate.noise import occasion_noise
from toolkit.training.members.crossfit import Judges, members_by_task
from toolkit.training.members.gain_models import DIRECTION_COLUMNS, fit_gains
from toolkit.training.recipes.recipe import Recipe
from toolkit.training.table.gather import gather_parts
from toolkit.training.table.mutation_labels import LabelledGroup, choices, label_group
from toolkit.training.table.neighbours import ANY
from toolkit.training.table.table import build_table
from toolkit.training.tasks.trainer import Kind, ModelResult, TaskIds, train
from toolkit.training.trained.loading import TrainedModel
from toolkit.training.trained.scorer import ExpectedGains, MutationScorer

DEFAULT_TIE = 0.01


@dataclass(frozen=True)
class MutationModel(TrainedModel):
    """A trained mutation model: members that each left some tasks out, and one that saw all."""

    kind = "mutation"

    @property
    def expects(self) -> bool:
        """Whether its gains are differences of one prediction (method ``expected``)."""
        return bool(self.manifest["recipe"]["mutation"]["method"] == "expected")

    def for_task(self, task: Task | str) -> MutationScorer:
        """Return a scorer that never saw the task; raise ``LeakError`` where every member did."""
        return (ExpectedGains if self.expects else MutationScorer)(self, task)


@dataclass(frozen=True, repr=False, kw_only=True)
class MutationResult(ModelResult, GainMetrics):
    """Metrics of a mutation model: those of its level on top, those of other levels in ``levels``.

    The ceilings are those of ``gain_ceilings``, ``None`` where they are unknown; ``tie`` is the
    difference up to which gains are equal, ``judged_records`` what a task needed to be judged,
    ``recorded_share`` the share of directions that have a recorded neighbour.
    """

    gain_share_ceiling: float | None
    gain_share_ceiling_interval: Interval | None = None
    gain_share_blind_ceiling: float | None
    gain_share_blind_ceiling_interval: Interval | None = None
    gain_share_told_half: float | None
    gain_share_told_half_interval: Interval | None = None
    level: str
    tie: float
    judged_records: int
    recorded_share: float
    levels: Mapping[str, GainMetrics]


class _Mutation(Kind[MutationResult]):
    model = MutationModel

    def gather(
        self, dataset: Dataset, recipe: Recipe, task_ids: TaskIds, progress: Progress
    ) -> Labelled:
        """Find all recorded neighbours, and set the tie from the dataset's repeats."""
        parts, extractors = gather_parts(dataset, recipe.extractor, task_ids, progress=progress)
        groups, start = [], 0
        with progress.step("neighbours", total=len(parts)) as step:
            for measured, _ in parts:
                groups.append((start, label_group(measured)))
                start += len(measured.group)
                step.advance()
        spread, shifts = occasion_noise(dataset, seed=recipe.seed)
        tie = recipe.mutation.tie or DEFAULT_TIE
        if not recipe.mutation.tie and spread is not None:
            # Twice the noise of a difference of two measurements.
            tie = float(np.clip(2 * np.sqrt(2) * spread, 0.002, 0.1))
        complete = frozenset(task_id for task_id, done in dataset.enumerated().items() if done)
        table = build_table(parts)
        recipe = recipe.for_neighbours(_recorded_share(groups))
        return Labelled(dataset, recipe, table, extractors, groups, tie, shifts, complete)

    def usable(self, data: Labelled) -> Bools:
        """Return the candidates that ran; raise ``DatasetError`` early if none can be judged."""
        level = data.recipe.mutation.level
        for _, label in data.groups:
            gain = choices(label.group.sketch, label.gains, level).gain
            if (np.isfinite(gain).sum(axis=1) > 1).any():
                return super().usable(data)
        raise _without_choice()

    def fitter(self, data: Labelled) -> Callable[[Ints, int], Any]:
        table, groups, recipe, tie = data.table, data.groups, data.recipe, data.tie
        return lambda rows, threads: fit_gains(
            table, groups, rows, recipe, tie=tie, threads=threads
        )

    def more_columns(self, recipe: Recipe) -> tuple[str, ...]:
        learned = any(model.objective == "gains" for model in recipe.models)
        return DIRECTION_COLUMNS if learned or recipe.mutation.method == "direct" else ()

    def judge(
        self, data: Labelled, judges: Judges, model: TrainedModel | None
    ) -> tuple[MutationResult, dict[str, Any]]:
        known = None if model is None else model.manifest["temperatures"]
        member_of = members_by_task(data.table, judges)
        found, temperatures = judge_gains(data, member_of, known)
        if model is None and not found["n_test_tasks"]:
            raise _without_choice()
        share = _recorded_share(data.groups)
        return MutationResult(**found, recorded_share=share), {"temperatures": temperatures}


def _recorded_share(groups: Sequence[tuple[int, LabelledGroup]]) -> float:
    """Share of the directions of candidates that ran in which a neighbour was recorded."""
    counts = [label.gains.count[ANY][np.isfinite(label.latency_s)] for _, label in groups]
    recorded, directions = sum(int((n > 0).sum()) for n in counts), sum(map(np.size, counts))
    return recorded / max(directions, 1)


def _without_choice() -> DatasetError:
    return DatasetError(
        "no candidate of a task that can be judged has neighbours in two directions",
        cure="collect logs with mutations: toolkit collect --help",
    )


MUTATION = _Mutation()


@one_writer
def train_mutation(
    dataset: Dataset,
    recipe: Recipe,
    out: Path | None = None,
    *,
    task_ids: Iterable[str] | None = None,
    threads: int | Cluster | None = None,
    progress: Progress = SILENT,
) -> MutationResult:
    """Train, judge on left-out tasks and, where ``out`` is given, keep the model there.

    Accuracy is among recorded directions; shares are of the oracle's gain.
    """
    return train(MUTATION, dataset, recipe, out, task_ids, threads, progress)


def load_mutation(folder: Path | str) -> MutationModel:
    """Read a trained model; raise ``ModelError`` where there is none."""
    return MutationModel.load(folder)
