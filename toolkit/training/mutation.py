"""Mutation models: which change of a candidate pays, judged on tasks that were never seen."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from toolkit.datasets import Dataset
from toolkit.errors import DatasetError, LeakError
from toolkit.features.hardware import is_gpu
from toolkit.progress import SILENT, Progress
from toolkit.records import Task
from toolkit.training.crossfit import ALL, Member, available_threads, cross_fit, pick_member
from toolkit.training.direct import DIRECTION_COLUMNS
from toolkit.training.gain_models import fit_gains, predict_gains
from toolkit.training.gather import gather_parts, networks_of
from toolkit.training.mutation_labels import LabelledGroup, choices, label_group, rule_weights
from toolkit.training.mutation_metrics import TaskGains, gain_rows, summarize_gains
from toolkit.training.mutation_scorer import MutationScorer
from toolkit.training.noise import noise_spread
from toolkit.training.recipe import Recipe
from toolkit.training.store import load_members, read_manifest, save_model, versions
from toolkit.training.table import Table, align, build_table
from toolkit.training.throughput import TrainedModel, task_entries

KIND = "mutation"
LEVELS = ("knob", "rule", "way")
TEMPERATURES = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28)
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
        return MutationScorer(
            pick_member(self.members, task),
            self.manifest["recipe"]["mutation"]["method"],
            self.extractor(task),
            self.columns,
            self.manifest["temperature"],
        )


def load_mutation(folder: Path | str) -> MutationModel:
    """Read a trained model; raise ``ModelError`` where there is none."""
    manifest = read_manifest(Path(folder), KIND)
    return MutationModel(manifest, load_members(Path(folder), manifest))


@dataclass(frozen=True)
class Labelled:
    """A dataset's table with the recorded gains of every group, by the group's number."""

    table: Table
    groups: Mapping[int, tuple[int, LabelledGroup]]
    extractors: dict[str, int]
    tie: float


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
    return Labelled(build_table(parts), groups, extractors, tie)


def _tie(dataset: Dataset, recipe: Recipe) -> float:
    """Gains that differ by less are equal: twice the noise of a difference of two measurements."""
    spread = noise_spread(dataset, seed=recipe.seed)
    return DEFAULT_TIE if spread is None else float(np.clip(2 * np.sqrt(2) * spread, 0.002, 0.1))


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
    started = time.perf_counter()
    threads = threads or available_threads()
    labelled = label_dataset(dataset, recipe, task_ids, progress)
    table = labelled.table
    by_task = networks_of(dataset)
    fitted = cross_fit(
        table,
        recipe,
        networks=tuple(by_task.get(task_id, ()) for task_id in table.task_ids),
        keep_all=out is not None,
        fit=lambda rows: fit_gains(
            table, labelled.groups, rows, recipe, tie=labelled.tie, threads=threads
        ),
        progress=progress,
    )
    by_name = {t: f"fold-{f}" for t, f in zip(table.task_ids, fitted.folds.tolist(), strict=True)}
    chosen = {t: fitted.members.get(name) for t, name in by_name.items()}
    result, temperature = judge_gains(labelled, recipe, chosen, table.columns)
    if not result["n_test_tasks"]:
        raise DatasetError(
            "no candidate of a task that can be judged has two recorded directions",
            cure="collect logs with mutations: toolkit collect --help",
        )
    result["n_train_tasks"] = int((table.good_counts() >= recipe.data.min_records).sum())
    result["n_folds"] = len({int(f) for f in fitted.folds})
    result["columns"] = len(table.columns)
    if out is not None:
        importance = fitted.members[ALL].ensemble.importance()
        direct = recipe.mutation.method == "direct"
        names = [*table.columns, *(DIRECTION_COLUMNS if direct else ())]
        order = np.argsort(-importance, kind="stable")
        manifest = {
            "kind": KIND,
            "versions": versions(),
            "extractor": recipe.extractor,
            "extractor_versions": labelled.extractors,
            "columns": list(table.columns),
            "seed": recipe.seed,
            "dataset": {"path": str(dataset.path), "fingerprint": dataset.fingerprint()},
            "recipe": recipe.model_dump(mode="json"),
            "temperature": temperature,
            "metrics": result,
            "importance": {names[i]: float(importance[i]) for i in order if importance[i] > 0},
            "folds": {t: int(f) for t, f in zip(table.task_ids, fitted.folds, strict=True)},
            "tasks": task_entries(dataset, table),
        }
        save_model(out, manifest, fitted.members)
        result["out"] = str(out)
    result["seconds"] = time.perf_counter() - started
    return result


def judge_gains(
    labelled: Labelled,
    recipe: Recipe,
    member_of: Mapping[str, Member | None],
    columns: tuple[str, ...],
    temperature: float | None = None,
) -> tuple[dict[str, Any], float]:
    """Judge every task by the member given for it, at all levels.

    Returns the figures (those of the recipe's level on top) and the temperature at which the
    probabilities of directions fit best; a given one is kept.
    """
    table = labelled.table
    counts = table.good_counts()
    wanted = recipe.data.judged_records
    if not (counts >= wanted).any():
        wanted = recipe.data.min_records
    predicted: dict[int, Floats] = {}
    for number, (start, label) in labelled.groups.items():
        group = label.measured.group
        if not len(group) or counts[table.task[start]] < wanted:
            continue
        member = member_of.get(group.task.task_id)
        if member is not None:
            features = table.features[start : start + len(group)]
            predicted[number] = predict_gains(member, recipe.mutation.method, group, features)
    level = recipe.mutation.level
    if temperature is None:
        losses = {
            t: _judge_level(labelled, predicted, level, member_of, t)[0].get("log_loss", 0.0)
            for t in TEMPERATURES
        }
        temperature = min(losses, key=lambda t: losses[t])
    by_level: dict[str, dict[str, Any]] = {}
    rows: list[dict[str, Any]] = []
    for name in LEVELS:
        by_level[name], tasks = _judge_level(labelled, predicted, name, member_of, temperature)
        if name == level:
            rows = tasks
    result = {
        **by_level[level],
        "level": level,
        "tie": labelled.tie,
        "judged_records": wanted,
        "levels": {name: found for name, found in by_level.items() if name != level},
        "tasks": rows,
    }
    return result, temperature


def _judge_level(
    labelled: Labelled,
    predicted: Mapping[int, Floats],
    level: str,
    member_of: Mapping[str, Member | None],
    temperature: float,
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    sums, everything = _base_sums(labelled, level)
    tasks: dict[str, TaskGains] = {}
    bases: dict[str, dict[str, float]] = {}
    for number, guess in predicted.items():
        label = labelled.groups[number][1]
        group = label.measured.group
        task = group.task
        member = member_of[task.task_id]
        assert member is not None
        if member.name not in bases:
            bases[member.name] = _base_rate(sums, everything, member)
        found = choices(group.sketch, label.gains, level)
        laid = type(label.gains)(guess, label.gains.count, label.gains.best)
        tasks.setdefault(task.task_id, TaskGains(task.task_id)).add(
            found,
            choices(group.sketch, laid, level).gain,
            rule_weights(task.format, is_gpu(task), found.rules),
            bases[member.name],
            labelled.tie,
            temperature,
        )
    judged = list(tasks.values())
    return summarize_gains(judged), gain_rows(judged)


Sums = dict[str, tuple[float, int]]


def _base_sums(labelled: Labelled, level: str) -> tuple[dict[str, Sums], Sums]:
    """Sum and number of recorded gains of each direction, by task and over all tasks."""
    by_task: dict[str, Sums] = {}
    everything: Sums = {}
    for _, label in labelled.groups.values():
        group = label.measured.group
        found = choices(group.sketch, label.gains, level)
        for column, name in enumerate(found.names):
            values = found.gain[:, column]
            values = values[np.isfinite(values)]
            for sums in (by_task.setdefault(group.task.task_id, {}), everything):
                total, count = sums.get(name, (0.0, 0))
                sums[name] = (total + float(values.sum()), count + len(values))
    return by_task, everything


def _base_rate(sums: Mapping[str, Sums], everything: Sums, member: Member) -> dict[str, float]:
    """Mean gain of each direction over the tasks that a member was trained on."""
    total: Sums = dict.fromkeys(everything, (0.0, 0))
    for task_id in member.training_task_ids:
        for name, (value, count) in sums.get(task_id, {}).items():
            total[name] = (total[name][0] + value, total[name][1] + count)
    return {name: value / count for name, (value, count) in total.items() if count}


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
        Labelled(aligned, labelled.groups, labelled.extractors, labelled.tie),
        recipe,
        member_of,
        model.columns,
        model.manifest["temperature"],
    )
    result.update(kind=KIND, n_leaked_tasks=leaked, seconds=time.perf_counter() - started)
    return result


def align_table(table: Table, columns: tuple[str, ...]) -> Table:
    """Bring a table's features into a model's columns."""
    from dataclasses import replace

    from toolkit.features.base import FeatureBlock

    block = FeatureBlock(table.columns, table.features)
    return replace(table, columns=columns, features=align(block, columns))
