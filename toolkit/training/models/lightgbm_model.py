"""LightGBM: squared error, LambdaRank or logistic loss; kept as LightGBM's text."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np

from toolkit.errors import RecipeError
from toolkit.training.models.base import (
    Floats,
    Matrix,
    TrainingRows,
    grades,
    normalised,
    part_tasks,
    unreadable,
)
from toolkit.training.recipes.recipe import ModelOptions
from toolkit.training.table.cliques import neighbour_loss

DEFAULTS: dict[str, Any] = {
    "learning_rate": 0.08,
    "num_leaves": 31,
    "min_data_in_leaf": 20,
    "feature_fraction": 0.7,
    "bagging_fraction": 0.8,
    "bagging_freq": 1,
}

_OBJECTIVES = {
    "squared": "regression",
    "pairwise": "lambdarank",
    "lambdarank": "lambdarank",
    "logistic": "binary",
    "neighbours": "none",  # a function takes its place, see ``fit``
}


class _Silent:
    """Takes what LightGBM would print; its errors are raised as well."""

    def info(self, text: str) -> None:
        """Say nothing."""

    warning = info


lightgbm.register_logger(_Silent())


@contextmanager
def _told() -> Iterator[None]:
    """Its errors are of no type that others know."""
    try:
        yield
    except lightgbm.basic.LightGBMError as error:
        raise ValueError(str(error)) from None


def _data(rows: TrainingRows, parameters: dict[str, Any]) -> lightgbm.Dataset:
    """LightGBM's own form of rows; rankers get grades, task by task."""
    label: Any = rows.target
    more: dict[str, Any] = {}
    if parameters["objective"] == "lambdarank":
        label, more["group"] = grades(rows.target, rows.group), rows.group_sizes()
    return lightgbm.Dataset(
        rows.features, label=label, weight=rows.weight, params=parameters, **more
    )


class LightGBMModel:
    """A LightGBM booster."""

    library = "lightgbm"
    suffix = ".txt"

    def __init__(self, booster: lightgbm.Booster) -> None:
        self._booster = booster

    @classmethod
    def check(cls, params: dict[str, Any]) -> tuple[list[str], list[str]]:
        """Names among parameters that LightGBM does not know, and those that it does.

        Raises ``ValueError`` where it refuses a value, as it would of any rows.
        """
        table: dict[str, list[str]] = lightgbm.basic._ConfigAliases._get_all_param_aliases()
        known = [*table, *(alias for aliases in table.values() for alias in aliases)]
        unknown = [name for name in params if name not in known]
        if not unknown:
            few = np.arange(8.0)
            parameters = {**DEFAULTS, **params, "verbosity": -1}
            with _told():
                data = lightgbm.Dataset(few[:, None], label=few, params=parameters)
                lightgbm.train(parameters, data, num_boost_round=1)
        return unknown, known

    @classmethod
    def fit(
        cls, rows: TrainingRows, options: ModelOptions, *, seed: int, threads: int, device: str
    ) -> LightGBMModel:
        """Fit on the processor; trees are the same for any number of threads."""
        with _told():
            return cls(cls._fitted(rows, options, seed, threads, device))

    @staticmethod
    def _fitted(
        rows: TrainingRows, options: ModelOptions, seed: int, threads: int, device: str
    ) -> lightgbm.Booster:
        if device != "cpu":
            raise RecipeError("LightGBM is trained on the cpu here", cure="use library = 'xgboost'")
        parameters = {
            **DEFAULTS,
            **options.params,
            "objective": _OBJECTIVES[options.objective],
            "num_threads": threads,
            "seed": seed,
            "deterministic": True,
            "force_row_wise": True,
            "verbosity": -1,
        }
        if parameters["objective"] == "lambdarank":
            parameters.setdefault("lambdarank_truncation_level", 20)
        rounds = options.rounds
        parts = part_tasks(rows, seed) if options.early_stopping else None
        if parts is not None and options.objective != "neighbours":
            known, held = (_data(part, parameters) for part in parts)
            stop = lightgbm.early_stopping(options.early_stopping, verbose=False)
            stopped = lightgbm.train(
                parameters, known, num_boost_round=rounds, valid_sets=[held], callbacks=[stop]
            )
            rounds = max(1, stopped.best_iteration)
        if options.objective == "neighbours":
            parameters["objective"] = _neighbours(rows)
        data = _data(rows, parameters)
        return lightgbm.train(parameters, data, num_boost_round=rounds)

    @classmethod
    def load(cls, path: Path) -> LightGBMModel:
        """Read LightGBM's text."""
        try:
            return cls(lightgbm.Booster(model_str=path.read_text(encoding="utf-8")))
        except (OSError, UnicodeDecodeError, lightgbm.basic.LightGBMError) as error:
            raise unreadable(path, error) from None

    def save(self, path: Path) -> None:
        """Write LightGBM's text."""
        path.write_text(self._booster.model_to_string(), encoding="utf-8")

    def predict(self, features: Matrix) -> Floats:
        """Sum of the trees; with the logistic loss a probability."""
        return np.asarray(
            self._booster.predict(features, num_threads=1, predict_disable_shape_check=True),
            dtype=np.float64,
        )

    def leaves(self, features: Matrix) -> np.ndarray[Any, np.dtype[np.int32]]:
        """Leaf of each tree that a row falls into, ``(n, trees)``."""
        found = self._booster.predict(features, pred_leaf=True, num_threads=1)
        return np.asarray(found, dtype=np.int32).reshape(len(features), -1)

    def importance(self) -> Floats:
        """Share of the total gain."""
        return normalised(self._booster.feature_importance("gain"))


def _neighbours(rows: TrainingRows) -> Any:
    """Objective ``neighbours`` as LightGBM calls it: predictions in, gradient and Hessian out."""
    cliques = rows.cliques
    if cliques is None:
        raise RecipeError(
            "objective = 'neighbours' needs recorded neighbours",
            cure="use it in a mutation recipe of the method 'expected'",
        )

    def objective(predicted: Floats, _: lightgbm.Dataset) -> tuple[Floats, Floats]:
        return neighbour_loss(predicted, rows.target, rows.weight, cliques)

    return objective
