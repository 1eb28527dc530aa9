"""Judges gains that were predicted for tasks never seen, at every level, beside the ceilings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from toolkit.features.task.hardware import is_gpu
from toolkit.training.evaluate.gain_ceilings import gain_ceilings
from toolkit.training.evaluate.mutation_metrics import TaskGains, gain_rows, summarize_gains
from toolkit.training.members.crossfit import ALL, Member
from toolkit.training.members.gain_models import predict_gains
from toolkit.training.recipes.recipe import Recipe
from toolkit.training.table.mutation_labels import LabelledGroup, choices, rule_weights
from toolkit.training.table.neighbours import Gains
from toolkit.training.table.table import Table

LEVELS = ("knob", "rule", "way")
TEMPERATURES = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28)

Floats = NDArray[np.float64]
Sums = dict[str, tuple[float, int]]


@dataclass(frozen=True)
class Labelled:
    """A dataset's table with the recorded gains of every group, by the group's number.

    Attributes
    ----------
    groups
        First row in the table and labels.
    extractors
        Versions of the extractors, by name.
    tie
        Gains that differ by less are equal.
    shifts
        Differences of log latency between two occasions of one candidate.
    enumerated
        Tasks whose space was recorded completely.
    """

    table: Table
    groups: Mapping[int, tuple[int, LabelledGroup]]
    extractors: dict[str, int]
    tie: float
    shifts: Floats
    enumerated: frozenset[str] = frozenset()


def judge_gains(
    labelled: Labelled,
    recipe: Recipe,
    member_of: Mapping[str, Member | None],
    temperatures: Mapping[str, float] | None = None,
) -> tuple[dict[str, Any], dict[str, float]]:
    """Judge every task by the member given for it, at all levels.

    Returns the figures (those of the recipe's level on top), and for each member the temperature
    at which the probabilities of directions fit best on tasks that other members judged; given
    temperatures are kept.
    """
    table = labelled.table
    counts = table.good_counts()
    wanted = recipe.data.judged_records
    if not (counts >= wanted).any():
        wanted = recipe.data.min_records
    judge = _Judge(labelled, member_of, _predict(labelled, recipe, member_of, counts >= wanted))
    level = recipe.mutation.level
    chosen = temperatures if temperatures is not None else judge.temperatures(level)
    by_level: dict[str, dict[str, Any]] = {}
    rows: list[dict[str, Any]] = []
    for name in LEVELS:
        tasks = judge.tasks(name, chosen)
        by_level[name] = summarize_gains(tasks, seed=recipe.seed)
        if name == level:
            rows = gain_rows(tasks)
            complete = [task for task in tasks if task.task_id in labelled.enumerated]
            if complete:
                by_level[name]["enumerated"] = summarize_gains(complete, seed=recipe.seed)
    result = {
        **by_level[level],
        **gain_ceilings(judge.labels(), labelled.shifts, seed=recipe.seed),
        "level": level,
        "tie": labelled.tie,
        "judged_records": wanted,
        "levels": {name: found for name, found in by_level.items() if name != level},
        "tasks": rows,
    }
    return result, dict(chosen)


def _predict(
    labelled: Labelled,
    recipe: Recipe,
    member_of: Mapping[str, Member | None],
    enough: NDArray[np.bool_],
) -> dict[int, Floats]:
    """Predicted gains ``(3, n, knobs)`` of every group of a judged task, by the group's number."""
    table = labelled.table
    predicted: dict[int, Floats] = {}
    for number, (start, label) in labelled.groups.items():
        group = label.measured.group
        if not len(group) or not enough[table.task[start]]:
            continue
        member = member_of.get(group.task.task_id)
        if member is not None:
            features = table.features[start : start + len(group)]
            predicted[number] = predict_gains(member, recipe.mutation.method, group, features)
    return predicted


class _Judge:
    """Recorded gains beside predicted ones, at any level and temperature."""

    def __init__(
        self,
        labelled: Labelled,
        member_of: Mapping[str, Member | None],
        predicted: Mapping[int, Floats],
    ) -> None:
        self._labelled = labelled
        self._member_of = member_of
        self._predicted = predicted

    def labels(self) -> Mapping[str, Sequence[LabelledGroup]]:
        """Labels of the judged groups, by task."""
        found: dict[str, list[LabelledGroup]] = {}
        for number in self._predicted:
            label = self._labelled.groups[number][1]
            found.setdefault(label.measured.group.task.task_id, []).append(label)
        return dict(found)

    def temperatures(self, level: str) -> dict[str, float]:
        """Best temperature by member; tasks that the member itself judges do not enter.

        What other members predict of theirs does: those did learn from the tasks left out here.
        It is one of eight numbers, and changes no pick.
        """
        losses: dict[float, dict[str, float]] = {}
        names = {member.name for member in self._member_of.values() if member is not None}
        for temperature in TEMPERATURES:
            tasks = self.tasks(level, dict.fromkeys(names, temperature))
            losses[temperature] = {task.task_id: task.log_loss for task in tasks}

        def best(name: str) -> float:
            def loss(temperature: float) -> float:
                return sum(
                    value
                    for task_id, value in losses[temperature].items()
                    if getattr(self._member_of[task_id], "name", None) != name
                )

            return min(TEMPERATURES, key=loss)

        return {name: best(name) for name in sorted({*names, ALL})}

    def tasks(self, level: str, temperatures: Mapping[str, float]) -> list[TaskGains]:
        """Judge all tasks at one level."""
        labelled = self._labelled
        sums, everything = _base_sums(labelled, level)
        tasks: dict[str, TaskGains] = {}
        bases: dict[str, dict[str, float]] = {}
        for number, guess in self._predicted.items():
            label = labelled.groups[number][1]
            group = label.measured.group
            task = group.task
            member = self._member_of[task.task_id]
            assert member is not None
            if member.name not in bases:
                bases[member.name] = _base_rate(sums, everything, member)
            found = choices(group.sketch, label.gains, level)
            laid = Gains(guess, label.gains.count, label.gains.best)
            tasks.setdefault(task.task_id, TaskGains(task.task_id)).add(
                found,
                choices(group.sketch, laid, level).gain,
                rule_weights(task.format, is_gpu(task), found.rules),
                bases[member.name],
                labelled.tie,
                temperatures[member.name],
            )
        return list(tasks.values())


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
