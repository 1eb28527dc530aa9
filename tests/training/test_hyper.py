"""The search: its budget is kept, its report is nested, what it finds is a recipe file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import orjson
import pytest
from made_autotvm import write_autotvm
from typer.testing import CliRunner

from toolkit.cli.main import app
from toolkit.datasets import Dataset, ingest, open_dataset
from toolkit.errors import DatasetError, RecipeError
from toolkit.training import load_recipe, recipe_names
from toolkit.training.recipes.recipe import Range, Recipe, SearchOptions, recipe_toml
from toolkit.training.table.gather import gather
from toolkit.training.tasks import hyper
from toolkit.training.tasks.hyper import (
    TrialBudget,
    applied,
    draw,
    parse_budget,
    search_recipe,
    space_of,
)


def searching(quick: Recipe, **space: Range) -> Recipe:
    options = SearchOptions(outer_folds=2, inner_folds=2, space=space)
    return quick.model_copy(update={"search": options})


def test_it_finds_what_is_better_and_says_so_of_tasks_it_never_saw(
    made_dataset: Dataset, quick: Recipe
) -> None:
    bad = quick.models[0].model_copy(update={"rounds": 1})
    recipe = searching(quick, rounds=Range(low=40, high=60, integer=True))
    recipe = recipe.model_copy(update={"models": (bad,)})
    found, about = search_recipe(made_dataset, recipe, TrialBudget(trials=4), threads=1)
    assert 40 <= found.models[0].rounds <= 60
    assert about["picked"]["changes"] == {"rounds": found.models[0].rounds}
    assert about["nested"]["pairwise"] > about["as_it_stands"]["pairwise"]
    assert about["ahead"]["top1_interval"][0] > 0
    low, high = about["nested"]["top1_interval"]
    assert low <= about["nested"]["top1"] <= high
    assert len(about["trials"]) == 4
    assert len(about["picked_by_part"]) == about["outer_folds"] == 2
    # Three searches of 4, 1 and 1 trials on two folds each, and two fits for each outer part.
    assert about["fits"] == 3 * (4 + 1 + 1) * 2 + 2 * 2


def test_a_part_is_searched_without_its_own_tasks(
    made_dataset: Dataset, quick: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[set[int]] = []
    real = hyper.cross_fit

    def spy(table, recipe, **options):  # type: ignore[no-untyped-def]
        seen.append(set(table.task.tolist()))
        return real(table, recipe, **options)

    monkeypatch.setattr(hyper, "cross_fit", spy)
    recipe = searching(quick, rounds=Range(low=5, high=9, integer=True))
    search_recipe(made_dataset, recipe, TrialBudget(trials=1), threads=1)
    table, _ = gather(made_dataset)
    everything = set(range(len(table.task_ids)))
    inner, last = seen[:-3], seen[-3:]
    assert all(tasks == everything for tasks in last)
    parts = [everything - tasks for tasks in inner]
    assert all(parts)
    assert set.union(*parts) == everything
    assert len(inner) == 6


def test_trials_are_judged_by_networks_where_the_recipe_says_so(
    quick: Recipe, tmp_path: Path
) -> None:
    for number, net in enumerate(("net-a", "net-b", "net-c")):
        shapes = [(8, 16, size) for size in range(8 + 4 * number, 12 + 4 * number)]
        write_autotvm(tmp_path / net / "log.json", shapes)
    logs = [tmp_path / f"net-{letter}" for letter in "abc"]
    ingest(logs, tmp_path / "dataset", path_rule=r"(?P<network>net-[a-z])/")
    recipe = searching(quick, rounds=Range(low=5, high=9, integer=True))
    split = recipe.split.model_copy(update={"by": "network"})
    recipe = recipe.model_copy(update={"split": split})
    dataset = open_dataset(tmp_path / "dataset")
    _, about = search_recipe(dataset, recipe, TrialBudget(trials=1), threads=1)
    assert about["nested"]["n_test_tasks"] == len(dataset.tasks())


def test_seconds_are_a_budget_too(made_dataset: Dataset, quick: Recipe) -> None:
    recipe = searching(quick, rounds=Range(low=2, high=4, integer=True))
    found, about = search_recipe(made_dataset, recipe, TrialBudget(seconds=0.01), threads=1)
    # There is always one trial: the recipe as it stands.
    assert [trial["changes"] for trial in about["trials"]] == [{}]
    assert found == recipe


def test_draws_stay_in_their_ranges() -> None:
    space = {
        "a": Range(low=0.001, high=10.0, log=True),
        "b": Range(low=3, high=5, integer=True),
        "c": Range(low=-1.0, high=1.0),
    }
    rng = np.random.default_rng(0)
    drawn = [draw(space, rng) for _ in range(300)]
    for name, values in space.items():
        found = np.array([d[name] for d in drawn])
        assert found.min() >= values.low
        assert found.max() <= values.high
    assert {d["b"] for d in drawn} == {3, 4, 5}
    assert np.median([d["a"] for d in drawn]) == pytest.approx(0.1, rel=0.7)


@pytest.mark.parametrize("name", recipe_names())
def test_a_recipe_survives_being_written(name: str, tmp_path: Path) -> None:
    recipe = load_recipe(name)
    (tmp_path / "again.toml").write_text(recipe_toml(recipe, "two\nlines"))
    assert load_recipe(tmp_path / "again.toml") == recipe
    if recipe.kind == "throughput":
        changed = applied(recipe, draw(space_of(recipe), np.random.default_rng(1)))
        (tmp_path / "changed.toml").write_text(recipe_toml(changed))
        assert load_recipe(tmp_path / "changed.toml") == changed != recipe


def test_mistakes_have_a_cure(made_dataset: Dataset, quick: Recipe) -> None:
    assert parse_budget("20") == TrialBudget(trials=20)
    assert parse_budget("1.5s") == TrialBudget(seconds=1.5)
    for text in ("0", "-3", "soon", "0s", "5m"):
        with pytest.raises(RecipeError, match="not a valid search budget"):
            parse_budget(text)
    with pytest.raises(RecipeError, match=r"search\.space\.rounds: low must be at most high"):
        space_of(searching(quick, rounds=Range(low=2, high=1)))
    other = quick.models[0].model_copy(update={"library": "network"})
    mixed = quick.model_copy(update={"models": (quick.models[0], other)})
    assert space_of(mixed) == space_of(quick)
    changed = applied(mixed, {"rounds": 7, "num_leaves": 9})
    assert (changed.models[0].rounds, changed.models[1]) == (7, other)
    with pytest.raises(RecipeError, match="no default search space for library = 'network'"):
        space_of(quick.model_copy(update={"models": (other, quick.models[0])}))
    options = SearchOptions(outer_folds=5, inner_folds=4)
    with pytest.raises(DatasetError, match="too few for 5 outer and 4 inner"):
        search_recipe(
            made_dataset, quick.model_copy(update={"search": options}), TrialBudget(trials=1)
        )


def test_the_command_writes_the_found_recipe(
    made_dataset: Dataset, quick: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    recipe = searching(quick, rounds=Range(low=5, high=9, integer=True))
    (tmp_path / "mine.toml").write_text(recipe_toml(recipe))
    call = ["train", "throughput", "--dataset", str(made_dataset.path), "--recipe", "mine.toml"]
    done = CliRunner().invoke(app, [*call, "--search", "2", "--threads", "1", "--json"])
    assert done.exit_code == 0, done.output
    about = orjson.loads(done.stdout)["search"]
    found = load_recipe(tmp_path / about["recipe"])
    assert found.search == recipe.search
    shown = CliRunner().invoke(app, [*call, "--search", "1", "--threads", "1"])
    assert "recipe as it was" in shown.output
    wrong = CliRunner().invoke(app, [*call, "--search", "soon"])
    assert wrong.exit_code == 1
    assert "trials (for example 20, at most 99999) or seconds (300s)" in " ".join(
        wrong.stderr.split()
    )
