"""LightGBM: squared error, LambdaRank or logistic loss; stored as LightGBM's text."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, ClassVar

import lightgbm
import numpy as np

from toolkit.errors import RecipeError
from toolkit.training.arrays import Floats, Matrix
from toolkit.training.models.base import BoostedTrees, TrainingRows, normalised, unreadable

# Drops LightGBM's output; its errors are raised anyway.
lightgbm.register_logger(logging.Logger("lightgbm", logging.CRITICAL))


def _train(parameters: dict[str, Any], data: Any, rounds: int, **more: Any) -> lightgbm.Booster:
    """Train; raise LightGBM's own errors as ``ValueError``."""
    try:
        return lightgbm.train(parameters, data, num_boost_round=rounds, **more)
    except lightgbm.basic.LightGBMError as error:
        raise ValueError(str(error)) from None


class LightGBMModel(BoostedTrees):
    """A LightGBM booster; trees are the same for any number of threads."""

    library = "lightgbm"
    suffix = ".txt"
    DEFAULTS: ClassVar = {
        "learning_rate": 0.08,
        "num_leaves": 31,
        "min_data_in_leaf": 20,
        "feature_fraction": 0.7,
        "bagging_fraction": 0.8,
        "bagging_freq": 1,
    }
    RANKING: ClassVar = {"lambdarank_truncation_level": 20}
    OBJECTIVES: ClassVar = {
        "squared": "regression",
        "pairwise": "lambdarank",
        "lambdarank": "lambdarank",
        "logistic": "binary",
        "neighbours": "none",  # a function takes its place
    }
    _train = staticmethod(_train)

    @classmethod
    def check(cls, params: dict[str, Any]) -> tuple[list[str], list[str]]:
        """Return the parameter names that LightGBM does not know, and those that it knows.

        Raises ``ValueError`` if it refuses a value.
        """
        table: dict[str, list[str]] = lightgbm.basic._ConfigAliases._get_all_param_aliases()
        known = [*table, *(alias for aliases in table.values() for alias in aliases)]
        unknown = [name for name in params if name not in known]
        if not unknown:
            few = np.arange(8.0)
            parameters = {**cls.DEFAULTS, **params, "verbosity": -1}
            _train(parameters, lightgbm.Dataset(few[:, None], label=few, params=parameters), 1)
        return unknown, known

    @classmethod
    def _fixed(cls, threads: int, device: str) -> dict[str, Any]:
        if device != "cpu":
            raise RecipeError("LightGBM is trained on the CPU only", cure="use library = 'xgboost'")
        always = {"deterministic": True, "force_row_wise": True, "verbosity": -1}
        return {"num_threads": threads, **always}

    @classmethod
    def _data(
        cls, rows: TrainingRows, label: Any, sizes: Any, parameters: dict[str, Any], like: Any
    ) -> lightgbm.Dataset:
        return lightgbm.Dataset(
            rows.features, label=label, weight=rows.weight, group=sizes, params=parameters
        )

    @classmethod
    def _watching(cls, held: Any, patience: int) -> dict[str, Any]:
        stop = lightgbm.early_stopping(patience, verbose=False)
        return {"valid_sets": [held], "callbacks": [stop]}

    @classmethod
    def _best_round(cls, booster: lightgbm.Booster) -> int:
        return max(1, int(booster.best_iteration))

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
        found = self._booster.predict(features, num_threads=1, predict_disable_shape_check=True)
        return np.asarray(found, dtype=np.float64)

    def _leaves(self, features: Matrix) -> Any:
        return self._booster.predict(features, pred_leaf=True, num_threads=1)

    def importance(self) -> Floats:
        """Share of the total gain."""
        return normalised(self._booster.feature_importance("gain"))
