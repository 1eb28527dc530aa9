"""``collect`` and ``validate`` as a user runs them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import orjson
import pytest
from typer.testing import CliRunner

from toolkit.cli.exit_codes import EXIT_NOT_BETTER, EXIT_UNDECIDED
from toolkit.cli.main import app
from toolkit.datasets import open_dataset
from toolkit.live.confirm import session, validate
from toolkit.live.confirm.rules import INCUMBENT, TWIN
from toolkit.live.confirm.verdict import Confirmation, Screening
from toolkit.live.measure.program import REFUSED
from toolkit.live.measure.slowed import SLOWED
from toolkit.locks import LOCK_FILE, writing

runner = CliRunner()


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("live")
    arguments = ["collect", "--workload", "matmul:16,16,16", "--trials", "6", "--threads", "1"]
    result = runner.invoke(app, [*arguments, "--out", str(folder / "collected"), "--json"])
    assert result.exit_code == 0, result.output
    printed = orjson.loads(result.stdout)
    assert printed["records"] == 6
    assert printed["workloads"][0]["failed"] == 0
    command = ["ingest", str(folder / "collected"), "--dataset", str(folder / "dataset")]
    assert runner.invoke(app, command).exit_code == 0
    return folder


def test_validate_gives_a_verdict_that_can_be_read_back(workspace: Path) -> None:
    arguments = ["validate", "--dataset", str(workspace / "dataset"), "--seconds", "6"]
    arguments += ["--top", "2", "--strategy", "random", "--out", str(workspace / "validation")]
    result = runner.invoke(app, [*arguments, "--json"])
    printed = orjson.loads(result.stdout)
    (verdict,) = printed["verdicts"]
    # On a machine that others keep busy nothing is decided.
    otherwise = EXIT_UNDECIDED if verdict["reason"] else EXIT_NOT_BETTER
    assert result.exit_code == (0 if printed["better"] else otherwise), result.output
    assert verdict["verdict"] in ("better", "not better", "undecided")
    assert verdict["incumbent"] == "best recorded"
    assert verdict["rejected"] == []
    (blocks,) = set(map(len, verdict["readings_s"].values()))
    assert blocks == verdict.get("blocks", blocks) > 0
    assert verdict["slowed_by"] > 0
    told = [warning for warning in printed["warnings"] if warning.startswith(verdict["name"])]
    assert len(told) == (verdict["slowed_by"] > SLOWED)
    assert orjson.loads((workspace / "validation" / "verdicts.json").read_bytes()) == printed
    again = ["ingest", str(workspace / "validation"), "--dataset", str(workspace / "dataset")]
    assert runner.invoke(app, again).exit_code == 0, "what was measured is a log like any other"


def test_the_incumbent_has_a_challenger_though_the_screening_took_all_the_time(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(validate, "REFINE_SHARE", 0.01)
    readings = {name: [1e-4] * 6 for name in (INCUMBENT, TWIN)}
    monkeypatch.setattr(session, "confirm", lambda *_, **__: Confirmation(readings))
    command = ["validate", "--dataset", str(workspace / "dataset"), "--seconds", "5", "--top", "1"]
    command += ["--strategy", "random", "--out", str(tmp_path / "v"), "--json"]
    (verdict,) = orjson.loads(runner.invoke(app, command).stdout)["verdicts"]
    assert verdict["screened"] == 1 and verdict["refined"] > 0


def test_a_task_that_cannot_be_measured_costs_no_verdict_before_it(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, *_ = open_dataset(workspace / "dataset").tasks().values()
    readings = {name: [1e-4] * 6 for name in (INCUMBENT, TWIN)}
    found = [Confirmation(readings), Confirmation({INCUMBENT: [], TWIN: []})]
    refused = [{"candidate": "c", "error": "it is refused"}]
    screening = Screening(0.0, "best recorded", "b", REFUSED, {}, [("b", 1e-4)], refused)
    monkeypatch.setattr(session, "_tasks", lambda *_: [task, task])
    monkeypatch.setattr(session.Screener, "run", lambda *_: screening)
    monkeypatch.setattr(session, "confirm", lambda *_, **__: found.pop(0))
    command = ["validate", "--dataset", str(workspace / "dataset"), "--strategy", "random"]
    done = runner.invoke(app, [*command, "--out", str(tmp_path / "v")])
    assert done.exit_code == 1 and "could be measured: it is refused" in " ".join(
        done.stderr.split()
    )
    (verdict,) = orjson.loads((tmp_path / "v" / "verdicts.json").read_bytes())["verdicts"]
    assert verdict["task_id"] == task.task_id


def test_a_second_validation_is_refused_with_the_first_ones_process(
    workspace: Path, tmp_path: Path
) -> None:
    out = tmp_path / "validation"
    with writing(out):
        command = ["validate", "--dataset", str(workspace / "dataset"), "--out", str(out)]
        done = runner.invoke(app, command)
        assert done.exit_code == 1 and f"process {os.getpid()} is writing here" in done.stderr
        assert [path.name for path in out.iterdir()] == [LOCK_FILE]
    assert not out.exists(), "nothing was written"


def test_what_killed_commands_left_half_written_is_swept(workspace: Path) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    (folder,) = (path.parent for path in (workspace / "collected").rglob("collection.json"))
    left = folder / f".collection.json.{gone.pid}.tmp"
    left.write_bytes(b"half")
    arguments = ["collect", "--workload", "matmul:16,16,16", "--trials", "6", "--threads", "1"]
    again = runner.invoke(app, [*arguments, "--out", str(workspace / "collected")])
    assert again.exit_code == 0, again.output
    assert not left.exists()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            ["--tvm-python", "p", "--cores", "0", "--blocks", "0"],
            "cores, --blocks and --tvm-python",
        ),
        (["--target", "llvm", "--threads", "1", "--seed", "3"], "threads"),
    ],
)
def test_a_race_of_a_network_refuses_what_it_would_not_heed(options: list[str], told: str) -> None:
    result = runner.invoke(app, ["race", "--workload", "n.onnx", "--seconds", "60", *options])
    assert result.exit_code == 1
    assert f"(leave out --{told})" in " ".join(result.stderr.split())


def test_mistakes_end_with_one_line(workspace: Path, tmp_path: Path) -> None:
    for arguments, word in (
        (["validate", "--dataset", str(tmp_path / "none")], "dataset"),
        (["validate", "--dataset", str(workspace / "dataset"), "--task", "zzz"], "no task"),
        (["collect", "--workload", "matmull:8,8,8"], "did you mean"),
        (["collect", "--target", "no-such-kind"], "target"),
    ):
        result = runner.invoke(app, arguments)
        assert result.exit_code == 1
        assert word in " ".join(result.stderr.split())
        assert "Traceback" not in result.output
    for cores in ("a", "0,0"):
        assert runner.invoke(app, ["collect", "--cores", cores]).exit_code == 2
