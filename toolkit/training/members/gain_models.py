"""The three ways to predict gains, behind one function each: fit, and predict ``(3, n, knobs)``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from toolkit.errors import DatasetError
from toolkit.features.base import CandidateGroup
from toolkit.training.arrays import Floats, Ints, Matrix
from toolkit.training.members.classifier import RuleClassifier, fit_classifier
from toolkit.training.members.crossfit import Member
from toolkit.training.members.ensemble import fit_ensemble, fit_models
from toolkit.training.recipes.recipe import Recipe
from toolkit.training.table.direct import direction_rows
from toolkit.training.table.mutation_labels import LabelledGroup, best_rules
from toolkit.training.table.neighbours import direction_gains
from toolkit.training.table.table import Table


def predict_gains(member: Member, method: str, group: CandidateGroup, features: Matrix) -> Floats:
    """Expected gain of every direction of every candidate of a group, ``(3, n, knobs)``.

    ``expected`` averages predicted log throughput over the group's own candidates that lie in a
    direction (what was measured of them does not enter); ``direct`` predicts each gain;
    ``classifier`` gives the log of the rule's probability, which ranks but has no unit.
    """
    if method == "expected":
        predicted = member.ensemble.predict(features)
        return direction_gains(group.sketch, group.decisions, np.exp(-predicted)).gain
    result = np.full((3, len(group), len(group.sketch.knobs)), np.nan)
    if method == "direct":
        rows, places = direction_rows(group, features)
        result[places] = member.ensemble.predict(rows)
        return result
    classifier: RuleClassifier = member.ensemble
    chance = np.log(np.maximum(classifier.probabilities(features), 1e-12))
    for k, knob in enumerate(group.sketch.knobs):
        known = knob.kind in classifier.rules
        column = classifier.rules.index(knob.kind) if known else 0
        result[:, :, k] = chance[:, column] if known else np.log(1e-12)
    return result


def fit_gains(
    table: Table,
    labelled: Sequence[tuple[int, LabelledGroup]],
    rows: Ints,
    recipe: Recipe,
    *,
    tie: float,
    threads: int,
) -> Any:
    """Fit a recipe's method to some rows of a table.

    ``labelled`` gives each group's first row in the table and its labels.
    """
    method = recipe.mutation.method
    if method == "expected":
        groups = [(start, label.measured.group) for start, label in labelled]
        return fit_ensemble(table, rows, recipe, threads=threads, groups=groups)
    inside = np.zeros(len(table), dtype=bool)
    inside[rows] = True
    features: list[Matrix] = []
    tasks: list[Ints] = []
    gains: list[Floats] = []
    rules: list[str] = []
    for number, (start, label) in enumerate(labelled):
        group = label.measured.group
        own = np.flatnonzero(inside[start : start + len(group)])
        own = _draw(own, recipe.data.rows_per_task, recipe.seed + number)
        block = table.features[start : start + len(group)]
        if method == "direct":
            gain = label.gains.gain
            wanted = np.zeros(gain.shape, dtype=bool)
            wanted[:, own] = np.isfinite(gain[:, own])
            found, places = direction_rows(group, block, wanted)
            gains.append(gain[places])
            tasks.append(np.full(len(found), table.task[start] if len(group) else 0))
        else:
            candidates, best = best_rules(label, tie)
            kept = np.isin(candidates, own)
            found = block[candidates[kept]]
            rules += [rule for rule, keep in zip(best, kept, strict=True) if keep]
        features.append(found)
    if not sum(map(len, features)):
        raise DatasetError(
            "no candidate has a recorded neighbour",
            cure="collect logs with mutations: toolkit collect --help",
        )
    matrix = np.concatenate(features)
    if method == "classifier":
        return fit_classifier(matrix, rules, recipe, threads=threads)
    task, value = np.concatenate(tasks), np.concatenate(gains)
    chosen = _draw(np.arange(len(matrix)), recipe.data.max_rows * 4, recipe.seed)
    order = chosen[np.argsort(task[chosen], kind="stable")]
    weight = np.ones(len(order))
    return fit_models(matrix[order], value[order], task[order], weight, recipe, threads=threads)


def _draw(rows: Ints, limit: int, seed: int) -> Ints:
    if len(rows) <= limit:
        return rows
    return np.sort(np.random.default_rng(seed).choice(rows, limit, replace=False))
