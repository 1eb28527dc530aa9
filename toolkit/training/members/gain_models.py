"""The three ways to predict gains: what they learn from, how they are fitted and asked.

``expected`` takes a throughput model, ``direct`` learns gains from rows of candidates and
directions, ``classifier`` is the paper's model (Han, Wang, Li, Gao 2025, section 3): XGBoost
classifies a program by the rule whose mutation gains most; where gains are nearly equal, the rules'
weights decide.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from toolkit.errors import DatasetError
from toolkit.features.base import CandidateGroup
from toolkit.features.extractors.directions import direction_columns, knob_roles
from toolkit.records import iter_ways
from toolkit.training.arrays import Bools, Floats, Ints, Matrix
from toolkit.training.members.crossfit import Member
from toolkit.training.members.ensemble import fit_ensemble, fit_models
from toolkit.training.recipes.recipe import Recipe
from toolkit.training.table.mutation_labels import LabelledGroup, best_rules
from toolkit.training.table.neighbours import ANY, DOWN, UP, direction_gains
from toolkit.training.table.table import Table

if TYPE_CHECKING:
    from toolkit.training.members.rule_classifier import RuleClassifier

_NAMES = (
    "way rule role levels choices value extent outermost innermost share divisors ones l1 l2 l3 l4"
)
DIRECTION_COLUMNS = tuple(f"dir_{name}" for name in _NAMES.split())


def direction_rows(
    group: CandidateGroup, features: Matrix, wanted: Bools | None = None
) -> tuple[Matrix, tuple[Ints, Ints, Ints]]:
    """Stack one row a (way, candidate, knob): the candidate's features, then the direction's.

    ``wanted`` is ``(3, n, knobs)``; all directions that exist by default. Returns the rows and
    their places in such an array.
    """
    roles = knob_roles(group)
    width = features.shape[1] + len(DIRECTION_COLUMNS)
    parts = [np.zeros((0, width), dtype=np.float32)]
    places = [np.zeros((3, 0), dtype=np.int64)]
    for k, knob in enumerate(group.sketch.knobs):
        values = group.decisions[:, knob.offset : knob.offset + knob.width].astype(np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            named = direction_columns(knob, values, roles.get(knob.name))
        for way in (ANY, UP, DOWN) if any(iter_ways(knob)) else (ANY,):
            own = np.arange(len(group)) if wanted is None else np.flatnonzero(wanted[way, :, k])
            block = np.full((len(own), len(DIRECTION_COLUMNS)), np.nan, dtype=np.float32)
            block[:, 0] = way
            for place, name in enumerate(DIRECTION_COLUMNS[1:], start=1):
                if name in named:
                    block[:, place] = named[name][own]
            parts.append(np.hstack([features[own], block]))
            places.append(np.stack([np.full(len(own), way), own, np.full(len(own), k)]))
    ways, rows, knobs = np.concatenate(places, axis=1)
    return np.concatenate(parts), (ways, rows, knobs)


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
        from toolkit.training.members.rule_classifier import fit_classifier

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
