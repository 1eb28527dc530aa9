"""Adaptation by a few records: what it mends, and that it sees no more than these records."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import orjson
import pytest
from made_autotvm import write_autotvm
from typer.testing import CliRunner

from toolkit.cli.main import app
from toolkit.datasets import Dataset, ingest, open_dataset
from toolkit.errors import DatasetError, RecipeError
from toolkit.training import load_throughput, train_throughput
from toolkit.training.evaluate.metrics import pairwise
from toolkit.training.recipes.recipe import Recipe
from toolkit.training.tasks.adaptation import Adapted, leaves_of
from toolkit.training.tasks.transfer import evaluate_transfer

ELSEWHERE = [(48, 96, 14), (96, 48, 28), (96, 96, 7)]


def slower_unrolled(path: Path) -> None:
    """Another machine: what is unrolled or has wide tiles of channels is slow there."""
    write_autotvm(path, ELSEWHERE, noise=0.01)
    lines = []
    for line in path.read_bytes().splitlines():
        record = orjson.loads(line)
        entity = {name: value for name, _, value in record["config"]["entity"]}
        factor = 3.0 if entity["unroll_kw"] else 1.0
        factor *= 2.0 if entity["tile_oc"][1] >= 16 else 1.0
        record["result"][0] = [t * factor for t in record["result"][0]]
        lines.append(orjson.dumps(record))
    path.write_bytes(b"\n".join(lines) + b"\n")


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    folder = tmp_path_factory.mktemp("elsewhere")
    slower_unrolled(folder / "log.json")
    ingest([folder / "log.json"], folder / "dataset", machine="other")
    return open_dataset(folder / "dataset")


@pytest.fixture
def folder(made_dataset: Dataset, quick: Recipe, tmp_path: Path) -> Path:
    train_throughput(made_dataset, quick, tmp_path / "model", threads=1)
    return tmp_path / "model"


def test_records_of_the_judged_task_mend_the_prediction(folder: Path, elsewhere: Dataset) -> None:
    result = evaluate_transfer(load_throughput(folder), elsewhere, draws=2)
    assert result["records"] == [0, 16, 64]
    assert result["n_test_tasks"] == len(ELSEWHERE)
    assert result["n_leaked_tasks"] == 0
    by_number = {n: result["adapted"][n]["pairwise"] for n in ("0", "16", "64")}
    assert by_number["0"] + 0.05 < by_number["16"] < by_number["64"]
    assert result["gain"]["64"]["pairwise_interval"][0] > 0.05
    # And what was learnt elsewhere still helps.
    assert result["ahead_of_scratch"]["16"]["pairwise"] > 0
    assert "0" not in result["from_scratch"]
    # Families are named, and what has no unit is not given one.
    assert list(result["adapted"]["64"]["families"]) == ["conv"]
    assert np.isfinite(result["adapted"]["0"]["rmse"])
    assert np.isnan([result[k]["64"]["rmse"] for k in ("adapted", "from_scratch")]).all()


def test_records_of_the_machines_other_tasks_help_as_well(folder: Path, elsewhere: Dataset) -> None:
    model = load_throughput(folder)
    result = evaluate_transfer(model, elsewhere, records=[0, 64], of="machine", draws=2)
    assert result["adapted"]["64"]["pairwise"] > result["adapted"]["0"]["pairwise"] + 0.03


@pytest.mark.parametrize("method", ["residual", "both"])
def test_it_sees_what_it_is_given_and_nothing_else(
    folder: Path, elsewhere: Dataset, method: str
) -> None:
    model = load_throughput(folder)
    member = model.members["all"]
    [group, _], *_ = elsewhere.groups()
    features = model.extractor(group.task).extract(group).values
    rows = elsewhere.candidates([group.task.task_id])
    log_throughput = -np.log(rows["latency_s"].to_numpy())
    adapt = partial(Adapted, member.ensemble, method=method)
    none = np.zeros(0, dtype=np.int64)
    untouched = adapt(features[:0], log_throughput[:0], none)
    assert np.array_equal(untouched.predict(features), member.ensemble.predict(features))

    given = np.random.default_rng(0).permutation(len(features))[:40]
    one = np.zeros(40, dtype=np.int64)
    adapted = adapt(features[given], log_throughput[given], one)
    rest = np.setdiff1d(np.arange(len(features)), given)
    latency = rows["latency_s"].to_numpy()[rest]
    before = pairwise(latency, untouched.predict(features[rest]))
    assert pairwise(latency, adapted.predict(features[rest])) > before
    # A candidate's prediction does not depend on which others are asked about.
    assert np.allclose(adapted.predict(features[rest])[:5], adapted.predict(features[rest[:5]]))
    # A task's level is its own: another unit of time changes nothing.
    scaled = adapt(features[given], log_throughput[given] + 9, one)
    assert np.allclose(adapted.predict(features), scaled.predict(features))


def test_the_kernel_is_the_share_of_common_leaves(folder: Path, elsewhere: Dataset) -> None:
    model = load_throughput(folder)
    [group, _], *_ = elsewhere.groups()
    features = model.extractor(group.task).extract(group).values
    leaves = leaves_of(model.members["all"].ensemble, features)
    assert leaves.shape == (len(features), 60)
    assert len(np.unique(leaves, axis=0)) > 10


def test_mistakes_are_named(folder: Path, elsewhere: Dataset) -> None:
    model = load_throughput(folder)
    with pytest.raises(RecipeError, match="0 or more"):
        evaluate_transfer(model, elsewhere, records=[-1])
    with pytest.raises(DatasetError, match="smaller numbers of records"):
        evaluate_transfer(model, elsewhere, records=[0, 100_000])


def test_the_command_prints_it(folder: Path, elsewhere: Dataset) -> None:
    call = ["evaluate", str(folder), "--dataset", str(elsewhere.path), "--transfer", "0,16"]
    done = CliRunner().invoke(app, [*call, "--json"])
    assert done.exit_code == 0, done.output
    result = orjson.loads(done.stdout)
    assert set(result["adapted"]) == {"0", "16"}
    for metrics in result["adapted"].values():
        low, high = metrics["top1_interval"]
        assert low <= metrics["top1"] <= high
    shown = CliRunner().invoke(app, [*call, "--machine", "other"])
    assert "from scratch" in shown.output
    wrong = CliRunner().invoke(app, [*call, "--machine", "othr"])
    assert wrong.exit_code == 1
    assert "did you mean 'other'" in " ".join(wrong.stderr.split())
    assert CliRunner().invoke(app, [*call[:-1], "many"]).exit_code == 2
