"""The commands ingest and describe, as a person and as a program call them."""

from __future__ import annotations

import json

import loglines
import pytest
from typer.testing import CliRunner

from toolkit.cli.main import app


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str):
        return CliRunner().invoke(app, list(arguments))

    return call


@pytest.fixture
def log(tmp_path):
    lines = (loglines.autotvm(index=n, timestamp=n) for n in range(3))
    return loglines.write(tmp_path / "a.log", *lines, b"{broken")


def test_ingest_for_a_program(run, log):
    result = run("ingest", "a.log", "--json")
    assert result.exit_code == 0
    report = json.loads(result.stdout)
    counts = {key: report[key] for key in ("lines", "records", "duplicates", "rejected", "sources")}
    assert counts == {"lines": 4, "records": 3, "duplicates": 0, "rejected": 1, "sources": 1}
    for key in ("seconds", "records_per_second", "peak_rss_bytes"):
        assert report[key] > 0
    assert (log.parent / "tuning" / "dataset" / "dataset.json").is_file()


def test_ingest_for_a_person(run, log):
    result = run("ingest", "a.log")
    assert result.exit_code == 0
    assert "autotvm" in result.stdout
    assert "rejected 1: not JSON" in result.stdout
    assert "toolkit describe" in result.stdout


def test_describe(run, log):
    run("ingest", "a.log", "--machine", "my box")
    result = run("describe", "--json")
    summary = json.loads(result.stdout)
    assert summary["records"] == 3
    assert summary["machines"] == [
        {"machine": "my box", "target_kind": "llvm", "records": 3, "tasks": 1}
    ]
    (task,) = summary["tasks"]
    assert task["name"].startswith("dense_nopack.x86(64x32,96x32")
    assert task["best_latency_s"] == pytest.approx(1.6e-5)
    text = run("describe").stdout
    assert "my box" in text
    assert "dense_nopack" in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["ingest", "absent.log"], "no such file"),
        (["describe", "--dataset", "absent"], "there is no dataset"),
    ],
)
def test_errors_are_told_in_one_line(run, arguments, words):
    result = run(*arguments)
    assert result.exit_code == 1
    assert words in result.stderr
    assert "Traceback" not in result.output


def test_a_foreign_file_alone_is_an_error_and_beside_logs_is_not(run, log):
    (log.parent / "notes.txt").write_text("hello\n")
    assert run("ingest", "notes.txt").exit_code == 1
    result = run("ingest", ".")
    assert result.exit_code == 0
    assert "not read" in result.stderr
