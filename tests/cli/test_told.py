"""What a user or the system does wrong is told in one line, and nothing half written is left."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import loglines
import orjson
import pytest
from made_autotvm import write_autotvm
from made_commands import QUICK
from running import TOOLKIT, here, toolkit
from typer.testing import CliRunner

from toolkit.atomic import write_atomically
from toolkit.cli.common import PROCESSES_MAX, THREADS_MAX
from toolkit.cli.main import app
from toolkit.datasets import ingest
from toolkit.reports.html import write_page

SCENARIO = """
seeds = 2
[tasks]
minimum_candidates = 10
[[strategy]]
name = "random"
"""
# Its records need twice what the small disk has left.
TUNE = (
    *("tune", "--workload", "matmul:16,16,16", "--trials", "16", "--finalists", "0"),
    *("--min-repeat-ms", "1"),
)
TUNE += ("--min-repeat-ms", "1")


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory in which everything but the live phase has run."""
    folder = tmp_path_factory.mktemp("told")
    write_autotvm(folder / "logs" / "log.json")
    (folder / "quick.toml").write_text(QUICK)
    (folder / "mine.toml").write_text(SCENARIO)
    assert here("ingest", "logs", cwd=folder)[0] == 0
    assert here("train", "throughput", "--recipe", "quick.toml", cwd=folder)[0] == 0
    command = ("simulate", "--scenario", "mine.toml", "--workers", "1")
    assert here(*command, cwd=folder)[0] == 0
    return folder


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of records of three formats; each format's are larger than a small disk's rest."""
    folder = tmp_path_factory.mktemp("mixed")
    write_autotvm(folder / "logs" / "autotvm.json")
    lines = [loglines.ansor(timestamp=n, costs=(1e-3 + n * 1e-6,)) for n in range(100)]
    loglines.write(folder / "logs" / "ansor.json", *lines)
    loglines.write(folder / "logs" / "database_workload.json", loglines.workload())
    lines = [loglines.metaschedule(costs=(1e-3 + n * 1e-6,)) for n in range(100)]
    loglines.write(folder / "logs" / "database_tuning_record.json", *lines)
    ingest(folder / "logs", folder / "dataset", workers=0)
    return folder / "dataset"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB with little left."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("cannot mount a file system here")
    (folder / "full").write_bytes(b"0" * (2**20 - 32 * 2**10))
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def one_line(err: str) -> str:
    assert "Traceback" not in err, err
    errors = [line for line in err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, err
    return errors[0]


@pytest.mark.parametrize(
    ("command", "out"),
    [
        (("simulate", "--scenario", "mine.toml", "--workers", "1"), "sim"),
        (("simulate", "--scenario", "mine.toml", "--workers", "2"), "sim"),
        (("train", "throughput", "--recipe", "quick.toml"), "model"),
        (("report",), "report.html"),
        (TUNE, "tuned"),
    ],
)
def test_a_full_disk_is_told_with_its_cure_and_leaves_nothing_by_half(
    workplace: Path, small_disk: Path, command: tuple[str, ...], out: str
) -> None:
    # Commands that start processes have one of their own; for the others this one will do.
    run = toolkit if command is TUNE or "2" in command else here
    code, _, err = run(*command, "--out", small_disk / out, cwd=workplace)
    assert code == 1, err
    line = one_line(err)
    assert "No space left on device" in line and "free some space" in line
    assert str(small_disk / out) in line
    left = [path.name for path in small_disk.rglob("*")]
    assert not [n for n in left if n.endswith((".tmp", ".part", ".new", ".lock"))], left
    if command is TUNE:
        files = ("database_tuning_record.json", "database_trials.jsonl")
        lines = [(small_disk / out / name).read_bytes().splitlines() for name in files]
        assert all(orjson.loads(each) for each in lines[0] + lines[1])
        (small_disk / "full").unlink()
        assert here(*command, "--out", small_disk / out, cwd=workplace)[0] == 0
        kept = (small_disk / out / files[0]).read_bytes().splitlines()
        assert len(kept) == 16 and kept[: len(lines[1])] == lines[0][: len(lines[1])]


@pytest.mark.parametrize("format", ["autotvm", "ansor", "metaschedule", "t4", "kernel-tuner"])
def test_an_export_on_a_full_disk_is_told_and_leaves_no_file(
    mixed: Path, small_disk: Path, format: str
) -> None:
    to = small_disk / "exported" / "of-this"
    command = ["export", str(to), "--format", format, "--dataset", str(mixed)]
    full = CliRunner().invoke(app, command)
    assert full.exit_code == 1, full.output
    line = one_line(full.stderr)
    assert "No space left on device" in line and "make room" in line and str(to) in line
    assert [path for path in small_disk.rglob("*") if path.is_file()] == [small_disk / "full"]
    # Nothing of the first time stands in the way of the second.
    assert "exists" not in CliRunner().invoke(app, command).stderr


def test_standard_output_that_takes_nothing_is_told(workplace: Path) -> None:
    simulate = ["simulate", "--scenario", "mine.toml", "--workers", "1", "--json"]
    for command in (["describe"], simulate, ["--help"]):
        with Path("/dev/full").open("wb") as full:
            done = subprocess.run(
                [TOOLKIT, *command], cwd=workplace, stdout=full, stderr=subprocess.PIPE, check=False
            )
        assert done.returncode == 1
        assert "No space left" in one_line(done.stderr.decode())
        assert "Exception ignored" not in done.stderr.decode()


def test_a_terminal_that_knows_few_characters_is_no_reason_to_stop(workplace: Path) -> None:
    encoding = "ascii"
    label = "a \u2013 \U0001f600 [/red] [bold]"
    (workplace / "odd.toml").write_text(SCENARIO + f'label = "{label}"\n', encoding="utf-8")
    command = ("simulate", "--scenario", "odd.toml", "--workers", "1")
    code, out, err = toolkit(*command, cwd=workplace, PYTHONIOENCODING=encoding)
    assert code == 0, err
    assert "[/red]" in out.replace("\n", "") and "\\u2013" in out
    run = subprocess.run(
        [TOOLKIT, *command, "--json"],
        cwd=workplace,
        env={**os.environ, "PYTHONIOENCODING": encoding},
        capture_output=True,
        check=True,
    )
    assert list(orjson.loads(run.stdout)["strategies"]) == [label]


def test_no_columns_are_no_reason_to_print_nothing(workplace: Path) -> None:
    command = ("simulate", "--scenario", "mine.toml", "--workers", "1")
    code, out, _ = toolkit(*command, cwd=workplace, COLUMNS="0")
    assert code == 0 and "random" in out


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("simulations/mine/summary.json", b"[]"),
        ("simulations/mine/summary.json", b"{}"),
        ("simulations/mine/summary.json", b'{"scenario": [], "tasks": 3}'),
        ("simulations/mine/results.parquet", b"PAR1"),
        ("validation/verdicts.json", b"[1]"),
        ("validation/verdicts.json", b'{"verdicts": [3]}'),
        ("validation/verdicts.json", b'{"verdicts": [{}]}'),
        ("models/throughput/manifest.json", b"[]"),
    ],
)
def test_a_report_of_damaged_files_is_one_line(
    workplace: Path, tmp_path: Path, file: str, content: bytes
) -> None:
    import shutil

    shutil.copytree(workplace, tmp_path / "copy")
    path = tmp_path / "copy" / "tuning" / file
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    code, _, err = here("report", cwd=tmp_path / "copy")
    assert code == 1
    one_line(err)


@pytest.mark.parametrize(
    "command",
    [
        ("simulate", "--out", "file"),
        ("train", "throughput", "--recipe", "quick.toml", "--out", "file"),
        ("report", "--out", "file/x.html"),
        ("tune", "--out", "file", "--trials", "1"),
        ("collect", "--out", "file/x", "--trials", "1"),
        ("describe", "--dataset", "file"),
        ("simulate", "--dataset", "file"),
    ],
)
def test_a_file_where_a_folder_is_needed_is_one_line(
    workplace: Path, command: tuple[str, ...]
) -> None:
    (workplace / "file").write_text("mine")
    code, _, err = here(*command, cwd=workplace)
    assert code == 1 and "file" in one_line(err)
    assert (workplace / "file").read_text() == "mine"


def test_a_demo_without_tvm_reports_all_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_autotvm(tmp_path / "logs" / "log.json", [(16, 32, 7)])
    monkeypatch.setattr("toolkit.cli.commands.demo.DEMO_LOGS", str(tmp_path / "logs"))
    said: Any = defaultdict(float, strategies={}, comparisons={"ranking": []})
    for slow in ("training.train_throughput", "training.train_mutation", "replay.simulate"):
        monkeypatch.setattr(f"toolkit.{slow}", lambda *given, **how: said)
    monkeypatch.setattr("toolkit.compiler.installed_tvm", lambda: None)
    for name in [name for name in sys.modules if name.startswith("toolkit.live")]:
        monkeypatch.delitem(sys.modules, name)
    code, out, err = here("demo", "--json", cwd=tmp_path)
    assert code == 0, err
    assert "needs TVM" in orjson.loads(out)["live_error"]
    assert (tmp_path / "toolkit-demo" / "report.html").is_file()


@pytest.mark.parametrize("command", ["tune", "collect", "validate", "demo"])
def test_a_seed_below_zero_is_refused(tmp_path: Path, command: str) -> None:
    code, _, err = here(command, "--seed", "-1", cwd=tmp_path)
    assert code == 2 and "Traceback" not in err and "equal to 0" in err


@pytest.mark.parametrize(
    "command",
    [
        ("ingest", "logs", "--workers"),
        ("simulate", "--workers"),
        ("train", "throughput", "--threads"),
        ("train", "mutation", "--threads"),
        ("tune", "--builders"),
        ("race", "--threads"),
    ],
)
def test_more_processes_than_any_machine_has_are_refused_with_the_bound(
    command: tuple[str, ...],
) -> None:
    done = CliRunner().invoke(app, [*command, "1000000000"])
    bound = PROCESSES_MAX if command[-1] != "--threads" else THREADS_MAX
    assert done.exit_code == 2
    said = " ".join(done.stderr.split())
    assert "Traceback" not in said and f"less than or equal to {bound}" in said


def test_what_a_killed_writer_left_is_swept(workplace: Path) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    out = workplace / "tuning" / "simulations" / "mine"
    left = out / f".runs.parquet.{gone.pid}.tmp"
    left.write_bytes(b"half")
    mine, alive = out / ".notes.tmp", out / f".x.{os.getpid()}.tmp"
    mine.write_text("not the toolkit's")
    alive.write_text("of a process that is there")
    command = ("simulate", "--scenario", "mine.toml", "--workers", "1")
    assert here(*command, cwd=workplace)[0] == 0
    assert not left.exists() and mine.exists() and alive.exists()


def test_a_device_or_a_pipe_is_not_replaced_by_a_file(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="name a file"):
        write_atomically(pipe, b"page")
    assert pipe.is_fifo()


def test_a_closed_standard_output_is_no_fault_of_the_toolkit(workplace: Path) -> None:
    command = ["sh", "-c", '"$0" describe --json >&-', TOOLKIT]
    ended = subprocess.run(command, cwd=workplace, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_an_unknown_place_of_transfer_is_refused_without_transfer_too() -> None:
    given = ["evaluate", "none", "--transfer-from", "nope"]
    ended = CliRunner().invoke(app, given, env={"COLUMNS": "200"})
    assert ended.exit_code == 2 and "give task or machine" in ended.output


def test_a_title_that_is_not_utf8_is_no_reason_to_stop(tmp_path: Path) -> None:
    page = write_page("caf\udce9", tmp_path / "report.html")
    assert page.read_bytes() == b"caf\\udce9"
