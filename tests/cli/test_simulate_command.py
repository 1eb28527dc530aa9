"""``toolkit simulate``, from a log to figures."""

from __future__ import annotations

import os
from itertools import product
from pathlib import Path

import numpy as np
import orjson
import pytest
from typer.testing import CliRunner

from toolkit.cli.main import app
from toolkit.datasets import ingest

KEYS = (
    "median_evaluations_to_1pct",
    "mean_evaluations_to_1pct",
    "max_evaluations_to_1pct",
    "median_seconds_to_1pct",
    "reached_share",
    "coverage",
    "score",
    "auc",
)


def autotvm_line(
    index: int, x: int, y: int, unroll: bool, n: int, *, slower: float = 1.0, at: float = 1.6e9
) -> bytes:
    """One AutoTVM 0.2 record of a matmul whose time follows a formula."""
    seconds = (
        slower * 1e-4 * (1 + abs(x.bit_length() - 3) + 0.5 * abs(y.bit_length() - 4) + 0.3 * unroll)
    )
    entity = [["tile_x", "sp", [-1, x]], ["tile_y", "sp", [-1, y]], ["unroll", "ot", unroll]]
    tensors = [["TENSOR", [n, 64], "float32"], ["TENSOR", [64, 64], "float32"]]
    config = {"index": index, "code_hash": None, "entity": entity}
    result = [[seconds, seconds * 1.01, seconds * 0.99], 0, 1.5, at + index]
    return orjson.dumps(
        {
            "input": ["llvm -keys=cpu", "dense_nopack.x86", [*tensors, None, "float32"], {}],
            "config": config,
            "result": result,
            "version": 0.2,
            "tvm_version": "0.13.0",
        }
    )


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory in which 'toolkit ingest' has run."""
    folder = tmp_path_factory.mktemp("work")
    tiles = (1, 2, 4, 8, 16, 32)
    for task, n in enumerate((64, 128)):
        grid = product((False, True), tiles, tiles)
        lines = [autotvm_line(i, x, y, u, n) for i, (u, y, x) in enumerate(grid)]
        (folder / f"log{task}.json").write_bytes(b"\n".join(lines) + b"\n")
    ingest([folder], folder / "tuning" / "dataset", machine="test")
    return folder


def test_without_options_it_finds_the_dataset_and_leaves_its_results(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(workspace)
    done = CliRunner().invoke(app, ["simulate", "--workers", "1", "--seeds", "2"])
    assert done.exit_code == 0, done.output
    assert "random" in done.stdout
    folder = workspace / "tuning" / "simulations" / "quick"
    assert {p.name for p in folder.iterdir()} >= {"runs.parquet", "results.parquet", "summary.json"}
    assert "model-ranked" in done.stderr  # left out, and said so: there is no model


def test_json_has_the_keys_that_others_read(workspace: Path, tmp_path: Path) -> None:
    command = ["simulate", "--dataset", str(workspace / "tuning" / "dataset"), "--json"]
    options = ["--workers", "1", "--seeds", "2", "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(app, command + options)
    assert done.exit_code == 0, done.output
    summary = orjson.loads(done.stdout)
    assert len(summary["strategies"]) >= 5
    for label, row in summary["strategies"].items():
        assert row["strategy"] == label
        for key in KEYS:
            low, high = row[f"{key}_interval"]
            assert row[key] is None or low is None or high is None or low <= row[key] <= high
    kept = orjson.loads((tmp_path / "out" / "summary.json").read_bytes())
    assert kept["strategies"] == summary["strategies"]


def test_a_scenario_of_networks_shows_its_schedulers(workspace: Path, tmp_path: Path) -> None:
    scenario = tmp_path / "networks.toml"
    scenario.write_text(
        """
        tasks = { minimum_candidates = 10 }
        network = { round_size = 8, rounds_per_task = 3, schedulers = ["gradient", "bandit"] }
        resamples = 100
        [[strategy]]
        name = "random"
        """
    )
    command = ["simulate", "--dataset", str(workspace / "tuning" / "dataset")]
    options = ["--scenario", str(scenario), "--workers", "1", "--seeds", "2"]
    done = CliRunner().invoke(app, [*command, *options, "--out", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    assert "1 network:" in done.stdout
    assert "gradient" in done.stdout
    assert "bandit" in done.stdout


def test_a_forecast_needs_several_occasions_and_says_what_it_is(
    workspace: Path, tmp_path: Path
) -> None:
    options = ["--workers", "1", "--seeds", "2", "--forecast", "8"]
    once = ["simulate", "--dataset", str(workspace / "tuning" / "dataset"), *options]
    refused = CliRunner().invoke(app, [*once, "--out", str(tmp_path / "none")])
    assert refused.exit_code == 1
    assert "--occasions 3" in refused.stderr and "Traceback" not in refused.stderr

    rng, tiles = np.random.default_rng(0), (1, 2, 4, 8, 16, 32)
    lines = [
        autotvm_line(i, x, y, u, n, slower=float(np.exp(0.05 * rng.standard_normal())), at=1e9 * at)
        for at in (1.6, 1.7, 1.8)
        for n in (64, 128)
        for i, (u, y, x) in enumerate(product((False, True), tiles, tiles))
    ]
    (tmp_path / "log.json").write_bytes(b"\n".join(lines) + b"\n")
    ingest([tmp_path / "log.json"], tmp_path / "dataset", machine="test")
    command = ["simulate", "--dataset", str(tmp_path / "dataset"), *options]
    done = CliRunner().invoke(
        app, [*command, "--out", str(tmp_path / "out")], env={"COLUMNS": "200"}
    )
    assert done.exit_code == 0, done.output
    assert "mean of 2 tasks: 90% intervals of 8 draws" in done.stdout
    found = orjson.loads((tmp_path / "out" / "summary.json").read_bytes())["forecast"]
    row = found["strategies"]["random"]
    assert f"{row['auc']:.2f} [{row['auc_interval'][0]:.2f}, " in done.stdout


def test_small_and_failed_logs_end_in_one_line_or_a_table(tmp_path: Path) -> None:
    lines = [autotvm_line(i, 1 << (i % 6), 1 << (i // 6), False, 64) for i in range(36)]
    logs = {"two": lines[:2], "whole": lines}
    failed = [orjson.loads(line) for line in lines]
    for record in failed:
        record["result"] = [[1e9], 4, 1.5, 1.6e9]
    logs["failed"] = [orjson.dumps(record) for record in failed]
    said = {}
    for name, content in logs.items():
        (tmp_path / f"{name}.json").write_bytes(b"\n".join(content) + b"\n")
        ingest([tmp_path / f"{name}.json"], tmp_path / name)
        options = ["--workers", "1", "--seeds", "1", "--out", str(tmp_path / "out" / name)]
        command = ["simulate", "--dataset", str(tmp_path / name), *options]
        said[name] = CliRunner().invoke(app, command, env={"COLUMNS": "200"})
    assert (said["failed"].exit_code, said["two"].exit_code, said["whole"].exit_code) == (1, 1, 0)
    assert "nothing to replay" in said["failed"].stderr
    assert "the largest has 2 good candidates, 30 are needed" in said["two"].stderr
    for name in ("failed", "two"):
        assert len(said[name].stderr.strip().splitlines()) == 1
    assert " [-] " in said["whole"].stdout  # one task, one seed: no interval


def test_errors_are_named(tmp_path: Path, workspace: Path) -> None:
    wrong = CliRunner().invoke(app, ["simulate", "--scenario", "quik"])
    assert (wrong.exit_code, "quick" in wrong.stderr) == (1, True)
    absent = CliRunner().invoke(app, ["simulate", "--dataset", str(tmp_path / "none")])
    assert absent.exit_code == 1
    assert "Traceback" not in absent.stderr
    model = ["simulate", "--dataset", str(workspace / "tuning" / "dataset"), "--model"]
    no_model = CliRunner().invoke(app, [*model, str(tmp_path)])
    assert (no_model.exit_code, "toolkit train" in no_model.stderr) == (1, True)
    usage = CliRunner().invoke(app, ["simulate", "--seeds", "0"])
    assert usage.exit_code == 2


def test_help_has_an_example() -> None:
    shown = CliRunner().invoke(app, ["simulate", "--help"], env={**os.environ, "COLUMNS": "200"})
    assert shown.exit_code == 0
    assert "Example" in shown.stdout


@pytest.mark.parametrize(
    "name",
    ["..", "../..", "../dataset/records", "/tmp/absolute", "a/b", ".hidden", "", "a\\n", "x" * 300],
)
def test_a_scenarios_name_is_no_path(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    text = f'name = "{name}"\n[[strategy]]\nname = "random"\n'
    (tmp_path / "mine.toml").write_text(text)
    dataset = str(workspace / "tuning" / "dataset")
    done = CliRunner().invoke(
        app, ["simulate", "--scenario", "mine.toml", "--dataset", dataset, "--workers", "1"]
    )
    assert done.exit_code == 1 and "no name for a folder" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mine.toml"]
