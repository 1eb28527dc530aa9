"""Results are not written over data."""

from __future__ import annotations

import json
import os
import zipfile

import loglines
import pytest
from typer.testing import CliRunner

from toolkit.cli.main import app


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with a log, an archive, other files, and the dataset of the logs."""
    monkeypatch.chdir(tmp_path)
    log = loglines.write(tmp_path / "a.json", loglines.autotvm())
    with zipfile.ZipFile(tmp_path / "logs.csv", "w") as archive:
        archive.writestr("inside.log", log.read_bytes())
    (tmp_path / "notes.json").write_text("mine")
    (tmp_path / "link.json").symlink_to("a.json")
    assert run("ingest", "a.json", "logs.csv", "--dataset", "ds").exit_code == 0
    return tmp_path


def run(*arguments):
    return CliRunner().invoke(app, list(arguments))


def snapshot(folder):
    return {p: p.read_bytes() for p in folder.rglob("*") if p.is_file() and p.name != ".lock"}


QUERY = ("query", "SELECT line FROM records", "--dataset", "ds", "--out")
EXPORT = ("export", "--format", "autotvm", "--dataset", "ds")


@pytest.mark.parametrize("command", [QUERY, EXPORT])
@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("ds/dataset.json", "inside the dataset"),
        ("ds/rows.json", "inside the dataset"),
        ("ds/records/part-000009-9.parquet", "inside the dataset"),
        ("x/../ds/new/rows.csv", "inside the dataset"),
        ("a.json", "a log that the dataset was read from"),
        ("./x/../a.json", "a log that the dataset was read from"),
        ("link.json", "a log that the dataset was read from"),
        ("logs.csv", "a log that the dataset was read from"),
    ],
)
@pytest.mark.parametrize("force", [(), ("--force",)])
def test_data_are_never_written_over(here, command, target, why, force):
    before = snapshot(here)
    result = run(*command, target, *force)
    assert (result.exit_code, why in result.stderr) == (1, True)
    assert snapshot(here) == before


@pytest.mark.parametrize(
    "command",
    [
        ("train", "throughput", "--dataset", "ds"),
        ("simulate", "--dataset", "ds"),
        ("report", "--dataset", "ds"),
        ("validate", "--dataset", "ds"),
        ("collect", "--workload", "matmul:8,8,8"),
        ("tune", "--workload", "matmul:8,8,8"),
        ("race", "--workload", "matmul:8,8,8"),
        ("compile", "network.onnx"),
    ],
)
@pytest.mark.parametrize("target", ["ds", "ds/features", "x/../ds/new"])
def test_no_command_makes_its_results_inside_a_dataset(here, command, target):
    (here / "network.onnx").write_bytes(b"")
    before = snapshot(here)
    result = run(*command, "--out", target)
    assert (result.exit_code, "inside the dataset" in result.stderr) == (2, True)
    assert snapshot(here) == before


@pytest.mark.parametrize("command", [QUERY, EXPORT])
def test_other_files_are_written_over_where_it_is_asked_for(here, command):
    result = run(*command, "notes.json")
    assert (result.exit_code, "--force" in result.stderr) == (1, True)
    assert (here / "notes.json").read_text() == "mine"
    assert run(*command, "notes.json", "--force").exit_code == 0
    assert json.loads((here / "notes.json").read_text().splitlines()[0])


def test_an_export_of_many_files_writes_none_where_one_exists(here):
    assert run(*EXPORT[:2], "t4", *EXPORT[3:], "out").exit_code == 0
    before = snapshot(here / "out")
    assert run(*EXPORT[:2], "t4", *EXPORT[3:], "out").exit_code == 1
    assert snapshot(here / "out") == before
    assert run(*EXPORT[:2], "t4", *EXPORT[3:], "out", "--force").exit_code == 0


@pytest.mark.parametrize("command", [QUERY, EXPORT])
def test_what_is_no_plain_file_stays(here, command):
    os.mkfifo(here / "pipe.json")
    result = run(*command, "pipe.json", "--force")
    assert (result.exit_code, "no plain file" in result.stderr) == (1, True)
    assert (here / "pipe.json").is_fifo()
