"""The network: what it learns, absent quantities, and the same result however many fit at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from toolkit.errors import ModelError, RecipeError
from toolkit.training.members.fit import check_parameters
from toolkit.training.models.base import TrainingRows, one_blas_thread
from toolkit.training.models.network_model import NetworkModel
from toolkit.training.recipes.recipe import ModelOptions


def options(**more: Any) -> ModelOptions:
    return ModelOptions.model_validate({"library": "network", "rounds": 40, **more})


def made(count: int = 1200, seed: int = 0) -> TrainingRows:
    """Two quantities that count and one that does not; the second exists for half of the rows."""
    rng = np.random.default_rng(seed)
    features = np.exp2(rng.uniform(0, 12, (count, 3))).astype(np.float32)
    features[::2, 1] = np.nan
    logs = np.log2(features.astype(np.float64))
    target = -np.abs(logs[:, 0] - 6) + np.where(np.isnan(logs[:, 1]), 2.0, 0.5 * logs[:, 1])
    return TrainingRows(features, target, np.ones(count), np.repeat(np.arange(4), count // 4))


def fit(rows: TrainingRows, seed: int = 0, **more: Any) -> NetworkModel:
    return NetworkModel.fit(rows, options(**more), seed=seed, threads=1, device="cpu")


def test_it_learns_bends_and_what_an_absence_means() -> None:
    model, other = fit(made()), made(seed=1)
    left = other.target - model.predict(other.features)
    assert np.var(left) < 0.05 * np.var(other.target)
    for absent in (True, False):
        own = np.isnan(other.features[:, 1]) == absent
        assert abs(float(left[own].mean())) < 0.15
    shares = model.importance()
    assert shares.sum() == pytest.approx(1.0)
    assert shares.argmin() == 2


def test_what_lies_far_off_or_never_was_is_answered_with_a_number() -> None:
    rows = made()
    never = np.full((len(rows.features), 1), np.nan, dtype=np.float32)
    model = fit(
        TrainingRows(np.hstack([rows.features, never]), rows.target, rows.weight, rows.group)
    )
    strange = np.array(
        [[np.nan] * 4, [1e30] * 4, [-1e30] * 4, [np.inf, -np.inf, 0.0, 5.0]], dtype=np.float32
    )
    low, high = rows.target.min(), rows.target.max()
    found = model.predict(strange)
    assert np.all(np.isfinite(found))
    assert np.all(np.abs(found - (low + high) / 2) < 3 * (high - low))
    assert model.predict(strange[:0]).shape == (0,)


def test_rows_that_weigh_nothing_teach_nothing() -> None:
    rows = made()
    wrong = TrainingRows(
        np.vstack([rows.features, rows.features]),
        np.concatenate([rows.target, -rows.target]),
        np.concatenate([rows.weight, rows.weight * 1e-6]),
        np.concatenate([rows.group, rows.group + 4]),
    )
    left = rows.target - fit(wrong).predict(rows.features)
    assert np.var(left) < 0.05 * np.var(rows.target)


def test_fits_side_by_side_are_those_that_are_made_one_after_the_other() -> None:
    rows = made(400)
    alone = [fit(rows, seed, rounds=5).predict(rows.features) for seed in range(4)]
    with one_blas_thread(), ThreadPoolExecutor(4) as pool:
        together = list(
            pool.map(lambda seed: fit(rows, seed, rounds=5).predict(rows.features), range(4))
        )
    for first, second in zip(alone, together, strict=True):
        assert np.array_equal(first, second)
    assert not np.array_equal(alone[0], alone[1])


def test_what_was_written_is_read_back_and_damage_is_named(tmp_path: Path) -> None:
    rows = made(400)
    model = fit(rows, rounds=3)
    model.save(tmp_path / "network.npz")
    read = NetworkModel.load(tmp_path / "network.npz")
    assert np.array_equal(read.predict(rows.features), model.predict(rows.features))
    assert np.array_equal(read.importance(), model.importance())
    whole = (tmp_path / "network.npz").read_bytes()
    middle = len(whole) // 2
    torn = whole[:middle] + bytes(64) + whole[middle + 64 :]
    for damaged in (b"", b"no archive", whole[:middle], torn):
        (tmp_path / "network.npz").write_bytes(damaged)
        with pytest.raises(ModelError, match="train it again"):
            NetworkModel.load(tmp_path / "network.npz")


@pytest.mark.parametrize(
    "more",
    [
        {"objective": "lambdarank"},
        {"early_stopping": 5},
    ],
)
def test_what_a_network_does_not_know_is_refused(more: dict[str, Any]) -> None:
    with pytest.raises(RecipeError, match="a network"):
        fit(made(40), **more)


@pytest.mark.parametrize("params", [{"num_leaves": 3}, {"width": "wide"}, {"batch": 0}])
def test_parameters_that_it_does_not_know_are_refused(params: dict[str, Any]) -> None:
    with pytest.raises(RecipeError, match="network"):
        check_parameters("network", params)
