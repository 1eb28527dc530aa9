"""Halide's cost model: its terms, its gradient, and that it learns what a run time is made of."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from toolkit.errors import RecipeError
from toolkit.training.members.fit import check_parameters
from toolkit.training.models.base import TrainingRows
from toolkit.training.models.hybrid_model import TERMS, HybridModel, terms_of
from toolkit.training.recipes.recipe import ModelOptions

COLUMNS = ("flops", "hw_cores", "op_out_bytes", "serial_steps", "thread_balance", "unknown")


def made(count: int = 1200, seed: int = 0) -> TrainingRows:
    """Work, threads that have unequal shares, and each task's own unit of time."""
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(6), count // 6)
    flops = np.exp2(rng.uniform(10, 30, 6))[group]
    work, share = rng.uniform(1, 40, count), rng.uniform(0.05, 1, count)
    ones = np.ones(count)
    features = np.stack([flops, 2 * ones, flops / 8, work * flops, share, 0 * ones], axis=1)
    own = np.linspace(-1, 1, 6)[group]
    target = own - np.log(0.1 * work + 2 / share)
    return TrainingRows(features.astype(np.float32), target, ones, group, columns=COLUMNS)


def fit(rows: TrainingRows, **more: Any) -> HybridModel:
    options = ModelOptions.model_validate({"library": "hybrid", "rounds": 60, **more})
    return HybridModel.fit(rows, options, seed=0, threads=1, device="cpu")


def within(values: np.ndarray, group: np.ndarray) -> np.ndarray:
    """Differences from the task's mean."""
    return values - (np.bincount(group, values) / np.bincount(group))[group]


def test_terms_are_quotients_of_columns_and_absent_ones_are_none() -> None:
    features = np.array([[100.0, np.nan, 25.0, 400.0, 0.5, 1.0]], dtype=np.float32)
    found = dict(zip(TERMS, terms_of(features, COLUMNS)[0].tolist(), strict=True))
    assert {name: value for name, value in found.items() if value} == {
        "constant": 1.0, "work": 4.0, "uneven_threads": 2.0, "page_faults": 0.25,
    }  # fmt: skip
    features[0, 4] = 0.0
    assert terms_of(features, COLUMNS)[0, list(TERMS).index("uneven_threads")] == 0.0


def test_it_learns_a_run_time_that_is_a_sum_of_terms() -> None:
    model, other = fit(made()), made(seed=1)
    left = within(other.target - model.predict(other.features), other.group)
    assert np.var(left) < 0.1 * np.var(within(other.target, other.group))


def test_coefficients_times_terms_are_what_it_predicts() -> None:
    model, other = fit(made(), rounds=3), made(seed=1)
    coefficients, terms = model.coefficients(other.features)
    assert (coefficients >= 0).all()
    assert (terms >= 0).all()
    predicted = -np.log((coefficients * terms).sum(axis=1))
    assert np.allclose(predicted, model.predict(other.features))


def test_a_unit_of_its_own_changes_no_tasks_ranking() -> None:
    rows = made()
    model = fit(rows)
    shifted = TrainingRows(
        rows.features, rows.target + 0.1 * rows.group, rows.weight, rows.group, columns=COLUMNS
    )
    both = [within(one.predict(rows.features), rows.group) for one in (model, fit(shifted))]
    assert np.corrcoef(*both)[0, 1] > 0.99


def test_its_gradient_is_that_of_its_error() -> None:
    """Each weight's slope beside a small step of it."""
    rows = made(120)
    model = fit(rows, rounds=1, params={"width": 8.0})
    weights = [weight.astype(np.float64) for weight in model._weights]
    model._weights = weights  # type: ignore[assignment]
    given = model._inputs.apply(rows.features).astype(np.float64)
    terms = model._scaled(terms_of(rows.features, COLUMNS))

    def error() -> float:
        """Half the mean square, the mean in the task taken off but for a tenth."""
        left = -np.log(model._forward(given, terms)[3]) - rows.target
        mean = (np.bincount(rows.group, left) / np.bincount(rows.group))[rows.group]
        return float(0.5 * np.mean((left - mean) ** 2 + 0.1 * mean**2))

    slopes = model._slopes(given, terms, rows.target, rows.weight, rows.group)
    rng = np.random.default_rng(0)
    for weight, slope in zip(weights, slopes, strict=True):
        for place in rng.choice(weight.size, min(weight.size, 8), replace=False).tolist():
            kept, step = weight.flat[place], 1e-6
            weight.flat[place] = kept + step
            above = error()
            weight.flat[place] = kept - step
            below = error()
            weight.flat[place] = kept
            wanted = (above - below) / (2 * step)
            assert slope.flat[place] == pytest.approx(wanted, rel=2e-3, abs=1e-6)


def test_what_it_does_not_know_is_refused() -> None:
    with pytest.raises(RecipeError, match="no parameter 'widht'"):
        check_parameters("hybrid", {"widht": 8})
    with pytest.raises(RecipeError, match="width must be above 0"):
        check_parameters("hybrid", {"width": 0})
    for wrong in ({"objective": "pairwise"}, {"early_stopping": 3}):
        with pytest.raises(RecipeError, match="hybrid needs objective"):
            fit(made(60), **wrong)
