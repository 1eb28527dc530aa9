"""``predict``: what it scores, with which member, and what it says of what it cannot know."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import loglines
import numpy as np
import orjson
import polars as pl
import pytest
from made_autotvm import SHAPES, write_autotvm
from made_failures import write_failing

from toolkit.datasets import Dataset, ingest, open_dataset
from toolkit.datasets.opening import opened
from toolkit.datasets.read.rows_out import write_rows
from toolkit.errors import LogError, ModelError, ToolkitError
from toolkit.training import load_throughput, load_validity, train_throughput, train_validity
from toolkit.training.recipes.recipe import ModelOptions, Recipe
from toolkit.training.tasks.prediction import predict
from toolkit.training.tasks.throughput import ThroughputModel
from toolkit.training.trained.store import read_manifest, seal

NEW = [(48, 96, 14)]


@pytest.fixture(scope="module")
def new_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of a shape that no model was trained on."""
    path = tmp_path_factory.mktemp("new") / "new.json"
    write_autotvm(path, NEW)
    return path


@pytest.fixture
def model(made_dataset: Dataset, quick: Recipe, tmp_path: Path) -> ThroughputModel:
    train_throughput(made_dataset, quick, tmp_path / "model", threads=1)
    return load_throughput(tmp_path / "model")


def test_a_log_of_a_new_task_is_ranked(model: ThroughputModel, new_log: Path) -> None:
    with opened(new_log) as dataset:
        found = predict(model, dataset)
        [[group, _]] = list(dataset.groups())
        [direct] = model.predict([group])
        candidates = dataset.candidates()
    rows, [task] = found.rows, found.tasks
    assert (task["trained_on"], task["leaked"], task["member"]) == (False, False, "all")
    assert task["coverage"] > 0.9
    assert found.unreadable == []
    assert rows.height == task["candidates"] == candidates.height
    assert rows["rank"].to_list() == list(range(1, rows.height + 1))
    assert rows["score"][0] == rows["score"].max()
    assert np.allclose(np.sort(rows["score"]), np.sort(direct))
    assert np.allclose(np.exp(rows["score"]), rows["relative_throughput"])
    assert rows["source"].unique().to_list() == [str(new_log)]
    # The line is that of the candidate's record.
    line = rows["line"][0]
    first = candidates.filter(pl.col("candidate_id") == rows["candidate_id"][0])
    assert first["latency_s"][0] == rows["latency_s"][0]
    with opened(new_log) as again:
        record = again.records().filter(pl.col("line") == line).collect()
    assert record["candidate_id"][0] == rows["candidate_id"][0]
    # A good prediction: the first pick is much faster than a typical candidate.
    assert rows["latency_s"][0] < rows["latency_s"].median()


def test_a_family_of_operators_that_the_model_never_saw_is_told(
    model: ThroughputModel, new_log: Path, tmp_path: Path
) -> None:
    loglines.write(tmp_path / "dense.json", *loglines.dense(60))
    told = []
    for log in (tmp_path / "dense.json", new_log):
        with opened(log) as dataset:
            [task] = predict(model, dataset).tasks
        told.append((task["family"], task["relatives"]))
    assert told == [("matmul", 0), ("conv", len(SHAPES))]
    for entry in model.manifest["tasks"].values():
        del entry["family"]  # as models from before have none
    with opened(new_log) as dataset:
        [task] = predict(model, dataset).tasks
    assert task["relatives"] is None


def test_training_tasks_are_flagged_and_scored_by_a_member_that_left_them_out(
    model: ThroughputModel, made_dataset: Dataset
) -> None:
    found = predict(model, made_dataset)
    assert len(found.tasks) == len(SHAPES)
    for entry in found.tasks:
        assert entry["trained_on"]
        assert not entry["leaked"]
        member = model.members[entry["member"]]
        assert entry["task_id"] not in member.training_task_ids
    assert found.rows["trained_on"].all()
    assert set(found.rows["member"]) == {f"fold-{n}" for n in range(len(SHAPES))}

    only_all = replace(model, members={"all": model.members["all"]})
    one = predict(only_all, made_dataset, task_ids=[found.tasks[0]["task_id"][:6]])
    assert [entry["leaked"] for entry in one.tasks] == [True]
    assert one.rows["member"].unique().to_list() == ["all"]


def test_a_task_that_is_asked_for_twice_is_scored_once(
    model: ThroughputModel, made_dataset: Dataset
) -> None:
    first, other, *_ = made_dataset.tasks()
    found = predict(model, made_dataset, task_ids=[first, other, first[:10]])
    assert [entry["task_id"] for entry in found.tasks] == [first, other]
    assert found.rows.height == found.rows.n_unique(["task_id", "candidate_id"])


def test_a_validity_model_adds_a_column(
    model: ThroughputModel, new_log: Path, tmp_path: Path, quick: Recipe
) -> None:
    write_failing(tmp_path / "failing.json")
    ingest([tmp_path / "failing.json"], tmp_path / "failing")
    failing = open_dataset(tmp_path / "failing")
    options = ModelOptions(library="lightgbm", objective="logistic", rounds=5)
    recipe = quick.model_copy(update={"kind": "validity", "models": (options,)})
    train_validity(failing, recipe, tmp_path / "validity", threads=1)
    with opened(new_log) as dataset:
        rows = predict(model, dataset, validity=load_validity(tmp_path / "validity")).rows
        assert "failure_probability" not in predict(model, dataset).rows.columns
    assert rows["failure_probability"].is_between(0, 1).all()


def test_a_feature_space_that_differs_is_said_or_refused(
    model: ThroughputModel, new_log: Path
) -> None:
    weights = model.manifest["importance"]
    [best] = list(weights)[:1]
    columns = [f"unknown_{name}" if name == best else name for name in model.columns]
    importance = {f"unknown_{n}" if n == best else n: w for n, w in weights.items()}
    partly = replace(
        model, manifest={**model.manifest, "columns": columns, "importance": importance}
    )
    nothing = {**model.manifest, "columns": ["a", "b"], "importance": {"a": 1.0}}
    with opened(new_log) as dataset:
        [task] = predict(partly, dataset).tasks
        assert task["coverage"] == pytest.approx(1 - weights[best] / sum(weights.values()))
        with pytest.raises(ModelError, match="no feature column"):
            predict(replace(model, manifest=nothing), dataset)
        other = {**model.manifest, "extractor": "per-store", "extractor_versions": {"per-store": 1}}
        with pytest.raises(ModelError, match="'per-store', which reads no task here"):
            predict(replace(model, manifest=other), dataset)


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".json"])
def test_rows_are_written_as_the_suffix_says(tmp_path: Path, suffix: str) -> None:
    rows = pl.DataFrame({"task_id": ["a", "b"], "score": [-0.5, None], "rank": [1, 2]})
    path = tmp_path / "deep" / f"scores{suffix}"
    write_rows(rows, path)
    read = {".parquet": pl.read_parquet, ".csv": pl.read_csv, ".json": pl.read_json}[suffix]
    assert read(path).to_dicts() == rows.to_dicts()
    with pytest.raises(ToolkitError, match="names no format"):
        write_rows(rows, tmp_path / "scores.xlsx")


def test_logs_and_datasets_are_opened_alike(
    new_log: Path, made_dataset: Dataset, tmp_path: Path
) -> None:
    with opened(made_dataset.path) as dataset:
        assert dataset.fingerprint() == made_dataset.fingerprint()
    with opened(new_log, machine="M") as dataset:
        assert [task.machine for task in dataset.tasks().values()] == ["M"]
        folder = dataset.path
    assert not folder.exists()
    with pytest.raises(LogError, match="does not exist"), opened(tmp_path / "nowhere"):
        pass


def test_a_model_of_another_extractor_version_is_refused(
    made_dataset: Dataset, quick: Recipe, tmp_path: Path
) -> None:
    train_throughput(made_dataset, quick, tmp_path / "model", threads=1)
    manifest = tmp_path / "model" / "manifest.json"
    changed = {**read_manifest(manifest.parent), "extractor_versions": {"knobs": 0}}
    manifest.write_bytes(orjson.dumps(seal(changed)))
    with pytest.raises(ModelError, match="version 0 of the extractor 'knobs'"):
        load_throughput(tmp_path / "model")


def test_ingested_twice_a_candidate_has_one_row(
    model: ThroughputModel, new_log: Path, tmp_path: Path
) -> None:
    write_autotvm(tmp_path / "both" / "again.json", NEW, occasions=2)
    ingest([tmp_path / "both"], tmp_path / "dataset")
    rows = predict(model, open_dataset(tmp_path / "dataset")).rows
    assert rows["candidate_id"].n_unique() == rows.height
