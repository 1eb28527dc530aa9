"""Child processes: nothing of the current folder runs in them, and none outlives its parent."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import orjson
import psutil
import pytest
from made_autotvm import write_autotvm
from made_commands import QUICK
from running import Running, toolkit, until
from traps import set_traps, sprung

from toolkit import children
from toolkit.datasets import ingest

DATASETS = Path(__file__).resolve().parents[1] / "datasets"


@pytest.fixture
def trapped(tmp_path: Path) -> Path:
    """A folder of logs with modules that say so when they are imported."""
    write_autotvm(tmp_path / "logs" / "log.json")
    (tmp_path / "quick.toml").write_text(QUICK)
    set_traps(tmp_path)
    return tmp_path


def test_the_workers_of_ingest_and_simulate_import_nothing_from_the_current_folder(
    trapped: Path,
) -> None:
    assert toolkit("ingest", "logs", "--workers", "2", cwd=trapped)[0] == 0
    assert toolkit("simulate", "--workers", "2", "--seeds", "1", cwd=trapped)[0] == 0
    assert sprung(trapped) == []


def test_the_workers_that_extract_features_import_nothing_from_the_current_folder(
    trapped: Path,
) -> None:
    folder = trapped / "small"
    folder.mkdir()
    source = next(p for p in sorted((DATASETS / "epyc-znver4-1core").iterdir()) if p.is_dir())
    for path in source.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    ingest(folder, trapped / "tuning" / "dataset", workers=0)
    code, out, err = toolkit("features", "--extractor", "per-store", "--json", cwd=trapped)
    assert code == 0, err
    assert orjson.loads(out)["extractors"][0]["candidates"] > 0, out
    assert sprung(trapped) == []


def test_an_interpreter_of_another_tvm_imports_nothing_from_the_current_folder(
    trapped: Path,
) -> None:
    script = trapped / "elsewhere" / "script.py"
    script.parent.mkdir()
    script.write_text("import random, struct, sys\nprint(sys.argv[1:])\n")
    process = children.start(
        children.python(str(script), "a", "b"), cwd=trapped, stdout=subprocess.PIPE
    )
    said, _ = process.communicate()
    assert process.returncode == 0 and said == b"['a', 'b']\n"
    assert sprung(trapped) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize(
    ("command", "workers"),
    [
        (("simulate", "--workers", "2", "--seeds", "30"), 2),
        (("tune", "--workload", "matmul:64,64,64", "--trials", "64", "--builders", "2"), 2),
    ],
)
def test_workers_end_with_a_parent_that_is_killed(
    trapped: Path, command: tuple[str, ...], workers: int, number: int
) -> None:
    ingest(trapped / "logs", trapped / "tuning" / "dataset", workers=0)
    run = Running(*command, cwd=trapped)
    assert until(lambda: len(run.processes()) >= 1 + workers)
    run.end(number)
    assert run.process.returncode == -number
    assert run.left() == []


HANGS = """
import sys
import tvm
from tvm.script import tirx as T
from toolkit.live.measure.device import Device
from toolkit.live.space.programs import checked_program
from toolkit.live.measure.protocol import Protocol

begun = sys.argv[1]

@T.prim_func(s_tir=True)
def hang(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
    T.evaluate(T.call_extern("int32", "mkdir", begun, 511))
    T.evaluate(T.call_extern("int32", "pause"))

program = checked_program(tvm.IRModule({"main": hang.with_attr("global_symbol", "main")}), 1)
with Device('{"kind": "llvm"}', Protocol(run_timeout_s=600)) as device:
    device.start()
    print(device._process.pid, flush=True)
    device.measure(program)
"""


@pytest.mark.live
def test_a_program_that_hangs_ends_with_the_parent(tmp_path: Path) -> None:
    (tmp_path / "hangs.py").write_text(HANGS)
    parent = subprocess.Popen(
        [sys.executable, str(tmp_path / "hangs.py"), str(tmp_path / "begun")],
        stdout=subprocess.PIPE,
    )
    assert parent.stdout is not None
    worker = psutil.Process(int(parent.stdout.readline()))
    # It stands in 'pause', which no Python code interrupts.
    assert until((tmp_path / "begun").exists)
    parent.kill()
    parent.communicate()
    assert until(lambda: not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE)


@pytest.mark.parametrize("number", [signal.SIGKILL, None])
def test_a_group_ends_with_its_first_process(tmp_path: Path, number: int | None) -> None:
    script = tmp_path / "first.py"
    script.write_text(
        "import subprocess, sys\n"
        "from toolkit.children import end_group_with_this\n"
        "end_group_with_this()\n"
        "print(subprocess.Popen(['sleep', '100']).pid, flush=True)\n"
        "sys.stdin.read()\n"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    first = children.start(children.python(str(script)), **pipes)
    assert first.stdin is not None and first.stdout is not None
    sleeper = psutil.Process(int(first.stdout.readline()))
    assert sleeper.is_running() and sleeper.status() != psutil.STATUS_ZOMBIE
    if number is None:
        first.stdin.close()
    else:
        first.send_signal(number)
    first.wait()
    assert until(lambda: not sleeper.is_running() or sleeper.status() == psutil.STATUS_ZOMBIE)
    children.end(first)


def test_a_child_whose_parent_is_gone_before_it_begins_does_not_begin(tmp_path: Path) -> None:
    command = children.python("toolkit.logs.read.worker")
    command[3] = "1"  # not its parent
    assert children.start(command, stdin=subprocess.DEVNULL).wait() == 1


def test_processors_are_those_that_this_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 2, 5}, raising=False)
    assert children.available_processors() == 3
    monkeypatch.delattr("os.sched_getaffinity")
    monkeypatch.setattr("os.cpu_count", lambda: None)
    assert children.available_processors() == 1
