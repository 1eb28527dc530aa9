"""XGBoost: squared error, pairwise rank loss or LambdaRank; stored as XGBoost's JSON (UBJ)."""

from __future__ import annotations

import ctypes
import re
import warnings
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import xgboost

from toolkit.errors import RecipeError
from toolkit.training.arrays import Floats, Matrix
from toolkit.training.models.base import BoostedTrees, TrainingRows, normalised, unreadable


def check_device(device: str) -> None:
    """Refuse a GPU where there is none: XGBoost would silently train on the CPU.

    Raises ``RecipeError`` if this XGBoost was built without CUDA, or CUDA's driver sees no GPU.
    """
    if device == "cpu":
        return
    cure = "set device = 'cpu', or run on a machine with a GPU"
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


def read_booster(path: Path) -> xgboost.Booster:
    """Read XGBoost's own binary JSON."""
    booster = xgboost.Booster()
    try:
        booster.load_model(bytearray(path.read_bytes()))
    except (OSError, xgboost.core.XGBoostError) as error:
        raise unreadable(path, error) from None
    return booster


def gain_shares(booster: xgboost.Booster) -> Floats:
    """Share of each column in the total gain."""
    found = booster.get_score(importance_type="total_gain")
    return normalised(np.array([found.get(f"f{i}", 0.0) for i in range(booster.num_features())]))


def watching(held: Any, patience: int) -> dict[str, Any]:
    """Return arguments that stop training when ``held`` gained nothing for so many rounds."""
    return {"evals": [(held, "held")], "verbose_eval": False, "early_stopping_rounds": patience}


class XGBoostModel(BoostedTrees):
    """An XGBoost booster, fitted on the processor or, with ``device = "cuda"``, on a GPU."""

    library = "xgboost"
    suffix = ".ubj"
    DEFAULTS: ClassVar = {
        "eta": 0.1,
        "max_depth": 8,
        "min_child_weight": 5.0,
        "subsample": 0.8,
        "colsample_bytree": 0.7,
        "tree_method": "hist",
    }
    RANKING: ClassVar = {"lambdarank_num_pair_per_sample": 8}
    OBJECTIVES: ClassVar = {
        "squared": "reg:squarederror",
        "pairwise": "rank:pairwise",  # AutoTVM's rank loss (Chen et al. 2018, section 3)
        "lambdarank": "rank:ndcg",
        "logistic": "binary:logistic",
    }
    _train = staticmethod(xgboost.train)
    _watching = staticmethod(watching)

    def __init__(self, booster: xgboost.Booster) -> None:
        # Searches predict a few hundred rows at a time: waking other threads takes longer.
        booster.set_param({"nthread": 1})
        super().__init__(booster)

    @classmethod
    def check(cls, params: dict[str, Any]) -> tuple[list[str], list[str]]:
        """Return the parameter names that XGBoost does not know, and an empty list of known ones.

        Raises ``ValueError`` if it refuses a value.
        """
        few = np.arange(8.0)
        given = {**cls.DEFAULTS, **params, "verbosity": 1, "validate_parameters": True}
        data = xgboost.QuantileDMatrix(few[:, None], label=few)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            xgboost.train(given, data, num_boost_round=1)
        unused = [str(one.message) for one in said if "are not used" in str(one.message)]
        return [name for text in unused for name in re.findall(r'"([^"]*)"', text)], []

    @classmethod
    def _fixed(cls, threads: int, device: str) -> dict[str, Any]:
        check_device(device)
        return {"nthread": threads, "device": device, "verbosity": 0}

    @classmethod
    def _data(
        cls, rows: TrainingRows, label: Any, sizes: Any, parameters: dict[str, Any], like: Any
    ) -> xgboost.QuantileDMatrix:
        weight, threads = rows.weight, parameters["nthread"]
        if sizes is not None:
            # XGBoost's rankers take one weight per group.
            weight = np.add.reduceat(weight, np.cumsum(sizes) - sizes) / sizes
        return xgboost.QuantileDMatrix(
            rows.features, label=label, group=sizes, weight=weight, nthread=threads, ref=like
        )

    @classmethod
    def _best_round(cls, booster: xgboost.Booster) -> int:
        return int(booster.best_iteration) + 1

    @classmethod
    def load(cls, path: Path) -> XGBoostModel:
        """Read XGBoost's own binary JSON."""
        return cls(read_booster(path))

    def save(self, path: Path) -> None:
        """Write XGBoost's own binary JSON."""
        path.write_bytes(bytes(self._booster.save_raw("ubj")))

    def predict(self, features: Matrix) -> Floats:
        """Sum of the trees; with the logistic loss a probability."""
        return np.asarray(self._booster.inplace_predict(features), dtype=np.float64)

    def _leaves(self, features: Matrix) -> Any:
        return self._booster.predict(xgboost.DMatrix(features, nthread=1), pred_leaf=True)

    def importance(self) -> Floats:
        """Share of the total gain."""
        return gain_shares(self._booster)
