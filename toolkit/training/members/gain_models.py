"""The three methods that predict gains: their training rows, fits and predictions.

``expected`` uses a throughput model. ``direct`` learns gains from rows of a candidate and a
direction (models with objective ``gains`` do so in addition to a throughput model). ``classifier``
is the paper's model (Han, Wang, Li, Gao 2025, section 3): XGBoost classifies a program by the rule
whose mutation gains most; where gains are nearly equal, the rules' weights decide.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from toolkit.errors import DatasetError
from toolkit.features.base import CandidateGroup
from toolkit.features.extractors.directions import direction_columns, knob_roles
from toolkit.records import iter_ways
from toolkit.training.arrays import Bools, Floats, Ints, Matrix
from toolkit.training.members.crossfit import Member
from toolkit.training.members.ensemble import Ensemble, fit_ensemble, fit_models
from toolkit.training.models.base import TrainingRows
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

ROWS_A_CANDIDATE = 2
"""This many rows of a candidate and a direction count as one row of ``data.max_rows``."""


@dataclass(frozen=True)
class MixedGains:
    """Models of throughput and models of gains; ``share`` is the weight of the latter.

    Gains from throughput models are consistent with each other, but can be wrong about whole
    regions. Gain models err on single steps.
    """

    levels: Ensemble
    gains: Ensemble
    share: float

    def predict(self, features: Matrix) -> Floats:
        """Log relative throughput of candidates, by the models of throughput."""
        return self.levels.predict(features)

    def mixed(self, expected: Floats, learned: Floats) -> Floats:
        """Return the weighted mean of both gains; where one is NaN, the other."""
        both = (1 - self.share) * expected + self.share * learned
        either = np.where(np.isfinite(expected), expected, learned)
        return np.where(np.isfinite(both), both, either)

    def importance(self) -> Floats:
        """Mean importance of each column: first the candidates' columns, then the directions'."""
        levels = np.append(self.levels.importance(), np.zeros(len(DIRECTION_COLUMNS)))
        return np.asarray((1 - self.share) * levels + self.share * self.gains.importance())

    def save(self, folder: Path) -> list[dict[str, Any]]:
        """Write each model in its library's format; returns what the manifest needs to load."""
        parts = {"levels": self.levels, "gains": self.gains}
        written = {name: part.save(folder / name) for name, part in parts.items()}
        return [{**written, "share": self.share}]

    @classmethod
    def load(cls, folder: Path, written: list[dict[str, Any]]) -> MixedGains:
        """Read what ``save`` wrote."""
        (entry,) = written
        levels, gains = (Ensemble.load(folder / n, entry[n]) for n in ("levels", "gains"))
        return cls(levels, gains, entry["share"])


def direction_rows(
    group: CandidateGroup, features: Matrix, wanted: Bools | None = None
) -> tuple[Matrix, tuple[Ints, Ints, Ints]]:
    """Stack one row per (way, candidate, knob): the candidate's features, then the direction's.

    ``wanted`` is a mask ``(3, n, knobs)``; by default all directions that exist. Returns the rows
    and their indices in such an array.
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
    """Return the gain of every direction of every candidate of a group, ``(3, n, knobs)``.

    ``expected`` averages predicted log throughput over the group's own candidates that lie in a
    direction (their measurements are not used); ``direct`` predicts each gain;
    ``classifier`` gives the log of the rule's probability, which ranks but has no unit.
    """
    ensemble = member.ensemble
    if method == "expected":
        predicted = ensemble.predict(features)
        gain = direction_gains(group.sketch, group.decisions, np.exp(-predicted)).gain
        return with_learned(ensemble, gain, group, features)
    if method == "direct":
        return _learned(ensemble, group, features)
    result = np.full((3, len(group), len(group.sketch.knobs)), np.nan)
    classifier: RuleClassifier = ensemble
    chance = np.log(np.maximum(classifier.probabilities(features), 1e-12))
    by_rule = dict(zip(classifier.rules, chance.T, strict=True))
    for k, knob in enumerate(group.sketch.knobs):
        result[:, :, k] = by_rule.get(knob.kind, np.log(1e-12))
    return result


def with_learned(
    ensemble: Any, expected: Floats, group: CandidateGroup, features: Matrix
) -> Floats:
    """Return expected gains ``(3, n, knobs)``, mixed with learned ones if the ensemble has them."""
    if not isinstance(ensemble, MixedGains):
        return expected
    return ensemble.mixed(expected, _learned(ensemble.gains, group, features))


def _learned(ensemble: Ensemble, group: CandidateGroup, features: Matrix) -> Floats:
    result = np.full((3, len(group), len(group.sketch.knobs)), np.nan)
    rows, places = direction_rows(group, features)
    result[places] = ensemble.predict(rows)
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
    if method == "direct":
        return _fit_direct(table, _candidates(table, labelled, rows, recipe), recipe, threads)
    if method == "classifier":
        chosen = _candidates(table, labelled, rows, recipe)
        return _fit_classifier(table, chosen, recipe, tie, threads)
    groups = [(start, label.group) for start, label in labelled]
    of_gains = [model for model in recipe.models if model.objective == "gains"]
    others = tuple(model for model in recipe.models if model.objective != "gains")
    own = recipe.model_copy(update={"models": others})
    levels = fit_ensemble(table, rows, own, threads=threads, groups=groups)
    if not of_gains:
        return levels
    plain = tuple(model.model_copy(update={"objective": "squared"}) for model in of_gains)
    own = recipe.model_copy(update={"models": plain})
    gains = _fit_direct(table, _candidates(table, labelled, rows, own), own, threads)
    votes = [sum(part.weight for part in ensemble.parts) for ensemble in (levels, gains)]
    return MixedGains(levels, gains, votes[1] / sum(votes))


_Chosen = Iterator[tuple[int, LabelledGroup, Ints]]


def _candidates(
    table: Table, labelled: Sequence[tuple[int, LabelledGroup]], rows: Ints, recipe: Recipe
) -> _Chosen:
    """Give each group's first row in the table, its labels, and its training candidates."""
    most = recipe.data.rows_per_task
    inside = np.zeros(len(table), dtype=bool)
    inside[rows] = True
    for number, (start, label) in enumerate(labelled):
        own = np.flatnonzero(inside[start : start + len(label.group)])
        if len(own) > most:
            rng = np.random.default_rng(recipe.seed + number)
            own = np.sort(rng.choice(own, most, replace=False))
        yield start, label, own


def _fit_direct(table: Table, chosen: _Chosen, recipe: Recipe, threads: int) -> Ensemble:
    """Fit to gains of directions, at most about ``max_rows * ROWS_A_CANDIDATE`` rows."""
    asked = []
    for start, label, own in chosen:
        wanted = np.zeros(label.gains.gain.shape, dtype=bool)
        wanted[:, own] = np.isfinite(label.gains.gain[:, own])
        asked.append((start, label, wanted))
    total = sum(int(wanted.sum()) for *_, wanted in asked)
    if not total:
        raise _without_neighbours()
    kept = recipe.data.max_rows * ROWS_A_CANDIDATE / total
    rng = np.random.default_rng(recipe.seed)
    parts: list[tuple[Matrix, Floats, Ints]] = []
    for start, label, wanted in asked:
        if kept < 1:  # Sampled first: all rows of a large log would fill the memory.
            wanted &= rng.random(wanted.shape) < kept
        group = label.group
        block = table.features[start : start + len(group)]
        found, places = direction_rows(group, block, wanted)
        task = np.full(len(found), table.task[start] if len(group) else 0)
        parts.append((found, label.gains.gain[places], task))
    matrix, value, task = (np.concatenate(each) for each in zip(*parts, strict=True))
    columns = (*table.columns, *DIRECTION_COLUMNS)
    given = TrainingRows(matrix, value, np.ones(len(task)), task, columns=columns)
    return fit_models(given, recipe, threads=threads)


def _fit_classifier(
    table: Table, chosen: _Chosen, recipe: Recipe, tie: float, threads: int
) -> RuleClassifier:
    features: list[Matrix] = []
    rules: list[str] = []
    for start, label, own in chosen:
        candidates, best = best_rules(label, tie)
        kept = np.isin(candidates, own)
        block = table.features[start : start + len(label.group)]
        features.append(block[candidates[kept]])
        rules += [rule for rule, keep in zip(best, kept, strict=True) if keep]
    if not rules:
        raise _without_neighbours()
    from toolkit.training.members.rule_classifier import fit_classifier

    return fit_classifier(np.concatenate(features), rules, recipe, threads=threads)


def _without_neighbours() -> DatasetError:
    return DatasetError(
        "no candidate has the recorded neighbours (one knob differs) that this method needs",
        cure="collect logs with mutations: toolkit collect --help",
    )
