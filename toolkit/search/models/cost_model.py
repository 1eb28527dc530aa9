"""The cost model that a run trains repeatedly on its own measurements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from toolkit.records import Candidate, Trial
from toolkit.search.base import Space
from toolkit.search.moves.knobs import FloatArray
from toolkit.search.strategy import StrategyOptions, throughput


class CostModelOptions(StrategyOptions):
    """Boosted trees on a space's features.

    Depth, learning rate and regularisation are AutoTVM's (TVM 0.16, ``xgboost_cost_model.py``).
    AutoTVM adds trees until its recall does not improve for 20 rounds; here the number is fixed.
    """

    library: Literal["xgboost", "lightgbm"] = Field(
        default="xgboost", description="library that fits the trees"
    )
    loss: Literal["rank", "squared"] = Field(
        default="rank", description="pairwise rank loss, or squared error of relative throughput"
    )
    pairs: PositiveInt = Field(
        default=8, description="pairs drawn for each measurement in XGBoost's rank loss"
    )
    trees: PositiveInt = Field(default=40, description="number of boosted trees")
    depth: PositiveInt = Field(default=3, description="maximum depth of a tree")
    learning_rate: PositiveFloat = Field(default=0.3, description="shrinkage of each tree")
    gamma: NonNegativeFloat = Field(default=1e-4, description="minimum gain of a split")
    min_child_weight: NonNegativeFloat = Field(
        default=1.0, description="minimum sum of weights in a leaf, as in XGBoost"
    )
    reg_lambda: NonNegativeFloat = Field(default=1.0, description="L2 penalty of leaf values")


class History:
    """Measured candidates with features and throughput (1/s; 0 for a failure).

    A candidate that is measured again keeps both measurements.
    """

    def __init__(self, space: Space) -> None:
        self._space = space
        self.candidates: list[Candidate] = []
        self._throughput: list[float] = []
        self._features: list[NDArray[np.float32]] = []

    def __len__(self) -> int:
        """Number of measurements."""
        return len(self.candidates)

    def add(self, trials: Sequence[Trial]) -> None:
        """Keep a batch."""
        if not trials:
            return
        batch = [trial.candidate for trial in trials]
        self.candidates += batch
        self._throughput += [throughput(trial) for trial in trials]
        self._features.append(self._space.features(batch))

    def features(self) -> NDArray[np.float32]:
        """Features of all measurements, ``(n, d)``."""
        return np.concatenate(self._features)

    def throughput(self) -> FloatArray:
        """Throughput of all measurements, ``(n,)``, in 1/s; 0 for failures."""
        return np.array(self._throughput)

    def best(self, n: int) -> list[Candidate]:
        """Return the n fastest measured candidates, best first, without failures."""
        order = np.argsort(-np.array(self._throughput), kind="stable").tolist()
        ranked = (self.candidates[i] for i in order if self._throughput[i] > 0)
        return list({c.candidate_id: c for c in ranked}.values())[:n]


class OnlineCostModel:
    """Predicts relative throughput within one space (higher is faster).

    ``seed`` is given to the library, which uses one thread: the same data give the same model.
    """

    def __init__(self, options: CostModelOptions, seed: int) -> None:
        self.options, self.seed = options, seed
        self._model: Any = None

    @property
    def fitted(self) -> bool:
        """Whether there is a model yet."""
        return self._model is not None

    def fit(
        self,
        features: NDArray[np.float32],
        throughput: FloatArray,
        weight: FloatArray | None = None,
    ) -> None:
        """Train from scratch on throughput relative to the best (failures are 0)."""
        top = float(throughput.max(initial=0.0))
        if top <= 0 or np.ptp(throughput) == 0:
            return
        target = throughput / top
        fit = self._fit_xgboost if self.options.library == "xgboost" else self._fit_lightgbm
        fit(features, target, weight)

    def _fit_xgboost(
        self, features: NDArray[np.float32], target: FloatArray, weight: FloatArray | None
    ) -> None:
        import xgboost

        o = self.options
        rank = o.loss == "rank"
        data = xgboost.DMatrix(features, target, weight=None if rank else weight, nthread=1)
        parameters = {
            "objective": "rank:pairwise" if rank else "reg:squarederror",
            "max_depth": o.depth,
            "eta": o.learning_rate,
            "gamma": o.gamma,
            "min_child_weight": o.min_child_weight,
            "lambda": o.reg_lambda,
            "tree_method": "hist",
            "max_bin": 64,
            "nthread": 1,
            "seed": self.seed,
            "verbosity": 0,
        }
        if rank:
            data.set_group([len(target)])
            parameters["lambdarank_pair_method"] = "mean"
            parameters["lambdarank_num_pair_per_sample"] = o.pairs
        self._model = xgboost.train(parameters, data, num_boost_round=o.trees)

    def _fit_lightgbm(
        self, features: NDArray[np.float32], target: FloatArray, weight: FloatArray | None
    ) -> None:
        import lightgbm

        o = self.options
        rank = o.loss == "rank"
        # Rank labels of LightGBM are small whole numbers: 0 (failed or slowest) to 30.
        label = np.round(30 * target).astype(np.int64) if rank else target
        data = lightgbm.Dataset(
            features,
            label,
            weight=None if rank else weight,
            group=[len(target)] if rank else None,
            params={"verbose": -1, "max_bin": 63, "min_data_in_bin": 1},
            free_raw_data=True,
        )
        parameters = {
            "objective": "lambdarank" if rank else "regression",
            # All pairs count, weighted by their difference: not only those near the top.
            "lambdarank_truncation_level": len(target),
            "label_gain": list(range(31)),
            "num_leaves": 2**o.depth,
            "max_depth": o.depth,
            "learning_rate": o.learning_rate,
            "min_data_in_leaf": 2,
            "lambda_l2": o.reg_lambda,
            "num_threads": 1,
            "seed": self.seed,
            "objective_seed": self.seed,
            "deterministic": True,
            "force_row_wise": True,
            "verbose": -1,
        }
        self._model = lightgbm.train(parameters, data, num_boost_round=o.trees)

    def predict(self, features: NDArray[np.float32]) -> FloatArray:
        """Predict a score for each row; zeros before the first fit."""
        if self._model is None:
            return np.zeros(len(features))
        if self.options.library == "xgboost":
            predicted = self._model.inplace_predict(features)
        else:
            predicted = self._model.predict(features, num_threads=1)
        return np.asarray(predicted, dtype=np.float64)
