"""Throughput models on logs that the tests write: quality, leaks, files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_autotvm import SHAPES, write_autotvm

from toolkit.cli.commands.demo import _quick_recipe
from toolkit.datasets import Dataset, ingest, open_dataset
from toolkit.errors import DatasetError, LeakError, ModelError
from toolkit.training import evaluate_model, load_throughput, train_throughput
from toolkit.training.members.crossfit import cross_fit, pick_member
from toolkit.training.recipes.recipe import Recipe, load_recipe
from toolkit.training.table.gather import gather
from toolkit.training.table.table import workload_key


def test_it_predicts_tasks_that_it_never_saw(
    made_dataset: Dataset, quick: Recipe, tmp_path: Path
) -> None:
    result = train_throughput(made_dataset, quick, tmp_path / "model", threads=1)
    assert result["n_test_tasks"] == len(SHAPES)
    assert result["top1"] > result["baseline_constant"]["top1"] + 0.2
    assert result["pairwise"] > 0.85
    assert result["top1_interval"][0] <= result["top1"] <= result["top1_interval"][1]
    assert result["noise_ceiling"]["n_tasks"] == len(SHAPES)
    assert result["noise_ceiling"]["top1"] > 0.97
    assert set(result["networks"]) == {"net-a"}

    again = evaluate_model(tmp_path / "model", made_dataset)
    assert again["top1"] == pytest.approx(result["top1"])
    assert again["pairwise"] == pytest.approx(result["pairwise"])
    assert again["n_leaked_tasks"] == 0
    assert again["n_train_tasks"] == result["n_train_tasks"] == len(SHAPES)
    assert again["noise_ceiling"] == result["noise_ceiling"]


def test_a_log_without_a_success_judges_nothing(
    made_dataset: Dataset, quick: Recipe, tmp_path: Path
) -> None:
    train_throughput(made_dataset, quick, tmp_path / "model", threads=1)
    write_autotvm(tmp_path / "log.json", [(16, 32, 14)], failing=1.0)
    ingest([tmp_path / "log.json"], tmp_path / "failed")
    with pytest.raises(DatasetError, match="every member was trained on 0 of 1 tasks, the others"):
        evaluate_model(tmp_path / "model", open_dataset(tmp_path / "failed"))


def test_no_member_that_judges_a_task_saw_it(
    made_dataset: Dataset, quick: Recipe, tmp_path: Path
) -> None:
    train_throughput(made_dataset, quick, tmp_path / "model", threads=1)
    model = load_throughput(tmp_path / "model")
    for task in made_dataset.tasks().values():
        for asked in (task, task.task_id):
            scorer = model.for_task(asked)
            assert task.task_id not in scorer.training_task_ids
            assert len(scorer.training_task_ids) == len(SHAPES) - 1
    twin = next(iter(made_dataset.tasks().values()))
    members = {"all": model.members["all"]}
    assert workload_key(twin) in members["all"].workloads
    with pytest.raises(LeakError):
        pick_member(members, twin)


@pytest.mark.parametrize("default", [False, True])
def test_poisoning_the_judged_task_changes_none_of_its_scores(
    tmp_path: Path, quick: Recipe, default: bool
) -> None:
    """The judged task's own latencies must not reach its scores by any way."""
    poisoned = SHAPES[2]
    if default:  # every member of the default recipe, with fewer trees
        models = load_recipe("throughput").models
        quick = quick.model_copy(
            update={"models": tuple(m.model_copy(update={"rounds": 8}) for m in models)}
        )

    def scores(name: str, factors: dict[tuple[int, int, int], float]) -> dict[str, Any]:
        write_autotvm(tmp_path / name / "log.json", factors=factors)
        ingest([tmp_path / name / "log.json"], tmp_path / name / "dataset")
        dataset = open_dataset(tmp_path / name / "dataset")
        table, _ = gather(dataset)
        fitted = cross_fit(table, quick, keep_all=False, threads=1)
        task = next(t for t in dataset.tasks().values() if t.arguments[1][1][:2] == [128, 64])
        number = table.task_ids.index(task.task_id)
        own = table.task == number
        return {
            "features": table.features[own],
            "latency": table.latency_s[own],
            "own": fitted.predictions(table)[own],
            "others": fitted.predictions(table)[~own],
        }

    clean, dirty = scores("clean", {}), scores("dirty", {poisoned: 3.0})
    assert np.array_equal(clean["features"], dirty["features"], equal_nan=True)
    assert not np.allclose(clean["latency"], dirty["latency"])
    assert np.array_equal(clean["own"], dirty["own"])
    assert not np.array_equal(clean["others"], dirty["others"])


@pytest.mark.parametrize("library", ["lightgbm", "xgboost", "network", "hybrid", "ridge"])
def test_members_survive_being_written_and_read(
    made_dataset: Dataset, quick: Recipe, tmp_path: Path, library: str
) -> None:
    model = quick.models[0].model_copy(update={"library": library, "rounds": 5, "params": {}})
    recipe = quick.model_copy(update={"models": (model,)})
    train_throughput(made_dataset, recipe, tmp_path / library, threads=1)
    read = load_throughput(tmp_path / library)
    groups = [g for g, _ in made_dataset.groups()]
    table, _ = gather(made_dataset)
    fitted = cross_fit(table, recipe, keep_all=False, threads=1)
    for group, values in zip(groups, read.predict(groups), strict=True):
        number = table.task_ids.index(group.task.task_id)
        assert np.allclose(
            np.sort(values), np.sort(fitted.predictions(table)[table.task == number])
        )


def test_training_twice_gives_the_same_members(made_dataset: Dataset, quick: Recipe) -> None:
    table, _ = gather(made_dataset)
    fits = [cross_fit(table, quick, keep_all=False, threads=1) for _ in range(2)]
    assert np.array_equal(*(fitted.predictions(table) for fitted in fits))


def test_a_damaged_or_absent_model_is_a_named_error(
    made_dataset: Dataset, quick: Recipe, tmp_path: Path
) -> None:
    with pytest.raises(ModelError, match="there is no model"):
        load_throughput(tmp_path / "none")
    train_throughput(made_dataset, quick, tmp_path / "model", threads=1)
    member = next((tmp_path / "model").glob("members-*/all/*"))
    member.write_bytes(b"not trees")
    with pytest.raises(ModelError):
        load_throughput(tmp_path / "model")
    (tmp_path / "model" / "manifest.json").write_bytes(b"{")
    with pytest.raises(ModelError, match="damaged"):
        load_throughput(tmp_path / "model")


def test_a_folder_that_holds_something_else_is_not_overwritten(
    made_dataset: Dataset, quick: Recipe, tmp_path: Path
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep me")
    with pytest.raises(ModelError, match="holds no model"):
        train_throughput(made_dataset, quick, tmp_path / "mine", threads=1)
    assert (tmp_path / "mine" / "notes.txt").read_text() == "keep me"


def test_the_demo_makes_one_fit_where_their_number_is_automatic() -> None:
    assert [m.seeds for m in load_recipe("throughput").models] == ["auto"] * 3 + [1, 1]
    assert [m.seeds for m in _quick_recipe("throughput").models] == [1] * 5
    assert [m.seeds for m in load_recipe("mutation").models] == [1, *["auto"] * 3, 1, 1, 3, 3]
    assert [m.seeds for m in _quick_recipe("mutation").models] == [1] * 6 + [3, 3]
