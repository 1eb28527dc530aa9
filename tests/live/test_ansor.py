"""Ansor's winners, rebuilt and confirmed by the TVM that made them."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import orjson
import pytest
from typer.testing import CliRunner

from tests.live.older_tvm import needs_ansor
from toolkit.cli.main import app
from toolkit.errors import LiveError
from toolkit.live.confirm.ansor import WORKER
from toolkit.live.measure import serve
from toolkit.live.measure.device import Device
from toolkit.live.measure.program import Program
from toolkit.live.measure.protocol import Protocol
from toolkit.records import TrialState

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
    code = (
        "import runpy, sys; sys.modules['tvm'] = None\nrunpy.run_path(sys.argv[1], {}, '__main__')"
    )
    command = [sys.executable, "-c", code, str(WORKER)]
    with (
        Device("llvm", Protocol(), command=command, settings=settings) as device,
        pytest.raises(LiveError, match=r"did not start.*tvm"),
    ):
        device.measure(Program("x", "{}", [], 0))


RACE = Path(serve.__file__).parents[1] / "race"
SCRIPTS = [WORKER, Path(serve.__file__), RACE / "te_workloads.py", *RACE.glob("ansor_*.py")]


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_the_worker_is_a_script_for_an_old_python_without_this_toolkit(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    assert "import toolkit" not in source and "from toolkit" not in source
    assert "match " not in source and ":=" not in source
    ast.parse(source, feature_version=(3, 7))


# What 'ansor_worker.py' asks of an older TVM, for programs that add their record's number.
OLDER_TVM = """
import contextlib, json, sys, types
import numpy as np

class PlaceholderOp: pass
class Tensor:
    def __init__(self, op): self.op, self.dtype, self.shape = op, "float32", (4,)
class Array:
    def __init__(self, values, device): self.values = np.array(values)
    def numpy(self): return self.values
class Function:
    entry_name = "main"
    def __init__(self, added): self.added = added
    def __call__(self, a, b): b.values[:] = a.values + self.added
    def time_evaluator(self, name, device, **settings):
        print("noise on standard output")
        return lambda *arrays: types.SimpleNamespace(results=[1e-3] * settings["repeat"])
class Dag:
    tensors = [Tensor(PlaceholderOp()), Tensor(object())]
    def apply_steps_from_state(self, state, layout_rewrite):
        if state == "broken":
            raise RuntimeError("Traceback\\n  3: TVMFuncCall\\nTVMError: it does not fit")
        return state, self.tensors

def module(name, **content):
    made = types.ModuleType(name)
    made.__dict__.update(content)
    sys.modules[name] = made
    return made

task = types.SimpleNamespace(compute_dag=Dag(), target="llvm", layout_rewrite_option=0)
te = module("tvm.te", PlaceholderOp=PlaceholderOp, create_schedule=lambda ops: 1)
module("tvm.auto_scheduler.measure", recover_measure_input=lambda given, rebuild_state:
       types.SimpleNamespace(task=task, state=given))
module("tvm.auto_scheduler.measure_record",
       load_record_from_string=lambda line: (json.loads(line), 0))
ansor = module("tvm.auto_scheduler")
module("tvm", te=te, auto_scheduler=ansor, build=lambda added, tensors, target: Function(added),
       nd=types.SimpleNamespace(array=Array),
       target=types.SimpleNamespace(Target=lambda kind: types.SimpleNamespace(kind=kind)),
       device=lambda kind, number: types.SimpleNamespace(sync=lambda: None),
       transform=types.SimpleNamespace(PassContext=lambda opt_level: contextlib.nullcontext()))
"""


def test_the_worker_rebuilds_checks_and_times_by_what_an_older_tvm_offers(tmp_path: Path) -> None:
    (tmp_path / "workloads.py").write_text("print('noise of a file of the user')\n")
    code = OLDER_TVM + "import runpy\nrunpy.run_path(sys.argv[1], {}, '__main__')\n"
    command = [sys.executable, "-c", code, str(WORKER)]
    settings = {"workloads": [str(tmp_path / "workloads.py")]}

    def record(state: str) -> Program:
        return Program(state, state, [], 0)

    with Device("llvm", Protocol(repeat=2), command=command, settings=settings) as device:
        assert device.set_reference(record("1")).state is TrialState.OK
        assert device.check(record("1")).state is TrialState.OK
        wrong = device.check(record("2"))
        assert wrong.state is TrialState.WRONG_ANSWER and "differ" in str(wrong.error)
        broken = device.measure(record('"broken"'))
        assert broken.state is TrialState.COMPILE
        assert broken.error == "RuntimeError: TVMError: it does not fit"
        assert device.build(record("1")).state is TrialState.OK
        reading = device.measure(record("1"), keep=True)
        assert reading.run_times_s == (1e-3, 1e-3) and device._builds == 4
        assert device.measure(record("1")).state is TrialState.OK and device._builds == 4


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


@needs_ansor
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
