"""Two writers of one folder: the second is refused with the first one's process id."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from made_autotvm import SHAPES, write_autotvm
from made_commands import QUICK
from running import Running, here, until
from typer.testing import CliRunner

from toolkit.cli.main import app
from toolkit.datasets import ingest
from toolkit.locks import LOCK_FILE, writing

SMALL = """
seeds = 3
resamples = 100
batch_size = 16
baseline = "random"
[budget]
evaluations = 64
[[strategy]]
name = "random"
[[strategy]]
name = "genetic"
"""


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_autotvm(tmp_path / "logs" / "log.json", SHAPES[:3])
    (tmp_path / "quick.toml").write_text(QUICK)
    (tmp_path / "small.toml").write_text(SMALL)
    ingest(tmp_path / "logs", tmp_path / "tuning" / "dataset", workers=0)
    return tmp_path


@pytest.mark.parametrize("number", [0, signal.SIGKILL])
def test_the_second_simulate_is_refused_and_the_first_one_is_whole(
    workplace: Path, number: int
) -> None:
    command = ("simulate", "--scenario", "small.toml", "--workers", "2")
    out = workplace / "tuning" / "simulations" / "small"
    first = Running(*command, cwd=workplace)
    lock = out / LOCK_FILE
    assert until(lambda: lock.is_file() and lock.read_text() == str(first.process.pid))
    first.process.send_signal(signal.SIGSTOP)  # it is not done before the second one has started
    code, _, said = here(*command, cwd=workplace)
    first.process.send_signal(signal.SIGCONT)
    assert code == 1 and f"process {first.process.pid} is writing here" in said.replace("\n", " ")
    assert "Traceback" not in said
    if number:
        first.end(number)
    else:
        assert first.finish()[0] == 0
    # A lock of a process that is gone is none. One worker: another test has several.
    command = (*command[:-1], "1")
    assert here(*command, cwd=workplace)[0] == 0
    assert not first.left()
    names = {"runs.parquet", "results.parquet", "summary.json"}
    assert {path.name for path in out.iterdir()} == names
    if not number:
        return  # it was written by a run that nothing ended
    assert here(*command, "--out", "other", cwd=workplace)[0] == 0
    for name in names:
        assert (out / name).read_bytes() == (workplace / "other" / name).read_bytes()


@pytest.mark.parametrize(
    "command",
    [
        ("simulate", "--seeds", "1", "--workers", "1"),
        ("train", "throughput", "--recipe", "quick.toml"),
        ("tune", "--workload", "matmul:8,8,8", "--trials", "1"),
        ("collect", "--workload", "matmul:8,8,8", "--trials", "1"),
        ("race", "--workload", "matmul:8,8,8", "--trials", "1"),
    ],
)
def test_every_command_that_writes_into_a_folder_is_refused_while_another_does(
    workplace: Path, command: tuple[str, ...]
) -> None:
    out = workplace / "out"
    with writing(out):
        before = sorted(out.iterdir())
        done = CliRunner().invoke(app, [*command, "--out", str(out)])
        assert done.exit_code == 1 and f"process {os.getpid()} is writing" in done.stderr
        assert sorted(out.iterdir()) == before
    assert not out.exists(), "nothing was written"
