"""XGBoost: squared error, pairwise rank loss or LambdaRank; kept as XGBoost's JSON (UBJ)."""

from __future__ import annotations

import ctypes
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import xgboost

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

DEFAULTS: dict[str, Any] = {
    "eta": 0.1,
    "max_depth": 8,
    "min_child_weight": 5.0,
    "subsample": 0.8,
    "colsample_bytree": 0.7,
    "tree_method": "hist",
}

_OBJECTIVES = {
    "squared": "reg:squarederror",
    "pairwise": "rank:pairwise",  # AutoTVM's rank loss (Chen et al. 2018, section 3)
    "lambdarank": "rank:ndcg",
    "logistic": "binary:logistic",
}


def _data(
    rows: TrainingRows, options: ModelOptions, threads: int, like: Any = None
) -> xgboost.QuantileDMatrix:
    """XGBoost's own form of rows; rankers get grades, task by task."""
    if options.objective in ("squared", "logistic"):
        return xgboost.QuantileDMatrix(
            rows.features, label=rows.target, weight=rows.weight, nthread=threads, ref=like
        )
    sizes = rows.group_sizes()
    # XGBoost's rankers take one weight a group.
    starts = np.concatenate(([0], np.cumsum(sizes)[:-1]))
    return xgboost.QuantileDMatrix(
        rows.features,
        label=grades(rows.target, rows.group),
        group=sizes,
        weight=np.add.reduceat(rows.weight, starts) / sizes,
        nthread=threads,
        ref=like,
    )


def check_device(device: str) -> None:
    """Refuse a GPU where there is none: XGBoost would train on the processor and say nothing.

    Raises
    ------
    RecipeError
        When this XGBoost was built without CUDA, or CUDA's driver sees no GPU.
    """
    if device == "cpu":
        return
    cure = "take device = 'cpu', or run it where there is a GPU"
    if not xgboost.build_info().get("USE_CUDA", False):
        raise RecipeError(f"device = {device!r}: this XGBoost was built without CUDA", cure=cure)
    count = ctypes.c_int(0)
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        failed = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
    except OSError:
        failed = 1
    if failed or count.value < 1:
        raise RecipeError(f"device = {device!r}: there is no GPU that CUDA sees", cure=cure)


class XGBoostModel:
    """An XGBoost booster."""

    library = "xgboost"
    suffix = ".ubj"

    def __init__(self, booster: xgboost.Booster) -> None:
        # Searches ask for a few hundred rows at a time: waking other threads takes longer.
        booster.set_param({"nthread": 1})
        self._booster = booster

    @classmethod
    def check(cls, params: dict[str, Any]) -> tuple[list[str], list[str]]:
        """Names among parameters that XGBoost does not know; it lists none that it does.

        Raises ``ValueError`` where it refuses a value, as it would of any rows.
        """
        few = np.arange(8.0)
        given = {**DEFAULTS, **params, "verbosity": 1, "validate_parameters": True}
        data = xgboost.QuantileDMatrix(few[:, None], label=few)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            xgboost.train(given, data, num_boost_round=1)
        unused = [str(one.message) for one in said if "are not used" in str(one.message)]
        return [name for text in unused for name in re.findall(r'"([^"]*)"', text)], []

    @classmethod
    def fit(
        cls, rows: TrainingRows, options: ModelOptions, *, seed: int, threads: int, device: str
    ) -> XGBoostModel:
        """Fit on the processor or, with ``device = "cuda"``, on a GPU."""
        check_device(device)
        if options.objective not in _OBJECTIVES:
            raise RecipeError(
                f"XGBoost is not fitted with objective = {options.objective!r} here",
                cure="use library = 'lightgbm'",
            )
        parameters: dict[str, Any] = {
            **DEFAULTS,
            **options.params,
            "objective": _OBJECTIVES[options.objective],
            "nthread": threads,
            "seed": seed,
            "device": device,
            "verbosity": 0,
        }
        if options.objective not in ("squared", "logistic"):
            parameters.setdefault("lambdarank_num_pair_per_sample", 8)
        rounds = options.rounds
        parts = part_tasks(rows, seed) if options.early_stopping else None
        if parts is not None:
            known = _data(parts[0], options, threads)
            held = _data(parts[1], options, threads, like=known)
            stopped = xgboost.train(
                parameters,
                known,
                num_boost_round=rounds,
                evals=[(held, "held")],
                early_stopping_rounds=options.early_stopping,
                verbose_eval=False,
            )
            rounds = stopped.best_iteration + 1
        data = _data(rows, options, threads)
        return cls(xgboost.train(parameters, data, num_boost_round=rounds))

    @classmethod
    def load(cls, path: Path) -> XGBoostModel:
        """Read XGBoost's own binary JSON."""
        booster = xgboost.Booster()
        try:
            booster.load_model(bytearray(path.read_bytes()))
        except (OSError, xgboost.core.XGBoostError) as error:
            raise unreadable(path, error) from None
        return cls(booster)

    def save(self, path: Path) -> None:
        """Write XGBoost's own binary JSON."""
        path.write_bytes(bytes(self._booster.save_raw("ubj")))

    def predict(self, features: Matrix) -> Floats:
        """Sum of the trees; with the logistic loss a probability."""
        return np.asarray(self._booster.inplace_predict(features), dtype=np.float64)

    def leaves(self, features: Matrix) -> np.ndarray[Any, np.dtype[np.int32]]:
        """Leaf of each tree that a row falls into, ``(n, trees)``."""
        found = self._booster.predict(xgboost.DMatrix(features, nthread=1), pred_leaf=True)
        return np.asarray(found, dtype=np.int32).reshape(len(features), -1)

    def importance(self) -> Floats:
        """Share of the total gain."""
        found = self._booster.get_score(importance_type="total_gain")
        names = [f"f{i}" for i in range(self._booster.num_features())]
        return normalised(np.array([float(found.get(name, 0.0)) for name in names]))
