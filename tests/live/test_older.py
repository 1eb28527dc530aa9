"""Ansor's winners, rebuilt and confirmed by the TVM that made them."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import orjson
import pytest
from typer.testing import CliRunner

from toolkit.cli.main import app
from toolkit.errors import LiveError
from toolkit.live.confirm.older import WORKER
from toolkit.live.measure.device import Device
from toolkit.live.measure.program import Program
from toolkit.live.measure.protocol import Protocol

WORKLOADS = textwrap.dedent(
    """
    from tvm import auto_scheduler, te

    @auto_scheduler.register_workload
    def small_matmul(n):
        a, b = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
        k = te.reduce_axis((0, n), name="k")
        return [a, b, te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")]
    """
)
TUNE = textwrap.dedent(
    """
    import runpy, sys
    from tvm import auto_scheduler as ansor
    runpy.run_path(sys.argv[1])
    target = "llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=core-avx2 -num-cores 1"
    task = ansor.SearchTask(func="small_matmul", args=(16,), target=target)
    policy = ansor.SketchPolicy(task, ansor.RandomModel(), verbose=0)
    options = ansor.TuningOptions(
        6, num_measures_per_round=6, verbose=0, measure_callbacks=[ansor.RecordToFile(sys.argv[2])],
        builder=ansor.LocalBuilder(timeout=120), runner=ansor.LocalRunner(timeout=120),
    )
    task.tune(options, policy)
    """
)


def test_an_interpreter_without_ansor_is_named_with_its_reason(tmp_path: Path) -> None:
    settings = {"workloads": []}
    command = [sys.executable, "-c", "import sys; sys.modules['tvm'] = None\n" + _source()]
    with (
        Device("llvm", Protocol(), command=command, settings=settings) as device,
        pytest.raises(LiveError, match=r"did not start.*tvm"),
    ):
        device.measure(Program("x", "{}", [], 0))


def _source() -> str:
    return WORKER.read_text(encoding="utf-8").replace("from __future__ import annotations", "")


def test_the_worker_is_a_script_for_an_old_python_without_this_toolkit() -> None:
    source = WORKER.read_text(encoding="utf-8")
    assert "import toolkit" not in source and "from toolkit" not in source
    assert "match " not in source and ":=" not in source


def test_mistakes_end_with_one_line(tmp_path: Path) -> None:
    log = tmp_path / "log.json"
    log.write_text(
        '{"i": [["[\\"small_matmul\\", 16]", "llvm"], [[], []]], '
        '"r": [[1e-5], 0, 1, 1], "v": "v0.2"}\n'
    )
    dataset = str(tmp_path / "dataset")
    assert CliRunner().invoke(app, ["ingest", str(log), "--dataset", dataset]).exit_code == 0
    for options, word in (
        ([], "--tvm-python"),
        (["--tvm-python", str(tmp_path / "none")], "no such file"),
    ):
        done = CliRunner().invoke(app, ["validate", "--dataset", dataset, *options])
        assert done.exit_code == 1 and word in " ".join(done.stderr.split())


@pytest.mark.skipif(
    "TOOLKIT_ANSOR_PYTHON" not in os.environ,
    reason="TOOLKIT_ANSOR_PYTHON names no interpreter with a TVM that has Ansor",
)
def test_ansor_records_are_rebuilt_and_confirmed_by_their_own_tvm(tmp_path: Path) -> None:
    python = os.environ["TOOLKIT_ANSOR_PYTHON"]
    workloads, log = tmp_path / "workloads.py", tmp_path / "logs" / "log.json"
    log.parent.mkdir()
    workloads.write_text(WORKLOADS)
    made = [python, "-c", TUNE, str(workloads), str(log)]
    subprocess.run(made, check=True, capture_output=True, timeout=500)
    dataset = str(tmp_path / "dataset")
    assert CliRunner().invoke(app, ["ingest", str(log), "--dataset", dataset]).exit_code == 0
    command = ["validate", "--dataset", dataset, "--tvm-python", python, "--seconds", "5"]
    command += ["--workloads", str(workloads), "--top", "3", "--out", str(tmp_path / "v"), "--json"]
    done = CliRunner().invoke(app, command)
    printed = orjson.loads(done.stdout)
    assert done.exit_code == (0 if printed["better"] else 3), done.output
    (verdict,) = printed["verdicts"]
    assert verdict["screened"] >= 2 and verdict["rejected"] == []
    assert set(map(len, verdict["readings_s"].values())) == {verdict["blocks"]}
    assert verdict["winner_from"] == "record"
    assert verdict["slowed_by"] > 0
