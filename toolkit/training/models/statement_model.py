"""Ansor's cost model: boosted trees score each statement, and a program's score is their sum.

Zheng et al. 2020, "Ansor: Generating High-Performance Tensor Programs for Deep Learning", section
5.2; in code TVM 0.16, ``auto_scheduler/cost_model/xgb_model.py`` ("pack sum"), and MetaSchedule's
``XGBModel`` after it. Trees see one statement at a time and the error is the whole program's:
the sum over programs of ``weight * (score - target)^2``. Ansor's target is a program's throughput
relative to the best of its task, and its weight the same again: ``target = "speed"`` with
``emphasis = 1`` in a recipe.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import orjson
import xgboost

from toolkit.errors import RecipeError
from toolkit.training.arrays import Floats, Ints, Matrix
from toolkit.training.models.base import TrainingRows, part_tasks, unreadable
from toolkit.training.models.xgboost_model import XGBoostModel, gain_shares, read_booster, watching
from toolkit.training.recipes.recipe import ModelOptions

_COLUMN = re.compile(r"ps_(\d+)_(\d+)")
_KEPT = "places"  # A booster attribute, which XGBoost stores in its file.


def places_of(columns: Sequence[str], width: int) -> Ints:
    """Return the places of each statement's columns in a row, ``(statements, columns of one)``.

    A row of ``width`` columns without names is one statement. Raises ``RecipeError`` where the
    names are not ``ps_<k>_<i>``, with every ``i`` for every ``k``.
    """
    if not columns:
        return np.arange(width)[None, :]
    found = [_COLUMN.fullmatch(name) for name in columns]
    keys = [(int(match[1]), int(match[2])) for match in found if match is not None]
    statements, own = ({key[part] for key in keys} for part in (0, 1))
    if len(keys) < len(columns) or len(keys) != len(statements) * len(own):
        raise RecipeError(
            "library = 'statements' needs separate columns for each statement",
            cure="set extractor = 'per-statement'",
        )
    order = sorted(range(len(keys)), key=keys.__getitem__)
    return np.array(order).reshape(len(statements), len(own))


def unpack(features: Matrix, places: Ints) -> tuple[Matrix, Ints]:
    """Return the statements of programs, and for each one the row of its program.

    A place without a finite number holds no statement.
    """
    statements, programs = [], []
    for own in places:
        held = features[:, own]
        there = np.flatnonzero(np.isfinite(held).any(axis=1))
        statements.append(held[there])
        programs.append(there)
    return np.concatenate(statements), np.concatenate(programs)


def sum_loss(
    predicted: Floats, program: Ints, target: Floats, weight: Floats
) -> tuple[Floats, Floats]:
    """Gradient and Hessian of half the weighted squared error, one value per statement.

    ``predicted`` and ``program`` have one value per statement, ``target`` and ``weight`` one per
    program. As in TVM every statement gets its program's whole error and weight: the Hessian is
    the diagonal alone, so a step of ``eta`` moves a program of ``k`` statements ``k`` times as far.
    """
    error = np.bincount(program, predicted, minlength=len(target)) - target
    return (weight * error)[program], weight[program]


class StatementModel:
    """XGBoost on statements. A program without any (TVM could not lower it) scores 0."""

    library = "statements"
    suffix = ".ubj"
    DEFAULTS: ClassVar[dict[str, Any]] = {
        "max_depth": 10,
        "gamma": 0.001,
        "min_child_weight": 0.0,
        "eta": 0.2,
        "tree_method": "hist",
        # Each statement's score before the first tree: XGBoost's default for a custom loss.
        "base_score": 0.5,
    }
    """TVM's values."""

    def __init__(self, booster: xgboost.Booster, places: Ints) -> None:
        # Searches predict a few hundred rows at a time: waking other threads takes longer.
        booster.set_param({"nthread": 1})
        self._booster, self._places = booster, places

    @classmethod
    def check(cls, params: dict[str, Any]) -> tuple[list[str], list[str]]:
        """Return the parameter names that XGBoost does not know; see ``XGBoostModel.check``."""
        return XGBoostModel.check({**cls.DEFAULTS, **params})

    @classmethod
    def fit(
        cls, rows: TrainingRows, options: ModelOptions, *, seed: int, threads: int, device: str
    ) -> StatementModel:
        """Fit to the statements of rows; ``params`` are XGBoost's.

        Early stopping finds the number of rounds on left-out tasks; TVM stops by the error on the
        training rows. Raises ``RecipeError`` for another objective or device, for columns of
        another extractor, or where no row has a statement.
        """
        if options.objective != "squared" or device != "cpu":
            raise RecipeError("statements needs objective = 'squared' and device = 'cpu'")
        places = places_of(rows.columns, rows.features.shape[1])
        parameters = {
            **cls.DEFAULTS,
            **options.params,
            "objective": "reg:squarederror",  # For untransformed predictions; the loss is sum_loss.
            "disable_default_eval_metric": True,
            "nthread": threads,
            "verbosity": 0,
            "seed": seed,
        }
        rounds = options.rounds
        parts = part_tasks(rows, seed) if options.early_stopping else None
        if parts is not None:
            data, loss, _ = _packed(parts[0], places, threads)
            held, _, metric = _packed(parts[1], places, threads, like=data)
            watch = watching(held, options.early_stopping)
            watched = xgboost.train(
                parameters, data, rounds, obj=loss, custom_metric=metric, **watch
            )
            rounds = int(watched.best_iteration) + 1
        data, loss, _ = _packed(rows, places, threads)
        return cls(xgboost.train(parameters, data, rounds, obj=loss), places)

    @classmethod
    def load(cls, path: Path) -> StatementModel:
        """Read XGBoost's own binary JSON, with the places of the columns among its attributes."""
        booster = read_booster(path)
        try:
            places = np.array(orjson.loads(booster.attr(_KEPT) or ""), dtype=np.int64)
        except ValueError as error:
            raise unreadable(path, error) from None
        return cls(booster, places)

    def save(self, path: Path) -> None:
        """Write XGBoost's own binary JSON."""
        self._booster.set_attr(**{_KEPT: orjson.dumps(self._places.tolist()).decode()})
        path.write_bytes(bytes(self._booster.save_raw("ubj")))

    def predict(self, features: Matrix) -> Floats:
        """Sum of the scores of a program's statements."""
        statements, program = unpack(features, self._places)
        if not len(statements):
            return np.zeros(len(features))
        scores = self._booster.inplace_predict(statements)
        summed = np.bincount(program, scores, minlength=len(features))
        return np.asarray(summed, dtype=np.float64)

    def importance(self) -> Floats:
        """Share of the total gain; a statement column's share is divided among all places."""
        shares = np.zeros(self._places.size)
        shares[self._places] = gain_shares(self._booster) / len(self._places)
        return shares


def _packed(
    rows: TrainingRows, places: Ints, threads: int, like: Any = None
) -> tuple[xgboost.QuantileDMatrix, Callable[..., Any], Callable[..., Any]]:
    """Return XGBoost's matrix of the statements, and the loss and the error over programs."""
    statements, program = unpack(rows.features, places)
    if not len(statements):
        raise RecipeError(
            "no candidate has per-statement features",
            cure="use other logs: the installed TVM cannot lower any of these",
        )
    # The loss has its own weights. These only place the histograms' cuts, as in TVM.
    data = xgboost.QuantileDMatrix(
        statements, weight=rows.weight[program], nthread=threads, ref=like
    )

    def loss(predicted: Floats, _: Any) -> tuple[Floats, Floats]:
        return sum_loss(predicted, program, rows.target, rows.weight)

    def metric(predicted: Floats, _: Any) -> tuple[str, float]:
        error = np.bincount(program, predicted, minlength=len(rows.target)) - rows.target
        return "p-rmse", float(np.sqrt(np.average(error**2, weights=rows.weight)))

    return data, loss, metric
