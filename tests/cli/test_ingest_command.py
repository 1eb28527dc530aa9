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


def test_follow_prints_until_it_is_interrupted(run, log, monkeypatch):
    import toolkit.datasets

    original = toolkit.datasets.follow

    def until_interrupted(*arguments, **options):
        yield from original(*arguments, **{**options, "rounds": 1})
        raise KeyboardInterrupt

    monkeypatch.setattr(toolkit.datasets, "follow", until_interrupted)
    result = run("ingest", "a.log", "--follow")
    assert result.exit_code == 130
    assert "3 new records" in result.stdout
    assert "best 16.0 µs after 3 records" in result.stdout
    result = run("ingest", "a.log", "--follow", "--json", "--dataset", "other")
    (line,) = result.stdout.splitlines()
    assert json.loads(line)["best"][0]["records"] == 3


def test_export(run, log, tmp_path):
    run("ingest", "a.log")
    result = run("export", "best.log", "--format", "autotvm", "--best", "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["records"] == 1
    assert json.loads((tmp_path / "best.log").read_text())["version"] == 0.2
    result = run("export", "two.log", "--format", "autotvm", "--where", "line <= 2")
    assert "2 records of 1 tasks" in result.stdout
    result = run("export", "x", "--format", "odd")
    assert (result.exit_code, "no export format" in result.stderr) == (1, True)


def test_export_takes_the_records_own_format(run, log):
    run("ingest", "a.log")
    result = run("export", "own.log", "--best", "--json")
    assert json.loads(result.stdout)["format"] == "autotvm"


def test_query_writes_files_and_shows_names_as_they_are(run, log, tmp_path):
    import polars as pl

    run("ingest", "a.log")
    sql = "SELECT record_id, run_times_s, '[/odd] [red]name' AS word FROM records"
    for suffix, read in ((".csv", pl.read_csv), (".parquet", pl.read_parquet)):
        result = run("query", sql, "--out", f"rows{suffix}")
        assert (result.exit_code, "3 rows written" in result.stdout) == (0, True)
        assert read(tmp_path / f"rows{suffix}").height == 3
    found = json.loads(run("query", sql, "--out", "rows.json", "--json").stdout)
    assert (found["count"], found["rows"], found["out"]) == (3, [], "rows.json")
    assert "[/odd] [red]name" in run("query", sql).stdout
    assert run("query", sql, "--out", "rows.xlsx").exit_code == 1


def test_lines_that_are_no_record_are_written_as_text(run, tmp_path):
    loglines.write(tmp_path / "a.log", loglines.autotvm(), b"\xff{broken")
    run("ingest", "a.log")
    for what, found in (("content", r"\xff{broken"), ("ARRAY_AGG(content)", [r"\xff{broken"])):
        sql = f"SELECT {what} AS found FROM rejected"
        assert json.loads(run("query", sql, "--json").stdout)["rows"] == [{"found": found}]
        for suffix in (".csv", ".json"):
            result = run("query", sql, "--out", f"rows{suffix}", "--force")
            assert result.exit_code == 0, result.output
        assert json.loads((tmp_path / "rows.json").read_text()) == [{"found": found}]
        assert "ff{broken" in (tmp_path / "rows.csv").read_text()
        assert run("query", sql, "--full").exit_code == 0


def test_a_file_is_no_dataset(run, log):
    result = run("describe", "--dataset", "a.log")
    assert (result.exit_code, "there is no dataset" in result.stderr) == (1, True)
    (log.parent / "dataset.json").write_text("[]")
    result = run("describe", "--dataset", ".")
    assert (result.exit_code, "not a JSON object" in result.stderr) == (1, True)


def test_query(run, log):
    run("ingest", "a.log")
    sql = "SELECT state, COUNT(*) AS n FROM records GROUP BY state"
    result = run("query", sql, "--json")
    assert json.loads(result.stdout) == {
        "columns": ["state", "n"],
        "rows": [{"state": "ok", "n": 3}],
        "count": 1,
        "out": None,
    }
    assert "ok" in run("query", sql).stdout
    assert run("query", "SELECT").exit_code == 1


def test_a_log_without_a_record_is_an_error_that_says_so(run, tmp_path):
    loglines.write(tmp_path / "bad.log", *[b"{broken"] * 3, loglines.autotvm(costs="none"))
    result = run("ingest", "bad.log")
    assert result.exit_code == 1
    assert "none of 4 lines is a record" in result.stderr
    assert "toolkit query" in result.stderr
    assert "toolkit describe" not in result.stdout


def test_a_shard_of_workloads_alone_is_no_error(run, tmp_path):
    loglines.write(tmp_path / "db" / "database_workload.json", loglines.workload())
    loglines.write(tmp_path / "db" / "database_tuning_record.json", loglines.metaschedule())
    for shard in ("1/2", "2/2"):
        name = shard.replace("/", "-of-")
        result = run("ingest", "db", "--shard", shard, "--dataset", name, "--json")
        assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["rejected"] == 1
    assert json.loads(run("merge", "1-of-2", "2-of-2", "--json").stdout)["total_records"] == 1


def test_follow_heeds_the_number_of_reading_processes(run, log, monkeypatch):
    import toolkit.datasets

    given = []

    def following(*arguments, **options):
        given.append(options["workers"])
        return iter(())

    monkeypatch.setattr(toolkit.datasets, "follow", following)
    assert run("ingest", "a.log", "--follow", "--workers", "0").exit_code == 0
    assert given == [0]
