"""``toolkit predict`` and ``toolkit train validity`` as a user calls them."""

from __future__ import annotations

from pathlib import Path

import loglines
import polars as pl
import pytest
from made_autotvm import write_autotvm
from made_commands import QUICK, json_of
from made_failures import write_failing
from typer.testing import CliRunner

from toolkit.cli.main import app


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with logs, a dataset, and a log of a new shape."""
    monkeypatch.chdir(tmp_path)
    write_failing(tmp_path / "logs" / "log.json")
    write_autotvm(tmp_path / "new.json", [(48, 96, 14)])
    (tmp_path / "quick.toml").write_text(QUICK)
    assert CliRunner().invoke(app, ["ingest", "logs"]).exit_code == 0
    return tmp_path


def test_scores_come_out_of_what_was_trained(workplace: Path) -> None:
    json_of("train", "throughput", "--recipe", "quick.toml")
    trained = json_of("train", "validity")
    for name in ("auc", "average_precision", "calibration_error", "brier_skill"):
        low, high = trained[f"{name}_interval"]
        assert low <= high
        assert isinstance(trained[name], float)
    printed = CliRunner().invoke(app, ["evaluate", "tuning/models/validity"])
    assert "average_precision" in printed.output

    options = ("--validity", "validity", "--out", "scores.csv", "--top", "3")
    found = json_of("predict", "new.json", *options)
    assert found["model"] == "tuning/models/throughput"
    [task] = found["tasks"]
    assert [row["rank"] for row in task["top"]] == [1, 2, 3]
    assert not task["trained_on"]
    written = pl.read_csv("scores.csv")
    assert written.height == found["rows"]
    assert written["failure_probability"].is_between(0, 1).all()

    shown = CliRunner().invoke(app, ["predict", "--top", "1"])
    assert shown.exit_code == 0, shown.output
    assert "(trained on)" in shown.output
    assert "trained on 6 of 6 tasks" in " ".join(shown.stderr.split())


def test_operators_that_no_training_task_is_like_are_told(workplace: Path) -> None:
    json_of("train", "throughput", "--recipe", "quick.toml")
    loglines.write(workplace / "dense.json", *loglines.dense(9))
    warned = "1 of 1 tasks are of a family without a training task (matmul)"
    for log, told in (("dense.json", True), ("new.json", False)):
        shown = CliRunner().invoke(app, ["predict", log])
        assert shown.exit_code == 0, shown.output
        assert (warned in " ".join(shown.stderr.split())) is told


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["predict", "new.json"], "the workspace has no throughput model"),
        (["predict", "new.json", "--model", "nowhere"], "there is no model"),
        (["predict", "absent.json"], "the workspace has no throughput model"),
        (["train", "validity", "--recipe", "validty"], "did you mean 'validity'"),
    ],
)
def test_mistakes_are_named_and_have_a_cure(
    workplace: Path, arguments: list[str], told: str
) -> None:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 1
    assert told in " ".join(result.stderr.split())
    assert "Traceback" not in result.output
