"""The three ways to predict gains, behind one function each: fit, and predict ``(3, n, knobs)``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from toolkit.errors import DatasetError
from toolkit.features.base import CandidateGroup
from toolkit.features.task.hardware import is_gpu
from toolkit.training.members.classifier import RuleClassifier, fit_classifier
from toolkit.training.members.crossfit import Member
from toolkit.training.members.ensemble import Ensemble, fit_ensemble, fit_models
from toolkit.training.recipes.recipe import Recipe
from toolkit.training.table.direct import direction_rows
from toolkit.training.table.mutation_labels import LabelledGroup, best_rules
from toolkit.training.table.neighbours import direction_gains
from toolkit.training.table.table import Table

Floats = NDArray[np.float64]


def predict_gains(
    member: Member, method: str, group: CandidateGroup, features: NDArray[np.float32]
) -> Floats:
    """Expected gain of every direction of every candidate of a group, ``(3, n, knobs)``.

    ``expected`` averages predicted log throughput over the group's own candidates that lie in a
    direction (what was measured of them does not enter); ``direct`` predicts each gain;
    ``classifier`` gives the log of the rule's probability, which ranks but has no unit.
    """
    if method == "expected":
        predicted = member.ensemble.predict(features)
        return direction_gains(group.sketch, group.decisions, np.exp(-predicted)).gain
    shape = (3, len(group), len(group.sketch.knobs))
    result = np.full(shape, np.nan)
    if method == "direct":
        rows, places = direction_rows(group, features)
        result[places] = member.ensemble.predict(rows)
        return result
    classifier: RuleClassifier = member.ensemble
    chance = np.log(np.maximum(classifier.probabilities(features), 1e-12))
    for k, knob in enumerate(group.sketch.knobs):
        if knob.kind in classifier.rules:
            result[:, :, k] = chance[:, classifier.rules.index(knob.kind)]
        else:
            result[:, :, k] = np.log(1e-12)
    return result


def fit_gains(
    table: Table,
    labelled: Mapping[int, tuple[int, LabelledGroup]],
    rows: NDArray[np.int64],
    recipe: Recipe,
    *,
    tie: float,
    threads: int,
) -> Any:
    """Fit a recipe's method to some rows of a table.

    ``labelled`` gives, for each group by number, its first row in the table and its labels.
    """
    method = recipe.mutation.method
    if method == "expected":
        groups = [(start, label.measured.group) for start, label in labelled.values()]
        return fit_ensemble(table, rows, recipe, threads=threads, groups=groups)
    inside = np.zeros(len(table), dtype=bool)
    inside[rows] = True
    per_task = recipe.data.rows_per_task
    features: list[NDArray[np.float32]] = []
    values: list[Any] = []
    tasks: list[NDArray[np.int64]] = []
    for number, (start, label) in sorted(labelled.items()):
        group = label.measured.group
        own = np.flatnonzero(inside[start : start + len(group)])
        own = _draw(own, per_task, recipe.seed + number)
        block = table.features[start : start + len(group)]
        if method == "direct":
            wanted = np.zeros(label.gains.gain.shape, dtype=bool)
            wanted[:, own] = np.isfinite(label.gains.gain[:, own])
            found, places = direction_rows(group, block, wanted)
            values.append(label.gains.gain[places])
            task = int(table.task[start]) if len(group) else 0
            tasks.append(np.full(len(found), task, dtype=np.int64))
        else:
            candidates, rules = best_rules(label, is_gpu(group.task), tie)
            kept = np.isin(candidates, own)
            found = block[candidates[kept]]
            values.append([rule for rule, keep in zip(rules, kept, strict=True) if keep])
        features.append(found)
    if not sum(len(block) for block in features):
        raise DatasetError(
            "no candidate has a recorded neighbour",
            cure="collect logs with mutations: toolkit collect --help",
        )
    matrix = np.concatenate(features)
    if method == "classifier":
        labels = [rule for part in values for rule in part]
        return fit_classifier(
            matrix,
            labels,
            recipe.models[0],
            seed=recipe.seed,
            threads=threads,
            device=recipe.device,
        )
    gain = np.concatenate(values)
    return _fit_direct(matrix, gain, np.concatenate(tasks), recipe, threads)


def _fit_direct(
    matrix: NDArray[np.float32],
    gain: Floats,
    tasks: NDArray[np.int64],
    recipe: Recipe,
    threads: int,
) -> Ensemble:
    chosen = _draw(np.arange(len(matrix)), recipe.data.max_rows * 4, recipe.seed)
    order = chosen[np.argsort(tasks[chosen], kind="stable")]
    weight = np.ones(len(order))
    return fit_models(matrix[order], gain[order], tasks[order], weight, recipe, threads=threads)


def _draw(rows: NDArray[np.int64], limit: int, seed: int) -> NDArray[np.int64]:
    if len(rows) <= limit:
        return rows
    return np.sort(np.random.default_rng(seed).choice(rows, limit, replace=False))
