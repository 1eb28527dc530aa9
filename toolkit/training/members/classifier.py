"""The paper's model: XGBoost classifies a program by the rule whose mutation gains most.

Han, Wang, Li, Gao 2025, section 3: the features of the program before mutation, the label the
index of the direction with the highest gain; where gains are nearly equal, the rules' weights
decide.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xgboost
from numpy.typing import NDArray

from toolkit.training.models.base import normalised, unreadable
from toolkit.training.recipes.recipe import ModelOptions

Floats = NDArray[np.float64]

DEFAULTS: dict[str, Any] = {"eta": 0.1, "max_depth": 6, "tree_method": "hist"}


@dataclass(frozen=True)
class RuleClassifier:
    """Probability of each rule to be the one that gains most."""

    booster: xgboost.Booster
    rules: tuple[str, ...]

    def probabilities(self, features: NDArray[np.float32]) -> Floats:
        """One row a candidate, one column a rule (in the order of ``rules``)."""
        found = self.booster.predict(xgboost.DMatrix(features, nthread=1))
        return np.asarray(found, dtype=np.float64).reshape(len(features), len(self.rules))

    def importance(self) -> Floats:
        """Share of each column in the total gain."""
        found = self.booster.get_score(importance_type="total_gain")
        names = [f"f{i}" for i in range(self.booster.num_features())]
        return normalised(np.array([float(found.get(name, 0.0)) for name in names]))

    def save(self, folder: Path) -> list[dict[str, Any]]:
        """Write XGBoost's own binary JSON; returns what the manifest needs to load it."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "rules.ubj").write_bytes(bytes(self.booster.save_raw("ubj")))
        return [{"file": "rules.ubj", "rules": list(self.rules)}]

    @classmethod
    def load(cls, folder: Path, written: list[dict[str, Any]]) -> RuleClassifier:
        """Read what ``save`` wrote."""
        path = folder / written[0]["file"]
        booster = xgboost.Booster()
        try:
            booster.load_model(bytearray(path.read_bytes()))
        except (OSError, xgboost.core.XGBoostError) as error:
            raise unreadable(path, error) from None
        return cls(booster, tuple(written[0]["rules"]))


def fit_classifier(
    features: NDArray[np.float32],
    labels: Sequence[str],
    options: ModelOptions,
    *,
    seed: int,
    threads: int,
    device: str = "cpu",
) -> RuleClassifier:
    """Fit to one label (rule) a candidate."""
    rules = tuple(sorted(set(labels)))
    place = {rule: i for i, rule in enumerate(rules)}
    parameters = {
        **DEFAULTS,
        **options.params,
        "objective": "multi:softprob",
        "num_class": max(len(rules), 2),
        "nthread": threads,
        "seed": seed,
        "device": device,
        "verbosity": 0,
    }
    data = xgboost.QuantileDMatrix(
        features, label=np.array([place[label] for label in labels]), nthread=threads
    )
    booster = xgboost.train(parameters, data, num_boost_round=options.rounds)
    return RuleClassifier(booster, rules if len(rules) > 1 else (*rules, "none"))
