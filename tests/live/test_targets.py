"""Targets: those of the documentation are accepted, and what is not there is said."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from types import SimpleNamespace

import pytest
import tvm
from running import here
from tvm.s_tir import meta_schedule as ms

from toolkit.cli.commands.live import device
from toolkit.errors import LiveError
from toolkit.live.measure import machine
from toolkit.live.measure.machine import parse_target
from toolkit.live.measure.protocol import Protocol
from toolkit.live.space.programs import load_workload

DOCS = Path(__file__).resolve().parents[2] / "docs"


def documented() -> list[str]:
    """Targets of documented commands that this TVM is given (not an older one)."""
    found = []
    for page in sorted(DOCS.rglob("*.md")):
        for line in page.read_text(encoding="utf-8").splitlines():
            if re.match(r"\s+toolkit .*--target ", line) and "--tvm-python" not in line:
                words = shlex.split(line, comments=True)
                found.append(words[words.index("--target") + 1])
    return found


def test_documented_targets_are_accepted() -> None:
    given = [text for text in documented() if text != "cuda"]
    assert given
    for text in given:
        assert tvm.target.Target(parse_target(text)).kind.name


@pytest.mark.skipif(tvm.cuda(0).exist, reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_said_not_to_be(tmp_path: Path) -> None:
    for target, said in (
        ("cuda", "CUDA sees none"),
        ('{"kind": "cuda", "arch": "sm_86"}', "max_threads_per_block"),
    ):
        code, _, err = here("tune", "--target", target, "--trials", "1", cwd=tmp_path)
        assert code == 1 and said in err and "Traceback" not in err


def test_a_target_says_how_many_threads_its_programs_have() -> None:
    three = '{"kind": "llvm", "num-cores": 3}'
    assert device(three, None, None)[1:] == (3, ())
    assert device(three, 2, None)[1] == 2 and device(three, None, "0")[1:] == (1, (0,))
    assert device("llvm", None, None)[1] == device(None, None, None)[1] == machine.physical_cores()


def test_a_device_elsewhere_is_not_disturbed_by_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "noise_warnings", lambda _: ["cores are busy"])
    command = ("tune", "--trials", "1", "--strategy", "random")
    code, _, err = here(*command, "--device", "rpc 127.0.0.1:1 board", cwd=tmp_path)
    assert code == 1 and "no tracker answers" in " ".join(err.split())
    assert "cores are busy" not in err


@pytest.mark.parametrize(
    ("options", "limit_s"), [((), 10.0), (("--repeat", "4", "--min-repeat-ms", "5000"), 80.0)]
)
def test_readings_that_are_long_by_request_are_no_failures(
    options: tuple[str, ...], limit_s: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[float] = []

    def begun(*_: object, protocol: Protocol, **__: object) -> None:
        told.append(protocol.run_timeout_s)
        raise LiveError("it has begun")

    monkeypatch.setattr("toolkit.live.tune.tune.tune", begun)
    assert here("tune", "--trials", "1", *options, cwd=tmp_path)[0] == 1
    assert told == [limit_s]


def test_an_error_of_tvm_without_a_text_is_told_by_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError

    monkeypatch.setattr(machine, "tvm_target", fail)
    with pytest.raises(LiveError, match="RuntimeError"):
        parse_target("llvm")
    monkeypatch.setattr(ms.database, "Workload", SimpleNamespace(from_json=fail))
    with pytest.raises(LiveError, match="RuntimeError"):
        load_workload("[]")


@pytest.mark.parametrize(
    ("workload", "said"),
    [
        ("matmul:-1,0,4", "a tensor of the shape [-1, 4]"),
        ("matmul:0,1,1", "a tensor of the shape [0, 1]"),
        ("matmul:8", "its arguments are n, m, k"),
        ("matmul:99999999999999999999,1,1", "its arguments are n, m, k"),
        ("C1D:x", "0 to 3"),
        ("C2D:-1", "0 to 3"),
        ("quits.py", "SystemExit: 0"),
        ("raises.py", "ZeroDivisionError"),
        ("inside.py", "SystemExit: 0"),
        ("other.py", "has no 'main'"),
        ("numbers.py", "TypeError"),
    ],
)
def test_a_workload_that_is_none_is_one_line(tmp_path: Path, workload: str, said: str) -> None:
    (tmp_path / "quits.py").write_text("import sys\nsys.exit(0)\n")
    (tmp_path / "raises.py").write_text("1 / 0\n")
    (tmp_path / "inside.py").write_text("def f():\n    raise SystemExit(0)\nWORKLOADS = {'f': f}\n")
    (tmp_path / "other.py").write_text("import tvm\nWORKLOADS = {'f': tvm.IRModule({})}\n")
    (tmp_path / "numbers.py").write_text("WORKLOADS = {'f': 3}\n")
    for command in ("tune", "collect"):
        code, _, err = here(command, "--workload", workload, "--trials", "1", cwd=tmp_path)
        assert code == 1 and said in err and "Traceback" not in err, err
