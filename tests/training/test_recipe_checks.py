"""Recipes that say what cannot be are refused in one line before anything is gathered."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_commands import QUICK
from typer.testing import CliRunner

from toolkit.cli.main import app
from toolkit.datasets import Dataset
from toolkit.errors import RecipeError
from toolkit.training import load_recipe, recipe_names
from toolkit.training.members.fit import check_recipe


def test_bundled_recipes_pass() -> None:
    for name in recipe_names():
        recipe = load_recipe(name)
        check_recipe(recipe, recipe.kind)


@pytest.mark.parametrize(
    ("name", "kept"), [("throughput", 1), ("mutation-direct", 1), ("mutation", 0), ("validity", 1)]
)
def test_gains_are_learned_beside_throughput_alone(name: str, kept: int) -> None:
    """In other kinds and methods they mean nothing, and alone they are the method direct."""
    recipe = load_recipe(name)
    gains = recipe.models[0].model_copy(update={"objective": "gains"})
    models = (*recipe.models[:kept], gains)
    with pytest.raises(RecipeError, match="'gains' needs a mutation recipe, method = 'expected'"):
        check_recipe(recipe.model_copy(update={"models": models}), recipe.kind)


@pytest.mark.parametrize(
    ("recorded", "objectives"),
    [(0.49, ["squared", "neighbours"]), (0.5, [*["squared"] * 5, "neighbours", "gains"])],
)
def test_gains_are_learned_where_most_neighbours_are_recorded(
    recorded: float, objectives: list[str]
) -> None:
    models = load_recipe("mutation").for_neighbours(recorded).models
    assert [model.objective for model in models] == objectives


def test_neighbourhoods_are_told_apart_for_directions_alone() -> None:
    recipe = load_recipe("throughput")
    model = recipe.models[0].model_copy(update={"neighbourhood": "dense"})
    with pytest.raises(RecipeError, match="'neighbourhood' does not apply to a throughput model"):
        check_recipe(recipe.model_copy(update={"models": (model,)}), "throughput")


@pytest.mark.parametrize("kind", ["throughput", "mutation", "validity"])
@pytest.mark.parametrize("trained", ["throughput", "mutation", "validity"])
def test_a_recipe_of_another_kind_trains_nothing(
    made_dataset: Dataset, tmp_path: Path, kind: str, trained: str
) -> None:
    if kind == trained:
        return
    path = tmp_path / "mine.toml"
    path.write_text(QUICK.replace('"throughput"', f'"{kind}"'))
    out = tmp_path / "model"
    command = ["train", trained, "--recipe", str(path), "--dataset", str(made_dataset.path)]
    done = CliRunner().invoke(app, [*command, "--out", str(out)])
    assert done.exit_code == 1 and f"'{kind}' cannot train a {trained} model" in done.stderr
    assert not out.exists()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("[split]\nfolds = -1", "folds"),
        ("[split]\nfolds = 1", "folds"),
        ('[split]\nfolds = "3"', "folds"),
        ("[split]\nfold = 3", "did you mean 'folds'"),
        ("[[models]]\nlibrary = 'lightgbm'\nseeds = '3'", "seeds"),
        ("[[models]]\nlibrary = 'lightgbm'\nseeds = 1000000000", "seeds"),
        ("[[models]]\nlibrary = 'lightgbm'\nrounds = 1000000000", "100000"),
        ("[[models]]\nlibrary = 'lightgbm'\nrounds = true", "rounds"),
        ("[[models]]\nlibrary = 'lightgbm'\nweight = 0", "weight"),
        ("[[models]]\nlibrary = 'lightgbm'\nweight = inf", "weight"),
        ("[[models]]\nlibrary = 'lightgmb'", "did you mean 'lightgbm'"),
        ("[[models]]\nlibrary = 'lightgbm'\nparams.num_leafs = 3", "did you mean"),
        ("[[models]]\nlibrary = 'lightgbm'\nparams.num_leaves = -3", "num_leaves"),
        ("[[models]]\nlibrary = 'lightgbm'\nparams.learning_rate = 'fast'", "fast"),
        ("[[models]]\nlibrary = 'xgboost'\nparams.ets = 0.1", "no parameter 'ets'"),
        ("[[models]]\nlibrary = 'xgboost'\nparams.max_depth = -5", "max_depth"),
        ("[[models]]\nlibrary = 'xgboost'\nparams.tree_method = 'magic'", "magic"),
        ("[[models]]\nlibrary = 'ridge'\nparams.alfa = 1.0", "did you mean 'alpha'"),
        ("[[models]]\nlibrary = 'ridge'\nparams.alpha = -1.0", "alpha"),
        ("[[models]]\nlibrary = 'network'\nparams.widht = 8", "did you mean 'width'"),
        ("[[models]]\nlibrary = 'network'\nparams.width = 1e9", "width"),
        ("[search]\nspace.num_leafs = {low = 1, high = 2}", "did you mean"),
        ("[search]\nspace.rounds = {low = 1, hihg = 2}", "did you mean 'high'"),
        ("seed = -1", "seed"),
        ("seed = 99999999999999999999", "seed"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(
    made_dataset: Dataset, tmp_path: Path, more: str, said: str
) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(f"{more}\n{QUICK}" if more.startswith("seed") else f"{QUICK}\n{more}\n")
    command = ["train", "throughput", "--recipe", str(path), "--out", str(tmp_path / "model")]
    done = CliRunner().invoke(app, [*command, "--dataset", str(made_dataset.path)])
    assert done.exit_code == 1 and said in done.stderr, done.output
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1
    assert not (tmp_path / "model").exists()


def test_what_a_library_refuses_of_these_rows_is_one_line(
    made_dataset: Dataset, tmp_path: Path
) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(QUICK + 'params.monotone_constraints = "1,1"\n')
    command = ["train", "throughput", "--recipe", str(path), "--out", str(tmp_path / "model")]
    done = CliRunner().invoke(app, [*command, "--dataset", str(made_dataset.path)])
    assert done.exit_code == 1 and "lightgbm" in done.stderr, done.output
    assert isinstance(done.exception, SystemExit)


def test_a_named_validity_recipe_is_one(made_dataset: Dataset) -> None:
    from toolkit.training import train_throughput

    recipe = load_recipe("throughput").model_copy(update={"validity": "throughput"})
    with pytest.raises(RecipeError, match="cannot train a validity model"):
        train_throughput(made_dataset, recipe)
