"""A score a statement, a program's their sum: the loss, its gradient, and TVM's own beside it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from toolkit.datasets import Dataset
from toolkit.errors import ModelError, RecipeError
from toolkit.testing import ModelConformance
from toolkit.training import load_recipe, train_throughput
from toolkit.training.members.ensemble import fit_models
from toolkit.training.members.fit import check_parameters
from toolkit.training.models.base import TrainingRows
from toolkit.training.models.statement_model import StatementModel, places_of, sum_loss, unpack
from toolkit.training.models.xgboost_model import XGBoostModel
from toolkit.training.recipes.recipe import ModelOptions, Recipe

WIDTH, MOST = 3, 4
COLUMNS = tuple(f"ps_{k}_{i}" for k in range(MOST) for i in range(WIDTH))

PACK_SUM = """
import json, sys, types
sys.modules["tvm.s_tir.tensor_intrin"] = types.ModuleType("tvm.s_tir.tensor_intrin")
import numpy as np
from tvm.s_tir.meta_schedule.cost_model.xgb_model import PackSum, XGBConfig
import xgboost

given = json.load(sys.stdin)
programs = [np.array(one, dtype="float32") for one in given["programs"]]
packed = PackSum(xs=programs, ys=np.array(given["speed"]))
gradient, hessian = packed.obj_square_error(np.array(given["predicted"]))
found = xgboost.train({**XGBConfig(nthread=1).to_dict(), "tree_method": "hist"}, packed.dmatrix,
    num_boost_round=20, obj=lambda predicted, _: packed.obj_square_error(predicted))
scores = packed.predict_with_score(found.predict(packed.dmatrix))
print(json.dumps([gradient.tolist(), hessian.tolist(), scores.tolist()]))
"""


class TestStatements(ModelConformance):
    @pytest.fixture
    def plugin(self) -> Any:
        return StatementModel

    @pytest.fixture
    def options(self) -> ModelOptions:
        return ModelOptions(library="statements", rounds=30, early_stopping=5)


def made(count: int = 600, seed: int = 0) -> TrainingRows:
    """Programs of one to four statements, each of which adds to a speed between 0 and 1."""
    rng = np.random.default_rng(seed)
    stores = rng.uniform(0, 1, (count, MOST, WIDTH)).astype(np.float32)
    stores[np.arange(MOST) >= rng.integers(1, MOST + 1, count)[:, None]] = np.nan
    each = 0.25 * stores[:, :, 0] * (stores[:, :, 1] > 0.5)
    speed = np.nansum(each, axis=1).astype(np.float64) + 1e-3
    group = np.repeat(np.arange(4), count // 4)
    return TrainingRows(stores.reshape(count, -1), speed, speed, group, columns=COLUMNS)


def fit(rows: TrainingRows, rounds: int = 60, **more: Any) -> StatementModel:
    options = ModelOptions.model_validate({"library": "statements", "rounds": rounds, **more})
    return StatementModel.fit(rows, options, seed=0, threads=1, device="cpu")


def folded(features: np.ndarray) -> np.ndarray:
    """Maxima over statements, the first one and their number, as ``per-store`` folds them."""
    stores = features.reshape(len(features), MOST, WIDTH)
    count = np.isfinite(stores[:, :, 0]).sum(axis=1)
    return np.column_stack([np.nanmax(stores, axis=1), stores[:, 0], count]).astype(np.float32)


def test_its_gradient_is_that_of_the_weighted_error_of_sums() -> None:
    rng = np.random.default_rng(0)
    program = np.array([0, 1, 1, 3, 3, 3, 0])
    target, weight, predicted = rng.normal(size=4), rng.uniform(0.1, 1, 4), rng.normal(size=7)

    def error(scores: np.ndarray) -> float:
        sums = [scores[program == number].sum() for number in range(4)]
        return float(0.5 * np.sum(weight * (np.array(sums) - target) ** 2))

    gradient, hessian = sum_loss(predicted, program, target, weight)
    for place, step in enumerate(np.eye(7) * 1e-4):
        above, here, below = error(predicted + step), error(predicted), error(predicted - step)
        assert gradient[place] == pytest.approx((above - below) / 2e-4, rel=1e-6)
        assert hessian[place] == pytest.approx((above - 2 * here + below) / 1e-8, rel=1e-4)


def test_loss_and_trees_are_those_of_tvm() -> None:
    """TVM's own class, with its parameters, on the same programs."""
    rows = made(200)
    stores = rows.features.reshape(-1, MOST, WIDTH)
    programs = [one[np.isfinite(one[:, 0])] for one in stores]
    program = np.repeat(np.arange(len(programs)), [len(one) for one in programs])
    predicted = np.random.default_rng(1).normal(size=len(program))
    given = {"programs": [one.tolist() for one in programs], "predicted": predicted.tolist()}
    done = subprocess.run(
        [sys.executable, "-c", PACK_SUM],
        input=orjson.dumps({**given, "speed": rows.target.tolist()}),
        stdout=subprocess.PIPE,
        check=True,
    )
    gradient, hessian, scores = orjson.loads(done.stdout)
    ours = sum_loss(predicted, program, rows.target, rows.target)
    assert np.allclose(ours[0], gradient, atol=1e-6)
    assert np.allclose(ours[1], hessian, atol=1e-6)
    assert np.allclose(fit(rows, rounds=20).predict(rows.features), scores, atol=1e-4)


def test_a_program_is_the_sum_of_its_statements() -> None:
    rows = made()
    model = fit(rows)
    stores = rows.features.reshape(-1, MOST, WIDTH)
    alone = np.full_like(stores, np.nan)
    total = np.zeros(len(stores))
    for place in range(MOST):
        alone[:] = np.nan
        alone[:, 0] = stores[:, place]
        total += model.predict(alone.reshape(len(stores), -1))
    assert np.allclose(model.predict(rows.features), total, atol=1e-6)
    assert model.predict(np.full((2, MOST * WIDTH), np.nan, np.float32)).tolist() == [0, 0]


def test_order_and_padding_say_nothing() -> None:
    rows = made()
    model = fit(rows)
    stores = rows.features.reshape(-1, MOST, WIDTH)
    turned = stores[:, ::-1].reshape(len(stores), -1)
    assert np.allclose(model.predict(rows.features), model.predict(turned), atol=1e-6)
    padded = np.concatenate([stores, np.full_like(stores, np.nan)], axis=1)
    more = tuple(f"ps_{k}_{i}" for k in range(2 * MOST) for i in range(WIDTH))
    padded = padded.reshape(len(stores), -1)
    wide = fit(TrainingRows(padded, rows.target, rows.weight, rows.group, columns=more))
    assert np.array_equal(model.predict(rows.features), wide.predict(padded))


def test_columns_in_any_order_are_found_by_their_names(tmp_path: Path) -> None:
    """A table sorts its columns by name: ``ps_0_10`` comes before ``ps_0_2``."""
    rows = made()
    order = np.random.default_rng(0).permutation(len(COLUMNS))
    columns = tuple(COLUMNS[place] for place in order)
    mixed = rows.features[:, order]
    model = fit(TrainingRows(mixed, rows.target, rows.weight, rows.group, columns=columns))
    assert np.array_equal(fit(rows).predict(rows.features), model.predict(mixed))
    model.save(tmp_path / "member.ubj")
    read = StatementModel.load(tmp_path / "member.ubj")
    assert np.array_equal(read.predict(mixed), model.predict(mixed))
    by_name = dict(zip(columns, read.importance(), strict=True))
    # The third column of a statement says nothing of its speed, and all statements share a gain.
    assert max(by_name[f"ps_{k}_2"] for k in range(MOST)) < min(
        by_name["ps_0_0"], by_name["ps_0_1"]
    )
    assert by_name["ps_0_0"] == by_name["ps_3_0"]


def test_it_learns_what_adds_up_better_than_maxima_do() -> None:
    rows, other = made(), made(seed=1)
    options = ModelOptions(library="xgboost", rounds=60, params=dict(StatementModel.DEFAULTS))
    given = TrainingRows(folded(rows.features), rows.target, rows.weight, rows.group)
    maxima = XGBoostModel.fit(given, options, seed=0, threads=1, device="cpu")
    errors = [
        np.average((found - other.target) ** 2, weights=other.weight)
        for found in (fit(rows).predict(other.features), maxima.predict(folded(other.features)))
    ]
    assert errors[0] < 0.5 * errors[1]


def test_early_stopping_takes_the_rounds_that_were_best_on_left_out_tasks() -> None:
    rows = made()
    noise = np.random.default_rng(0).permutation(rows.target)
    lost = fit(
        TrainingRows(rows.features, noise, rows.weight, rows.group, columns=COLUMNS),
        rounds=200,
        early_stopping=5,
    )
    found = fit(rows, rounds=200, early_stopping=5)
    assert lost._booster.num_boosted_rounds() < found._booster.num_boosted_rounds()


def test_the_recipe_weighs_a_program_by_its_speed() -> None:
    """TVM's loss: target and weight are the throughput relative to the task's best."""
    rows = made(200)
    recipe = load_recipe("throughput-ansor")
    few = recipe.models[0].model_copy(update={"rounds": 10})
    recipe = recipe.model_copy(update={"models": (few,)})
    given = TrainingRows(
        rows.features, np.log(rows.target), np.ones(200), rows.group, columns=COLUMNS
    )
    fitted = fit_models(given, recipe, threads=1)
    scaled = TrainingRows(
        rows.features, rows.target, rows.target / rows.target.mean(), rows.group, columns=COLUMNS
    )
    wanted = fit(scaled, rounds=10, params=few.params).predict(rows.features)
    assert np.allclose(fitted.parts[0].model.predict(rows.features), wanted, atol=1e-5)


def test_places_without_a_number_hold_no_statement() -> None:
    features = np.array([[1, 2, np.nan, np.nan], [np.nan, 3, 4, 5]], dtype=np.float32)
    places = places_of(("ps_0_0", "ps_0_1", "ps_1_0", "ps_1_1"), 4)
    assert places.tolist() == [[0, 1], [2, 3]]
    statements, program = unpack(features, places)
    assert np.array_equal(statements, [[1, 2], [np.nan, 3], [4, 5]], equal_nan=True)
    assert program.tolist() == [0, 1, 1]


@pytest.mark.parametrize(
    "columns",
    [("flops", "ps_0_0"), ("ps_max_0", "ps_main_0"), ("ps_0_0", "ps_0_1", "ps_1_0")],
    ids=["others", "folded", "a hole"],
)
def test_columns_of_another_extractor_are_refused(columns: tuple[str, ...]) -> None:
    with pytest.raises(RecipeError, match="per-statement"):
        places_of(columns, len(columns))


def test_mistakes_have_a_cure(made_dataset: Dataset, quick: Recipe, tmp_path: Path) -> None:
    model = quick.models[0].model_copy(update={"library": "statements", "params": {}})
    with pytest.raises(RecipeError, match="per-statement"):
        train_throughput(
            made_dataset, quick.model_copy(update={"models": (model,)}), tmp_path / "m", threads=1
        )
    rows = made(40)
    empty = np.full_like(rows.features, np.nan)
    with pytest.raises(RecipeError, match="no candidate has per-statement features"):
        fit(TrainingRows(empty, rows.target, rows.weight, rows.group, columns=COLUMNS))
    with pytest.raises(RecipeError, match="statements needs objective"):
        fit(rows, objective="pairwise")
    with pytest.raises(RecipeError, match="no parameter 'max_dept'"):
        check_parameters("statements", {"max_dept": 3})
    with pytest.raises(RecipeError, match="statements cannot be fitted with this recipe"):
        check_parameters("statements", {"max_depth": -3})
    # A booster of another library holds no places.
    plain = XGBoostModel.fit(
        rows, ModelOptions(library="xgboost", rounds=1), seed=0, threads=1, device="cpu"
    )
    plain.save(tmp_path / "plain.ubj")
    with pytest.raises(ModelError, match="cannot be read"):
        StatementModel.load(tmp_path / "plain.ubj")
