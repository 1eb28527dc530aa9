"""``toolkit features``, ``train`` and ``evaluate`` as a user calls them."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import loglines
import orjson
import pytest
from made_autotvm import SHAPES
from made_commands import QUICK, json_of, made_workplace
from running import Running, until
from typer.testing import CliRunner

from toolkit.cli.main import app
from toolkit.show import percent
from toolkit.training import load_recipe, recipe_names


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with logs and a quick recipe."""
    monkeypatch.chdir(tmp_path)
    return made_workplace(tmp_path)


def test_each_command_finds_what_the_one_before_left(workplace: Path) -> None:
    features = json_of("features")
    assert features["extractors"][0]["extractor"] == "knobs"
    assert features["extractors"][0]["tasks"] == len(SHAPES)

    trained = json_of("train", "throughput", "--recipe", "quick.toml")
    for key in ("top1", "top5", "pairwise", "n_train_tasks", "n_test_tasks", "seconds"):
        assert isinstance(trained[key], int | float), key
    for key in ("top1_interval", "top5_interval", "pairwise_interval"):
        low, high = trained[key]
        assert low <= trained[key.removesuffix("_interval")] <= high

    judged = json_of("evaluate", "tuning/models/throughput")
    assert judged["top1"] == pytest.approx(trained["top1"])


def test_a_mutation_model_is_trained_and_judged_alike(workplace: Path) -> None:
    recipe = QUICK.replace('"throughput"', '"mutation"')
    (workplace / "quick-mutation.toml").write_text(recipe)
    trained = json_of("train", "mutation", "--recipe", "quick-mutation.toml")
    for key in ("accuracy", "gain_share", "gain_share_base_rate", "gain_share_fixed_weights"):
        low, high = trained[f"{key}_interval"]
        assert low <= trained[key] <= high, key
    for key in ("n_train_tasks", "n_test_tasks", "seconds"):
        assert isinstance(trained[key], int | float), key
    judged = json_of("evaluate", "tuning/models/mutation")
    assert judged["gain_share"] == pytest.approx(trained["gain_share"])
    printed = CliRunner().invoke(app, ["evaluate", "tuning/models/mutation"])
    assert "gain share" in printed.output


def test_a_training_says_which_models_the_log_calls_for(workplace: Path) -> None:
    lines = ('library = "lightgbm"', "rounds = 5", 'neighbourhood = "{}"')
    models = ["\n".join(("[[models]]", *lines)).format(kind) for kind in ("dense", "sparse")]
    recipe = QUICK.replace('"throughput"', '"mutation"').partition("[[models]]")[0]
    (workplace / "both.toml").write_text("\n".join((recipe, *models)))
    said = CliRunner().invoke(app, ["train", "mutation", "--recipe", "both.toml"])
    assert said.exit_code == 0, said.output
    told = " ".join(said.output.split())
    manifest = orjson.loads((workplace / "tuning/models/mutation/manifest.json").read_bytes())
    share = manifest["metrics"]["recorded_share"]
    (model,) = manifest["recipe"]["models"]
    assert 0.5 <= share <= 1 and model["neighbourhood"] == "dense"
    shown = " ".join(percent(share).split())  # a thin space stands before the sign
    assert f"{shown} of directions have a recorded neighbour" in told
    assert "models for a dense neighbourhood" in told


def test_every_bundled_recipe_fits_its_model() -> None:
    assert {"throughput", "mutation", "paper-mutation"} <= set(recipe_names())
    for name in recipe_names():
        assert load_recipe(name).kind in ("throughput", "mutation", "validity")


def test_a_family_of_operators_is_left_out_together(workplace: Path) -> None:
    loglines.write(workplace / "dense.json", *loglines.dense(60))
    command = ["train", "throughput", "--recipe", "quick.toml", "--split", "family"]
    alone = CliRunner().invoke(app, command)
    assert alone.exit_code == 1 and "--split task" in " ".join(alone.stderr.split())
    assert CliRunner().invoke(app, ["ingest", "dense.json"]).exit_code == 0
    trained = json_of(*command)
    assert trained["split"] == "family" and trained["n_folds"] == 2
    assert {name: row["n_tasks"] for name, row in trained["families"].items()} == {
        "conv": len(SHAPES),
        "matmul": 1,
    }
    assert {row["family"] for row in trained["tasks"]} == {"conv", "matmul"}
    judged = json_of("evaluate", "tuning/models/throughput")
    assert judged["families"] == trained["families"]
    shown = CliRunner().invoke(app, ["evaluate", "tuning/models/throughput"])
    assert "matmul" in shown.output
    wrong = CliRunner().invoke(app, [*command[:-1], "operator"])
    said = " ".join(wrong.output.replace("│", " ").split())
    assert wrong.exit_code == 2 and "not one of task, family, network, machine" in said


def test_without_json_it_prints_a_table(workplace: Path) -> None:
    result = CliRunner().invoke(app, ["train", "throughput", "--recipe", "quick.toml"])
    assert result.exit_code == 0, result.output
    assert "top1" in result.output
    assert "constant" in result.output


@pytest.mark.parametrize("search", [[], ["--search", "2"]])
def test_where_no_model_can_be_kept_nothing_is_fitted(workplace: Path, search: list[str]) -> None:
    before = sorted(workplace.rglob("*"))
    command = ["train", "throughput", "--recipe", "quick.toml", *search, "--out", "quick.toml/a"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 1
    assert "it is a file where a folder is needed" in " ".join(result.stderr.split())
    # No step had begun.
    assert "..." not in result.stderr and sorted(workplace.rglob("*")) == before


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["train", "throughput", "--recipe", "throughputt"], "did you mean 'throughput'"),
        (["train", "throughput", "--dataset", "nowhere"], "there is no dataset"),
        (["features", "--extractor", "knob"], "did you mean 'knobs'"),
        (["evaluate", "nowhere"], "there is no model"),
    ],
)
def test_mistakes_are_named_and_have_a_cure(
    workplace: Path, arguments: list[str], told: str
) -> None:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 1
    assert told in " ".join(result.stderr.split())
    assert "Traceback" not in result.output


def test_a_wrong_field_of_a_recipe_is_named(workplace: Path) -> None:
    (workplace / "bad.toml").write_text('kind = "throughput"\n[[models]]\nlibrary = 3\n')
    result = CliRunner().invoke(app, ["train", "throughput", "--recipe", "bad.toml"])
    assert result.exit_code == 1
    assert "models.0.library" in result.stderr


def test_an_interrupt_does_not_wait_for_the_fits(workplace: Path) -> None:
    """They take minutes; the command is gone long before, and leaves nothing by half."""
    (workplace / "long.toml").write_text(QUICK.replace("rounds = 30", "rounds = 100000"))
    running = Running("train", "throughput", "--recipe", "long.toml", cwd=workplace)
    features = workplace / "tuning" / "dataset" / "features"
    assert until(lambda: list(features.rglob("*.parquet")))
    time.sleep(2)
    running.process.send_signal(signal.SIGINT)
    _, said = running.process.communicate(timeout=60)
    assert running.process.returncode == 130
    assert "interrupted" in said
    assert not running.left()
    assert not (workplace / "tuning" / "models" / "throughput").exists()
