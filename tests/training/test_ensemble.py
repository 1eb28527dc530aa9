"""Ensembles: targets against values worked out by hand, one scale for all members."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from toolkit.training.members.ensemble import Ensemble, fit_models
from toolkit.training.models.base import TrainingRows
from toolkit.training.models.ridge_model import RidgeModel
from toolkit.training.recipes.recipe import ModelOptions, Recipe


def recipe(*members: dict[str, object]) -> Recipe:
    options = [{"library": "ridge", "params": {"alpha": 1e-6}, **member} for member in members]
    return Recipe.model_validate({"kind": "throughput", "models": options})


def test_targets_of_a_task_of_four(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, list[float]] = {}
    fit = RidgeModel.fit

    def spy(rows: TrainingRows, options: ModelOptions, **rest: object) -> RidgeModel:
        seen[options.target] = rows.target.tolist()
        return fit(rows, options, seed=0, threads=1, device="cpu")

    monkeypatch.setattr(RidgeModel, "fit", spy)
    value = np.log([0.25, 1.0, 0.5, 0.125])
    names = ("log_speed", "speed", "rank", "top_rank")
    features = np.arange(8, dtype=np.float32).reshape(4, 2)
    given = TrainingRows(features, value, np.ones(4), np.zeros(4, dtype=np.int64))
    fit_models(given, recipe(*({"target": name} for name in names)), threads=1)
    assert seen["log_speed"] == pytest.approx(value.tolist())
    assert seen["speed"] == pytest.approx([0.25, 1.0, 0.5, 0.125])
    assert seen["rank"] == [0.5, 1.0, 0.75, 0.25]
    # shares that are at least as fast: 3/4, 1/4, 2/4, all
    shares = np.array([0.75, 0.25, 0.5, 1.0])
    assert seen["top_rank"] == pytest.approx((-np.log(shares + 1e-3)).tolist())


def test_members_of_other_targets_have_the_same_say_and_the_value_s_unit(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    features = rng.uniform(1, 100, (400, 3)).astype(np.float32)
    value = -0.5 * np.log(features[:, 0].astype(np.float64))
    value -= value.max()
    group = np.repeat(np.arange(4), 100)
    members = ({"target": "log_speed"}, {"target": "speed"}, {"target": "top_rank"})
    given = TrainingRows(features, value, np.ones(400), group)
    ensemble = fit_models(given, recipe(*members), threads=1)
    spreads = [float(np.std(part.log_speed(features))) for part in ensemble.parts]
    assert spreads == pytest.approx([spreads[0]] * 3)
    predicted = ensemble.predict(features)
    slope, intercept = np.polyfit(predicted, value, 1)
    assert slope == pytest.approx(1.0)
    assert intercept == pytest.approx(0.0, abs=1e-9)

    written = ensemble.save(tmp_path)
    assert np.array_equal(Ensemble.load(tmp_path, written).predict(features), predicted)


def test_one_member_of_log_throughput_is_left_as_it_is() -> None:
    features = np.linspace(1, 9, 50, dtype=np.float32)[:, None]
    value = -np.log(features[:, 0].astype(np.float64))
    given = TrainingRows(features, value, np.ones(50), np.zeros(50, dtype=np.int64))
    ensemble = fit_models(given, recipe({"target": "log_speed"}), threads=1)
    raw = ensemble.parts[0].model.predict(features)
    assert np.array_equal(ensemble.predict(features), raw)


def test_a_member_that_wants_more_tasks_is_left_out_unless_all_are() -> None:
    features = np.arange(1, 81, dtype=np.float32)[:, None]
    value, weight = -np.log(features[:, 0].astype(np.float64)), np.ones(80)
    group = np.repeat(np.arange(4), 20)
    usual, wants = {"target": "log_speed"}, {"target": "speed", "min_tasks": 5}

    def targets(*members: dict[str, object], tasks: int) -> list[str]:
        some = group < tasks
        given = TrainingRows(features[some], value[some], weight[some], group[some])
        fitted = fit_models(given, recipe(*members), threads=1)
        return [part.target for part in fitted.parts]

    assert targets(usual, wants, tasks=4) == ["log_speed"]
    assert targets(wants, tasks=4) == ["speed"]
    assert targets(usual, {**wants, "min_tasks": 4}, tasks=4) == ["log_speed", "speed"]
    assert targets(usual, {**wants, "min_tasks": 4}, tasks=3) == ["log_speed"]


@pytest.mark.parametrize(("rows", "fits"), [(40, 3), (41, 1)])
def test_few_rows_are_fitted_three_times(
    monkeypatch: pytest.MonkeyPatch, rows: int, fits: int
) -> None:
    """As long as all fits together see no more rows than one fit may."""
    seen: list[tuple[str, int]] = []
    fit = RidgeModel.fit

    def spy(own: TrainingRows, options: ModelOptions, *, seed: int, **rest: object) -> RidgeModel:
        seen.append((options.target, seed))
        return fit(own, options, seed=seed, threads=1, device="cpu")

    monkeypatch.setattr(RidgeModel, "fit", spy)
    features = np.arange(rows, dtype=np.float32)[:, None]
    value = -np.log1p(features[:, 0].astype(np.float64))
    chosen = recipe({"target": "speed", "seeds": "auto"}, {"target": "rank", "weight": 0.5})
    chosen = chosen.model_copy(
        update={"seed": 7, "data": chosen.data.model_copy(update={"max_rows": 120})}
    )
    given = TrainingRows(features, value, np.ones(rows), np.zeros(rows, dtype=np.int64))
    ensemble = fit_models(given, chosen, threads=1)
    assert seen == [("speed", 7 + 1000 * n) for n in range(fits)] + [("rank", 7)]
    assert ensemble.weights.tolist() == pytest.approx([1 / 1.5 / fits] * fits + [0.5 / 1.5])


def test_how_many_fits_is_a_number_or_automatic() -> None:
    for wrong in (0, "many"):
        with pytest.raises(ValidationError):
            recipe({"seeds": wrong})
    numbered = recipe({"seeds": 2})
    assert numbered.fits_of(numbered.models[0], 10**9) == 2
