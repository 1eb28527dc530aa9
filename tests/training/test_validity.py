"""Validity models: failures foreseen on tasks never seen, leaks, files, and what a search sees."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from made_autotvm import write_autotvm
from made_failures import write_failing
from typer.testing import CliRunner

from toolkit.cli.main import app
from toolkit.datasets import Dataset, ingest, open_dataset
from toolkit.errors import DatasetError, LeakError, RecipeError
from toolkit.progress import SILENT
from toolkit.replay import RecordedSpace, load_tables
from toolkit.replay.record.models import guides_of
from toolkit.training import (
    evaluate_model,
    load_recipe,
    load_throughput,
    load_validity,
    train_throughput,
    train_validity,
)
from toolkit.training.evaluate.validity_metrics import (
    auc,
    calibration_error,
    judge_task,
    summarize_validity,
)
from toolkit.training.recipes.recipe import ModelOptions, Recipe
from toolkit.training.table.table import align
from toolkit.training.tasks.validity import VALIDITY
from toolkit.training.trained.models import TrainedModels

MODEL = ModelOptions(library="lightgbm", objective="logistic", rounds=40, params={"num_leaves": 7})


@pytest.fixture(scope="module")
def failing(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    folder = tmp_path_factory.mktemp("failing")
    assert write_failing(folder / "log.json") > 100
    ingest([folder / "log.json"], folder / "dataset")
    return open_dataset(folder / "dataset")


@pytest.fixture
def recipe(quick: Recipe) -> Recipe:
    return quick.model_copy(update={"kind": "validity", "models": (MODEL,)})


@pytest.mark.parametrize("library", ["lightgbm", "xgboost"])
def test_failures_are_foreseen_on_tasks_never_seen(
    failing: Dataset, recipe: Recipe, tmp_path: Path, library: str
) -> None:
    model = MODEL.model_copy(update={"library": library, "params": {}})
    own = recipe.model_copy(update={"models": (model,)})
    result = train_validity(failing, own, tmp_path / "model", threads=1)
    assert result["auc"] > 0.9 > 0.5
    assert result["auc_interval"][0] <= result["auc"] <= result["auc_interval"][1]
    assert result["average_precision"] > 2 * result["average_precision_base_rate"]
    assert result["brier_skill_interval"][0] > 0.3
    assert result["calibration_error"] < 0.1
    assert result["avoided"] > 0.8
    assert result["lost"] < 0.1
    again = evaluate_model(tmp_path / "model", failing)
    assert again["n_leaked_tasks"] == 0
    for name in ("auc", "brier", "calibration_error"):
        assert again[name] == pytest.approx(result[name])


def test_what_a_search_sees_avoids_failures(
    failing: Dataset, recipe: Recipe, quick: Recipe, tmp_path: Path
) -> None:
    train_validity(failing, recipe, tmp_path / "validity", threads=1)
    train_throughput(failing, quick, tmp_path / "throughput", threads=1)
    guard, model = load_validity(tmp_path / "validity"), load_throughput(tmp_path / "throughput")
    space = RecordedSpace(next(iter(load_tables(failing).values())))
    candidates = space.candidates()
    probability = guard.for_task(space.task).failure(space, candidates)
    failed = np.array([c.decisions[space.sketches[0].knob("tile_oc").offset + 1] <= 2
                       for c in candidates])  # fmt: skip
    assert probability[failed].mean() > 0.6 > 0.2 > probability[~failed].mean()
    plain = guides_of(TrainedModels(throughput=model), space)["scorer"]
    careful = guides_of(TrainedModels(throughput=model, validity=guard), space)["scorer"]
    assert plain is not None and careful is not None
    expected = plain.score(space, candidates) + np.log(1 - probability)
    assert np.allclose(careful.score(space, candidates), expected)
    live = TrainedModels(throughput=model, validity=guard).scorer(space.task)
    assert live is not None
    assert np.allclose(live.score(space, candidates), expected)
    assert space.task.task_id not in careful.training_task_ids
    with pytest.raises(LeakError):
        members = {"all": guard.members["all"]}
        type(guard)(guard.manifest, members).for_task(space.task)


def test_a_throughput_recipe_takes_it_along(
    failing: Dataset, quick: Recipe, tmp_path: Path
) -> None:
    beside = quick.model_copy(update={"validity": "validity"})
    result = train_throughput(failing, beside, tmp_path / "model", threads=1)
    assert result["validity"]["auc"] > 0.8
    assert load_validity(tmp_path / "model" / "validity").manifest["kind"] == "validity"
    assert load_throughput(tmp_path / "model").manifest["metrics"]["top1"] == result["top1"]


def test_logs_without_failures_are_refused_before_anything_is_trained(
    quick: Recipe, tmp_path: Path
) -> None:
    write_autotvm(tmp_path / "good.json")
    ingest([tmp_path / "good.json"], tmp_path / "good")
    beside = quick.model_copy(update={"validity": "validity"})
    with pytest.raises(DatasetError, match="no candidate failed"):
        train_throughput(open_dataset(tmp_path / "good"), beside, tmp_path / "model", threads=1)
    assert not (tmp_path / "model" / "manifest.json").exists()


def test_poisoning_the_judged_task_changes_none_of_its_probabilities(
    recipe: Recipe, tmp_path: Path
) -> None:
    """A task's own failures must not reach its predictions; all others' may change."""
    found = {}
    for name, share in (("clean", 0.9), ("dirty", 0.0)):
        path = tmp_path / name / "log.json"
        write_failing(path)
        lines = path.read_bytes().splitlines()
        write_failing(path, share=share)
        changed = path.read_bytes().splitlines()
        # The last shape alone is poisoned.
        path.write_bytes(b"\n".join([*lines[:-56], *changed[-56:]]) + b"\n")
        ingest([path], tmp_path / name / "dataset")
        data = open_dataset(tmp_path / name / "dataset")
        train_validity(data, recipe, tmp_path / name / "model", threads=1)
        model = load_validity(tmp_path / name / "model")
        for group, _ in data.groups():
            task = group.task
            block = model.extractor(task).extract(group)
            member = model.for_task(task)._member
            values = member.ensemble.predict(align(block, model.columns))
            found[name, str(task.arguments[:2])] = values
    keys = sorted({key for _, key in found})
    same = [np.array_equal(found["clean", key], found["dirty", key]) for key in keys]
    assert sum(same) == 1
    assert "64" in keys[same.index(True)]


def test_metrics_are_what_they_say() -> None:
    failed = np.array([True, True, False, False, False])
    assert auc(failed, np.array([0.9, 0.8, 0.3, 0.2, 0.1])) == 1.0
    assert auc(failed, np.full(5, 0.5)) == 0.5
    assert auc(failed, np.array([0.1, 0.9, 0.5, 0.5, 0.5])) == 0.5
    assert calibration_error(failed, np.full(5, 0.4)) == pytest.approx(0.48)
    rng = np.random.default_rng(0)
    p = rng.random(20_000)
    assert calibration_error(rng.random(20_000) < p, p) < 0.02

    latency = np.array([np.nan] * 6 + [1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    probability = np.array([0.9] * 5 + [0.1] + [0.6] + [0.2] * 5)
    judged = judge_task("t", latency, probability, 0.25)
    assert (judged.failed, judged.avoided, judged.lost, judged.lost_best) == (6, 5, 1, True)
    assert judged.brier == pytest.approx(5 * 0.01 + 0.81 + 0.36 + 5 * 0.04)
    assert judged.brier_base == pytest.approx(6 * 0.75**2 + 6 * 0.25**2)
    good = judge_task("u", np.ones(9), np.full(9, 0.1), 0.25)
    summary = summarize_validity([judged, good])
    assert summary["n_test_tasks"] == 2
    assert summary["n_ranked_tasks"] == 1
    assert summary["avoided"] == pytest.approx(5 / 6)
    assert summary["lost"] == pytest.approx(1 / 15)
    # Where nothing ran there is no best candidate to be lost.
    none = judge_task("v", np.full(9, np.nan), np.full(9, 0.9), 0.25)
    assert summary["lost_best"] == summarize_validity([judged, good, none])["lost_best"]


def test_of_a_large_log_as_large_a_share_failed(failing: Dataset, recipe: Recipe) -> None:
    """Were the fastest kept, as for throughput, fewer failures would be foreseen than come."""
    small = recipe.data.model_copy(update={"table_rows": 120})
    few = VALIDITY.gather(failing, recipe.model_copy(update={"data": small}), None, SILENT).table
    whole = VALIDITY.gather(failing, recipe, None, SILENT).table
    assert len(few) < len(whole) / 2 and few.task_ids == whole.task_ids
    best = [
        [np.nanmin(table.latency_s[table.task == n]) for n in range(len(table.task_ids))]
        for table in (few, whole)
    ]
    assert sum(one > other for one, other in zip(*best, strict=True)) > len(best[0]) / 2


def test_what_other_logs_do_not_tell_is_left_out(
    made_dataset: Dataset, failing: Dataset, recipe: Recipe, tmp_path: Path
) -> None:
    train_validity(failing, recipe, tmp_path / "model", threads=1)
    write_autotvm(tmp_path / "good.json", [(48, 96, 14)])
    ingest([tmp_path / "good.json"], tmp_path / "good")
    call = ["evaluate", str(tmp_path / "model"), "--dataset"]
    shown = CliRunner().invoke(app, [*call, str(tmp_path / "good")])
    assert shown.exit_code == 0 and "nan" not in shown.output


def test_mistakes_have_a_cure(
    made_dataset: Dataset, failing: Dataset, recipe: Recipe, quick: Recipe, tmp_path: Path
) -> None:
    with pytest.raises(RecipeError, match="objective = 'logistic'"):
        train_validity(failing, quick.model_copy(update={"kind": "validity"}))
    ridge = quick.models[0].model_copy(
        update={"library": "ridge", "objective": "logistic", "params": {}}
    )
    with pytest.raises(RecipeError, match="ridge needs objective"):
        train_validity(failing, recipe.model_copy(update={"models": (ridge,)}))
    write_autotvm(tmp_path / "good.json")
    ingest([tmp_path / "good.json"], tmp_path / "good")
    with pytest.raises(DatasetError, match="no candidate failed"):
        train_validity(open_dataset(tmp_path / "good"), recipe)
    assert load_recipe("validity").kind == "validity"
