"""Judge predicted gains on unseen tasks, at every level, and add the ceilings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from toolkit.training.arrays import Floats
from toolkit.training.evaluate.gain_ceilings import gain_ceilings
from toolkit.training.evaluate.mutation_metrics import TaskGains, gain_rows, summarize_gains
from toolkit.training.members.crossfit import ALL, Member
from toolkit.training.members.gain_models import predict_gains
from toolkit.training.table.gather import Gathered
from toolkit.training.table.mutation_labels import Choices, LabelledGroup, choices, rule_weights
from toolkit.training.table.neighbours import Gains

LEVELS = ("knob", "rule", "way")
TEMPERATURES = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28)

Sums = dict[str, tuple[float, int]]
"""Sum and number of the recorded gains of each direction."""


@dataclass(frozen=True)
class Labelled(Gathered):
    """A dataset's table with the recorded gains of every group.

    ``groups`` has each group's first row in the table and its labels. Gains that differ by less
    than ``tie`` are equal; ``shifts`` are differences of log latency between two occasions of one
    candidate; ``enumerated`` are tasks whose space was recorded completely.
    """

    groups: Sequence[tuple[int, LabelledGroup]]
    tie: float
    shifts: Floats
    enumerated: frozenset[str]


_Predicted = tuple[LabelledGroup, Member, Floats]
"""A group of a judged task, its member, and the gains that it predicts, ``(3, n, knobs)``."""


def judge_gains(
    labelled: Labelled, member_of: Mapping[str, Member], temperatures: Mapping[str, float] | None
) -> tuple[dict[str, Any], dict[str, float]]:
    """Judge every task by its member in ``member_of``, at all levels.

    Returns the figures (those of the recipe's level on top) and the temperature of each member: the
    one with which the probabilities of directions fit best on tasks that other members judged. If
    ``temperatures`` are given, they are kept.
    """
    recipe, table = labelled.recipe, labelled.table
    counts, wanted = table.good_counts(), table.judged_records(recipe.data)
    predicted: list[_Predicted] = []
    by_task: dict[str, list[LabelledGroup]] = {}
    for start, label in labelled.groups:
        group = label.group
        member = member_of.get(group.task.task_id)
        if member is None or not len(group) or counts[table.task[start]] < wanted:
            continue
        features = table.features[start : start + len(group)]
        gain = predict_gains(member, recipe.mutation.method, group, features)
        predicted.append((label, member, gain))
        by_task.setdefault(group.task.task_id, []).append(label)
    level = recipe.mutation.level
    by_level, rows = {}, []
    for name in (level, *(other for other in LEVELS if other != level)):
        asked = _laid_out(labelled, predicted, name)
        if temperatures is None:
            names = {member.name for member in member_of.values()}
            temperatures = _best_temperatures(asked, names, labelled.tie)
        tasks = _judged(asked, labelled.tie, temperatures)
        by_level[name] = summarize_gains(tasks, seed=recipe.seed)
        if name == level:
            rows = gain_rows(tasks)
            complete = [task for task in tasks if task.task_id in labelled.enumerated]
            if complete:
                apart = summarize_gains(complete, seed=recipe.seed)
                by_level[name] = replace(by_level[name], enumerated=apart)
    result = {
        **by_level.pop(level),
        **gain_ceilings(by_task, labelled.shifts, seed=recipe.seed),
        "level": level,
        "tie": labelled.tie,
        "judged_records": wanted,
        "levels": by_level,
        "tasks": rows,
    }
    return result, dict(temperatures or {})


_Asked = tuple[str, str, Choices, Floats, Floats, Mapping[str, float] | None]
"""Task and member of a group, its recorded directions at a level, the member's guess of their
gains, TVM's weights, and the base rate."""


def _laid_out(labelled: Labelled, predicted: Sequence[_Predicted], level: str) -> list[_Asked]:
    sums: dict[str, Sums] = {}
    everything: Sums = {}
    for _, label in labelled.groups:
        group = label.group
        found = choices(group.sketch, label.gains, level)
        for name, column in zip(found.names, found.gain.T, strict=True):
            values = column[np.isfinite(column)]
            for own in (sums.setdefault(group.task.task_id, {}), everything):
                total, count = own.get(name, (0.0, 0))
                own[name] = (total + float(values.sum()), count + len(values))
    bases: dict[str, dict[str, float] | None] = {}
    asked: list[_Asked] = []
    for label, member, gain in predicted:
        group, name = label.group, member.name
        if name not in bases:
            bases[name] = _base_rate(sums, everything, member)
        found = choices(group.sketch, label.gains, level)
        guess = choices(group.sketch, Gains(gain, label.gains.count), level).gain
        weights = rule_weights(group.task, found.rules)
        asked.append((group.task.task_id, name, found, guess, weights, bases[name]))
    return asked


def _base_rate(
    sums: Mapping[str, Sums], everything: Sums, member: Member
) -> dict[str, float] | None:
    """Mean gain of each direction over the tasks that a member was trained on.

    ``None`` if the dataset holds none of them (the model is judged on another dataset).
    """
    if member.training_task_ids.isdisjoint(sums):
        return None
    total: Sums = dict.fromkeys(everything, (0.0, 0))
    for task_id in sorted(member.training_task_ids):
        for name, (value, count) in sums.get(task_id, {}).items():
            total[name] = (total[name][0] + value, total[name][1] + count)
    return {name: value / count for name, (value, count) in total.items() if count}


def _judged(
    asked: Sequence[_Asked], tie: float, temperatures: Mapping[str, float]
) -> list[TaskGains]:
    tasks: dict[str, TaskGains] = {}
    for task_id, member, found, guess, weights, base in asked:
        task = tasks.setdefault(task_id, TaskGains(task_id))
        task.add(found, guess, weights, base, tie, temperatures[member])
    return list(tasks.values())


def _best_temperatures(asked: Sequence[_Asked], names: set[str], tie: float) -> dict[str, float]:
    """Return each member's best temperature, without the tasks that it judges itself.

    It is chosen by the other members' predictions for their tasks. Those members did learn from
    the tasks left out here. A temperature is one of eight numbers, and changes no pick.
    """
    judge = {task_id: member for task_id, member, *_ in asked}
    losses = {
        temperature: {
            task.task_id: task.log_loss
            for task in _judged(asked, tie, dict.fromkeys(names, temperature))
        }
        for temperature in TEMPERATURES
    }
    best = {}
    for name in sorted({*names, ALL}):
        own = [
            sum(v for task_id, v in losses[temperature].items() if judge[task_id] != name)
            for temperature in TEMPERATURES
        ]
        best[name] = TEMPERATURES[own.index(min(own))]
    return best
