"""The paper's model of directions: XGBoost names the rule whose mutation gains most.

Han, Wang, Li, Gao 2025, section 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xgboost

from toolkit.training.arrays import Floats, Matrix
from toolkit.training.models.xgboost_model import check_device, gain_shares, read_booster
from toolkit.training.recipes.recipe import Recipe

DEFAULTS: dict[str, Any] = {"eta": 0.1, "max_depth": 6, "tree_method": "hist"}


@dataclass(frozen=True)
class RuleClassifier:
    """Probability of each rule to be the one that gains most."""

    booster: xgboost.Booster
    rules: tuple[str, ...]

    def probabilities(self, features: Matrix) -> Floats:
        """One row per candidate, one column per rule (in the order of ``rules``)."""
        found = self.booster.predict(xgboost.DMatrix(features, nthread=1))
        return np.asarray(found, dtype=np.float64).reshape(len(features), len(self.rules))

    def importance(self) -> Floats:
        """Share of each column in the total gain."""
        return gain_shares(self.booster)

    def save(self, folder: Path) -> list[dict[str, Any]]:
        """Write XGBoost's own binary JSON; returns what the manifest needs to load it."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "rules.ubj").write_bytes(bytes(self.booster.save_raw("ubj")))
        return [{"file": "rules.ubj", "rules": list(self.rules)}]

    @classmethod
    def load(cls, folder: Path, written: list[dict[str, Any]]) -> RuleClassifier:
        """Read what ``save`` wrote."""
        return cls(read_booster(folder / written[0]["file"]), tuple(written[0]["rules"]))


def fit_classifier(
    features: Matrix, labels: Sequence[str], recipe: Recipe, *, threads: int
) -> RuleClassifier:
    """Fit the first of a recipe's models to one label (rule) per candidate."""
    check_device(recipe.device)
    options = recipe.models[0]
    rules, label = np.unique(labels, return_inverse=True)
    names = tuple(rules.tolist())
    parameters = {
        **DEFAULTS,
        **options.params,
        "objective": "multi:softprob",
        "num_class": max(len(names), 2),
        "nthread": threads,
        "seed": recipe.seed,
        "device": recipe.device,
        "verbosity": 0,
    }
    data = xgboost.QuantileDMatrix(features, label=label, nthread=threads)
    booster = xgboost.train(parameters, data, num_boost_round=options.rounds)
    return RuleClassifier(booster, names if len(names) > 1 else (*names, "none"))
