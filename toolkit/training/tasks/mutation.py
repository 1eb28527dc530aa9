"""Mutation models: which change of a candidate pays, judged on tasks that were never seen."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from toolkit.datasets import Dataset
from toolkit.errors import DatasetError, LeakError
from toolkit.features.base import FeatureBlock
from toolkit.locks import one_writer
from toolkit.progress import SILENT, Progress
from toolkit.records import Task
from toolkit.training.evaluate.gain_judge import Labelled, judge_gains
from toolkit.training.evaluate.noise import noise_spread, occasion_shifts
from toolkit.training.members.crossfit import Member, cross_fit, pick_member
from toolkit.training.members.fit import check_recipe
from toolkit.training.members.gain_models import fit_gains
from toolkit.training.recipes.recipe import Recipe
from toolkit.training.table.direct import DIRECTION_COLUMNS
from toolkit.training.table.gather import gather_parts, networks_of
from toolkit.training.table.mutation_labels import LabelledGroup, label_group
from toolkit.training.table.table import Table, align, build_table
from toolkit.training.trained.mutation_scorer import MutationScorer
from toolkit.training.trained.store import save_model
from toolkit.training.trained.trained import TrainedModel, manifest_of, read_model, trained_cores

KIND = "mutation"
DEFAULT_TIE = 0.01

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class MutationModel(TrainedModel):
    """A trained mutation model: members that each left some tasks out, and one that saw all."""

    def for_task(self, task: Task | str) -> MutationScorer:
        """Return a scorer that never saw the task (given itself, or by its id).

        Raises
        ------
        LeakError
            When every member saw it.
        """
        if isinstance(task, str):
            task = self.known_task(task)
        member = pick_member(self.members, task)
        return MutationScorer(
            member,
            self.manifest["recipe"]["mutation"]["method"],
            self.extractor(task),
            self.columns,
            self.manifest["temperatures"][member.name],
        )


def load_mutation(folder: Path | str) -> MutationModel:
    """Read a trained model; raise ``ModelError`` where there is none."""
    return MutationModel(*read_model(folder, KIND))


def label_dataset(
    dataset: Dataset,
    recipe: Recipe,
    task_ids: Iterable[str] | None = None,
    progress: Progress = SILENT,
) -> Labelled:
    """Find all recorded neighbours of a dataset; the dead band of ties follows from its repeats."""
    parts, extractors = gather_parts(dataset, recipe.extractor, task_ids, progress=progress)
    groups: dict[int, tuple[int, LabelledGroup]] = {}
    start = 0
    with progress.step("neighbours", total=len(parts)) as step:
        for number, (measured, _) in enumerate(parts):
            groups[number] = (start, label_group(measured))
            start += len(measured.group)
            step.advance()
    tie = recipe.mutation.tie or _tie(dataset, recipe)
    shifts = occasion_shifts(dataset, seed=recipe.seed)
    complete = frozenset(task_id for task_id, done in dataset.enumerated().items() if done)
    return Labelled(build_table(parts), groups, extractors, tie, shifts, complete)


def _tie(dataset: Dataset, recipe: Recipe) -> float:
    """Gains that differ by less are equal: twice the noise of a difference of two measurements."""
    spread = noise_spread(dataset, seed=recipe.seed)
    return DEFAULT_TIE if spread is None else float(np.clip(2 * np.sqrt(2) * spread, 0.002, 0.1))


@one_writer
def train_mutation(
    dataset: Dataset,
    recipe: Recipe,
    out: Path | None = None,
    *,
    task_ids: Iterable[str] | None = None,
    threads: int | None = None,
    progress: Progress = SILENT,
) -> dict[str, Any]:
    """Train, judge on left-out tasks and, where ``out`` is given, keep the model there.

    Returns accuracy among recorded directions and shares of the oracle's gain, at each level, with
    their intervals by task and the baselines beside them.
    """
    check_recipe(recipe, KIND)
    started = time.perf_counter()
    labelled = label_dataset(dataset, recipe, task_ids, progress)
    table = labelled.table
    by_task = networks_of(dataset)
    fitted = cross_fit(
        table,
        recipe,
        networks=tuple(by_task.get(task_id, ()) for task_id in table.task_ids),
        keep_all=out is not None,
        threads=threads,
        fit=lambda rows, share: fit_gains(
            table, labelled.groups, rows, recipe, tie=labelled.tie, threads=share
        ),
        progress=progress,
    )
    by_name = {t: f"fold-{f}" for t, f in zip(table.task_ids, fitted.folds.tolist(), strict=True)}
    chosen = {t: fitted.members.get(name) for t, name in by_name.items()}
    result, temperatures = judge_gains(labelled, recipe, chosen)
    if not result["n_test_tasks"]:
        raise DatasetError(
            "no candidate of a task that can be judged has two recorded directions",
            cure="collect logs with mutations: toolkit collect --help",
        )
    result["n_train_tasks"] = int((table.good_counts() >= recipe.data.min_records).sum())
    result["n_folds"] = len({int(f) for f in fitted.folds})
    result["columns"] = len(table.columns)
    result["cores"] = trained_cores(dataset, table)
    if out is not None:
        direct = recipe.mutation.method == "direct"
        manifest = manifest_of(
            KIND,
            recipe,
            dataset,
            table,
            labelled.extractors,
            fitted,
            result,
            more_columns=DIRECTION_COLUMNS if direct else (),
        ) | {"temperatures": temperatures}
        save_model(out, manifest, fitted.members)
        result["out"] = str(out)
    result["seconds"] = time.perf_counter() - started
    return result


def evaluate_mutation(
    model: MutationModel,
    dataset: Dataset,
    *,
    task_ids: Iterable[str] | None = None,
    progress: Progress = SILENT,
) -> dict[str, Any]:
    """Judge a trained model on a dataset, each task by a member that never saw it."""
    started = time.perf_counter()
    recipe = Recipe.model_validate(model.manifest["recipe"])
    labelled = label_dataset(dataset, recipe, task_ids, progress)
    member_of: dict[str, Member | None] = {}
    leaked = 0
    for task_id, task in dataset.tasks().items():
        try:
            member_of[task_id] = pick_member(model.members, task)
        except LeakError:
            member_of[task_id] = None
            leaked += 1
    table = labelled.table
    aligned = align_table(table, model.columns)
    result, _ = judge_gains(
        replace(labelled, table=aligned), recipe, member_of, model.manifest["temperatures"]
    )
    result.update(kind=KIND, n_leaked_tasks=leaked, seconds=time.perf_counter() - started)
    return result


def align_table(table: Table, columns: tuple[str, ...]) -> Table:
    """Bring a table's features into a model's columns."""
    block = FeatureBlock(table.columns, table.features)
    return replace(table, columns=columns, features=align(block, columns))
