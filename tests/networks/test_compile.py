"""A compiled network says what was tuned in it, computes what it should, and runs by itself."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import orjson
import pytest

from toolkit.errors import LiveError
from toolkit.live.confirm.rules import Judgement
from toolkit.live.space.database import DatabaseWriter
from toolkit.networks import unmeasured
from toolkit.networks.codegen.library import LIBRARY, coverage_of
from toolkit.networks.codegen.objects import ObjectFiles
from toolkit.networks.codegen.storage import APART
from toolkit.networks.compare import (
    alone_s,
    arm,
    check_outputs,
    comparison_row,
    network_protocol,
    read_alone,
    unsteady,
)
from toolkit.networks.compile import CompileResult, compile_network, tuned_target
from toolkit.networks.kernels import profile
from toolkit.networks.selection import RecordChoice, choose_in_network, read_records, scheduled
from toolkit.networks.tasks import network_of
from toolkit.progress import SILENT
from toolkit.records import TrialState
from toolkit.training.trained.models import TrainedModels

pytestmark = pytest.mark.live

QUICK = {"choose_seconds": 0.0, "seconds": 0.0}


@pytest.fixture(scope="module")
def compiled(
    model_file: Path, tuned: Path, target: str, tmp_path_factory: pytest.TempPathFactory
) -> CompileResult:
    return compile_network(
        network_of(str(model_file), target),
        tmp_path_factory.mktemp("compiled"),
        database=tuned,
        target=target,
        model=model_file,
        choose_seconds=1.0,
        seconds=1.0,
    )


def test_every_function_uses_its_record(compiled: CompileResult) -> None:
    assert compiled.tuned == compiled.functions > 3 and compiled.untuned == []
    assert compiled.checked_against == "onnxruntime"
    # On a busy machine it says that its processes differ, and nothing else.
    assert compiled.warnings == unsteady(compiled.processes_s)
    assert compiled.latency_s is not None and compiled.latency_s > 0
    assert compiled.latency_s in compiled.processes_s
    assert {row["against"] for row in compiled.against} >= {"onnxruntime"}
    # What computes has a row; a reshape is a view by now.
    assert len([row for row in compiled.kernels if "conv2d" in row["kernel"]]) == 2
    assert all(row["calls"] == 1 and row["seconds"] > 0 for row in compiled.kernels)
    rates = [row["gflop_per_s"] for row in compiled.kernels if "conv2d" in row["kernel"]]
    assert all(0.01 < rate < compiled.peak_gflop_per_s for rate in rates)
    written = orjson.loads((Path(compiled.out) / "network.json").read_bytes())
    assert written["tuned"] == compiled.tuned and written["threads"] == 1


def test_each_network_is_read_alone_and_what_does_not_run_has_no_latency(
    compiled: CompileResult, tmp_path: Path
) -> None:
    arms = {"good": Path(compiled.out), "absent": tmp_path / "nothing"}
    read = read_alone(
        {name: arm("tvm", path, compiled.inputs) for name, path in arms.items()},
        compiled.target,
        network_protocol(1),
        seconds=0.0,
    )
    assert read["absent"] == [] and alone_s(read["absent"]) is None
    latency = alone_s(read["good"])
    assert latency is not None and 0 < latency < 1


def test_the_latency_is_that_of_the_processes_that_nothing_disturbed() -> None:
    slow, fast = [4.5e-3, 4.4e-3, 4.6e-3], [2.6e-3, 2.5e-3, 2.7e-3]
    assert alone_s(slow[:1]) == slow[0] and alone_s([slow[0], fast[0]]) == fast[0]
    assert alone_s(slow + fast) == 2.6e-3
    assert unsteady(fast) == [] and "2.5 to 4.6 ms" in unsteady(slow + fast)[0]


def test_without_another_network_the_latency_is_read_all_the_same(
    model_file: Path, tuned: Path, target: str, tmp_path: Path
) -> None:
    result = compile_network(
        network_of(str(model_file), target),
        tmp_path / "out",
        database=tuned,
        target=target,
        against=[],
        choose_seconds=0.0,
        seconds=0.5,
    )
    assert result.latency_s is not None and result.latency_s > 0 and result.against == []


def test_no_thread_works_right_behind_what_functions_share(compiled: CompileResult) -> None:
    import tvm

    held = tvm.runtime.load_module(str(Path(compiled.out) / LIBRARY))["stats"]()
    # Tensors have two or four dimensions here; each holds 5 KB at most.
    storages = [int(size) for size in re.findall(r"shapetuple\[(\d+)\]", held)]
    assert storages and min(storages) > APART and max(storages) < APART + 2**13


def test_builds_are_read_in_turns_beside_the_first(compiled: CompileResult, tmp_path: Path) -> None:
    same = Path(compiled.out)
    first, second = profile([same, same], threads=1, seconds=0.3)
    assert {row["kernel"] for row in first} == {row["kernel"] for row in second}
    assert all(row["ratio"] == 1.0 for row in first)
    assert all(0 < row["ratio"] < 100 and row["calls"] == 1 for row in second)
    assert profile([tmp_path], threads=1, seconds=0.1) == []


@pytest.mark.parametrize("with_database", [True, False])
def test_functions_of_one_record_or_none_are_not_read_to_choose(
    with_database: bool, model_file: Path, tuned: Path, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = network_of(str(model_file), target)
    selection = read_records(graph, tuned, target) if with_database else RecordChoice({})
    asked: list[object] = []
    monkeypatch.setattr("toolkit.networks.selection.profile", lambda *given: asked.append(given))
    with ObjectFiles(target) as objects, SILENT.step("") as step:
        choose_in_network(graph, selection, target, 60.0, objects, step)
    assert asked == [] and not any(selection.chosen.values())
    assert bool(selection.records) == with_database


def test_what_another_network_left_in_the_caches_is_not_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from toolkit.networks import worker

    clock = [0.0]
    cold = iter([0.05, 0.01])

    def run() -> list[object]:
        clock[0] += next(cold, 0.002)
        return []

    monkeypatch.setattr(worker.time, "perf_counter", lambda: clock[0])
    request = {"protocol": {"min_repeat_ms": 180}}
    read = worker.NetworkBench({}).run(run, request, lambda: None)
    assert read["run_times_s"] == [pytest.approx(0.002)]


def test_it_runs_by_itself_and_computes_what_onnxruntime_does(
    compiled: CompileResult, model_file: Path, tmp_path: Path
) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    x = np.random.default_rng(5).normal(0, 2, (1, 3, 12, 12)).astype("float32")
    np.savez(tmp_path / "in.npz", x=x)
    runner = [sys.executable, str(Path(compiled.out) / "run.py")]
    done = subprocess.run(
        [*runner, "in.npz"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "outputs.npz" in done.stdout
    session = onnxruntime.InferenceSession(str(model_file), providers=["CPUExecutionProvider"])
    (wanted,) = session.run(None, {"x": x})
    got = np.load(tmp_path / "outputs.npz")["arr_0"]
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)
    done = subprocess.run(runner, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "median" in done.stdout and done.stdout.strip().endswith("ms")


def test_a_database_of_something_else_is_told(
    model_file: Path, tuned: Path, target: str, tmp_path: Path
) -> None:
    graph = network_of(str(model_file), target, layout="NCHW")
    result = compile_network(
        graph,
        tmp_path / "other",
        database=tuned,
        target=target,
        model=model_file,
        choose_seconds=0,
        seconds=0,
    )
    assert result.tuned < result.functions and result.latency_s is None
    assert f"of {result.functions} functions use" in result.warnings[0]
    with pytest.raises(LiveError, match="holds no MetaSchedule database"):
        compile_network(graph, tmp_path / "none", database=tmp_path, target=target, **QUICK)


@pytest.mark.parametrize("with_database", [True, False])
def test_functions_without_a_record_take_what_a_search_would_measure_first(
    with_database: bool, model_file: Path, tuned: Path, target: str, tmp_path: Path
) -> None:
    graph = network_of(str(model_file), target, layout="NCHW" if with_database else "NHWC")
    options = {
        "database": tuned if with_database else None,
        "target": target,
        "model": model_file,
        **QUICK,
    }
    as_they_are = compile_network(graph, tmp_path / "as they are", **options)
    result = compile_network(graph, tmp_path / "chosen", guides=TrainedModels(), **options)
    assert as_they_are.unmeasured == [] and as_they_are.untuned == result.untuned
    assert result.unmeasured == result.untuned != [] and result.tuned == as_they_are.tuned
    assert (result.tuned > 0) == with_database
    assert result.checked_against == "onnxruntime" and result.difference < 1e-5
    assert f"{len(result.untuned)} of these use a program that was not measured" in result.warnings
    assert ("no database was given" in result.warnings[0]) == (not with_database)


def test_a_program_that_builds_too_slowly_is_not_taken(
    model_file: Path, tuned: Path, target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = network_of(str(model_file), target, layout="NCHW")
    selection = read_records(graph, tuned, target)
    untuned = coverage_of(graph, scheduled(graph, selection, target)).untuned
    monkeypatch.setattr(unmeasured, "PICKS", 2)
    monkeypatch.setattr(unmeasured, "BUILD_S", 0.001)
    unmeasured.add_first_picks(graph, selection, untuned[:1], target, TrainedModels())
    assert untuned and selection.unmeasured == {}
    monkeypatch.undo()
    unmeasured.add_first_picks(graph, selection, untuned[:1], target, TrainedModels())
    assert list(selection.unmeasured) == untuned[:1]


def test_a_function_whose_programs_failed_stays_as_it_is(
    model_file: Path, tuned: Path, target: str, tmp_path: Path
) -> None:
    database = shutil.copytree(tuned, tmp_path / "database")
    with DatabaseWriter(database, target) as writer:
        index = next(record[0] for record in writer.records)
        for position, record in enumerate(writer.records):
            if record[0] == index:
                writer.condemn(position, TrialState.WRONG_ANSWER, "outputs differ")
    result = compile_network(
        network_of(str(model_file), target),
        tmp_path / "compiled",
        database=database,
        target=target,
        model=model_file,
        guides=TrainedModels(),
        **QUICK,
    )
    assert result.tuned == result.functions - 1
    assert len(result.untuned) == 1 and result.unmeasured == []


def test_a_record_that_tvm_refuses_gives_way_to_the_next(
    model_file: Path, tuned: Path, target: str, tmp_path: Path
) -> None:
    database = shutil.copytree(tuned, tmp_path / "database")
    graph = network_of(str(model_file), target)
    path = database / "database_tuning_record.json"
    index, (trace, seconds, *rest) = orjson.loads(path.read_bytes().splitlines()[0])
    trace[1].append([len(trace[0]), [1]])  # a decision of an instruction that is not there
    faster = [index, [trace, [0.9 * one for one in seconds], *rest]]
    path.write_bytes(path.read_bytes() + orjson.dumps(faster) + b"\n")
    selection = read_records(graph, database, target)
    assert [len(records) for records in selection.records.values()].count(2) == 1
    assert coverage_of(graph, scheduled(graph, selection, target)).untuned == []


def test_without_a_model_file_the_unscheduled_network_is_the_reference(
    model_file: Path, tuned: Path, target: str, tmp_path: Path
) -> None:
    graph = network_of(str(model_file), target)
    result = compile_network(graph, tmp_path, database=tuned, target=target, **QUICK)
    assert result.checked_against == "the unscheduled network"
    assert tuned_target(tuned) == target and tuned_target(tmp_path / "none") is None
    with pytest.raises(LiveError, match="reads only ONNX files"):
        compile_network(
            graph, tmp_path, database=tuned, target=target, against=["onnxruntime"], seconds=1
        )
    with pytest.raises(LiveError, match="is neither a runtime nor a compiled network"):
        compile_network(
            graph, tmp_path, database=tuned, target=target, against=["elsewhere"], seconds=1
        )


def test_a_network_is_not_compared_with_the_one_that_it_replaces(
    compiled: CompileResult,
    model_file: Path,
    target: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    out = shutil.copytree(compiled.out, tmp_path / "out")
    graph = network_of(str(model_file), target)
    with pytest.raises(LiveError, match="--against 'out' is the output folder"):
        compile_network(graph, out, database=None, target=target, against=["out"], **QUICK)


def test_a_wrong_network_does_not_take_the_place_of_another(
    compiled: CompileResult, model_file: Path, target: str, tmp_path: Path
) -> None:
    import onnx
    from onnx import numpy_helper

    out = shutil.copytree(compiled.out, tmp_path / "out")
    before = {path: path.read_bytes() for path in out.iterdir()}
    other, path = onnx.load(str(model_file)), tmp_path / "other.onnx"
    (weight,) = (one for one in other.graph.initializer if one.name == "w3")
    weight.CopyFrom(numpy_helper.from_array(-numpy_helper.to_array(weight), "w3"))
    onnx.save(other, str(path))
    graph = network_of(str(model_file), target)
    with pytest.raises(LiveError, match="the outputs of the compiled network are wrong"):
        compile_network(graph, out, database=None, target=target, model=path, **QUICK)
    assert before == {path: path.read_bytes() for path in out.iterdir()}


def test_outputs_of_another_shape_are_wrong(model_file: Path, target: str, tmp_path: Path) -> None:
    import onnx
    from onnx import numpy_helper

    other, path = onnx.load(str(model_file)), tmp_path / "other.onnx"
    (weight,) = (one for one in other.graph.initializer if one.name == "w3")
    wider = np.pad(numpy_helper.to_array(weight), [(0, 0), (0, 1)])
    weight.CopyFrom(numpy_helper.from_array(wider, "w3"))
    other.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 6
    onnx.save(other, str(path))
    graph = network_of(str(model_file), target)
    with pytest.raises(LiveError, match=r"the shape \(1, 5\), not \(1, 6\)"):
        compile_network(graph, tmp_path, database=None, target=target, model=path, **QUICK)
    assert not (tmp_path / LIBRARY).exists()


def test_it_is_told_which_of_two_networks_does_not_run(
    compiled: CompileResult, target: str, tmp_path: Path
) -> None:
    good, none = (arm("tvm", path, compiled.inputs) for path in (compiled.out, tmp_path / "none"))
    protocol = network_protocol(1)
    for pair, said in (((none, good), "the compiled network "), ((good, none), "the reference ")):
        difference, why = check_outputs(*pair, target, protocol)
        assert difference is None and why is not None and why.startswith(f"{said}does not run: ")


@pytest.mark.parametrize(
    ("interval", "floor", "verdict"),
    [
        ((1.10, 1.30), 1.01, "faster"),
        ((0.80, 0.90), 1.01, "slower"),
        ((1.005, 1.02), 1.01, "not told apart"),
        ((0.0, float("inf")), 1.01, "not told apart"),
    ],
)
def test_verdicts(interval: tuple[float, float], floor: float, verdict: str) -> None:
    judged = Judgement("onnxruntime", "undecided", 1.1, interval, floor, 6, 0.95)
    row = comparison_row(judged, {"onnxruntime": [2.0, 2.0]})
    assert row["verdict"] == verdict and row["latency_s"] == pytest.approx(2.0)
    assert (row["interval"] is None) == (interval[0] == 0)
