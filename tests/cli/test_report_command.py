"""``toolkit report`` as a user calls it."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from made_autotvm import write_autotvm
from typer.testing import CliRunner

from toolkit.cli.main import app
from toolkit.datasets import ingest


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory with a dataset and nothing else."""
    folder = tmp_path_factory.mktemp("work")
    write_autotvm(folder / "logs" / "log.json", [(16, 32, 7)])
    ingest([folder / "logs"], folder / "tuning" / "dataset", machine="made up")
    return folder


def test_without_options_it_finds_what_is_there(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(work)
    done = CliRunner().invoke(app, ["report"])
    assert done.exit_code == 0, done.output
    assert (work / "tuning" / "report.html").is_file()
    assert "toolkit train throughput" in done.stdout
    assert "report.html" in done.stdout


def test_json_is_one_object_with_the_summary(work: Path, tmp_path: Path) -> None:
    out = tmp_path / "deep" / "page.html"
    command = ["report", "--workspace", str(work / "tuning"), "--out", str(out), "--json"]
    done = CliRunner().invoke(app, [*command, "--figures", str(tmp_path / "figures")])
    assert done.exit_code == 0, done.output
    summary = orjson.loads(done.stdout)
    assert summary["out"] == str(out)
    assert out.is_file()
    assert {Path(path).suffix for path in summary["figures"]} == {".svg", ".png"}
    assert set(summary["missing"]) == {"throughput", "mutation", "simulations", "live"}
    assert summary["dataset"]["records"] > 0


def test_nothing_to_report_is_a_named_error(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["report", "--workspace", str(tmp_path / "none")])
    assert done.exit_code == 1
    assert "toolkit ingest" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_named_folder_that_holds_nothing_is_a_named_error(work: Path, tmp_path: Path) -> None:
    command = ["report", "--workspace", str(work / "tuning"), "--simulation", str(tmp_path)]
    done = CliRunner().invoke(app, command)
    assert (done.exit_code, "toolkit simulate" in done.stderr) == (1, True)


def test_a_dataset_without_a_record_is_no_report(tmp_path: Path) -> None:
    log = tmp_path / "bad.json"
    log.write_text('{"input": ["llvm"], "config": {}, "result": [], "version": 0.2}\n' * 50)
    runner = CliRunner()
    place = tmp_path / "tuning"
    done = runner.invoke(app, ["ingest", str(log), "--dataset", str(place / "dataset")])
    assert done.exit_code == 1 and "none of 50 lines is a record" in done.stderr
    done = runner.invoke(app, ["report", "--workspace", str(place)])
    assert done.exit_code == 1 and "nothing to report" in done.stderr
    assert not (place / "report.html").exists()
