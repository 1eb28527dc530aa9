"""Tuning: a database that TVM compiles with, networks with weights, and going on after a kill."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import orjson
import pytest
import tvm
from tvm.s_tir import meta_schedule as ms

from tests.live.conftest import PROTOCOL
from toolkit.datasets.opening import opened
from toolkit.errors import LiveError, ToolkitError
from toolkit.live.space.database import DatabaseWriter, read_collection
from toolkit.live.tune.settings import TuneSettings
from toolkit.live.tune.tune import tune
from toolkit.networks.importing.files import load_model
from toolkit.networks.tasks import tasks_of
from toolkit.records import TrialState
from toolkit.training.trained.models import TrainedModels

NETWORK = textwrap.dedent(
    """
    from tvm import relax

    def net():
        builder = relax.BlockBuilder()
        names = (("x", (8, 16)), ("v", (16, 16)), ("w", (16, 16)), ("u", (16, 8)))
        x, v, w, u = (relax.Var(name, relax.TensorType(shape, "float32")) for name, shape in names)
        with builder.function("main", [x, v, w, u]):
            with builder.dataflow():
                a = builder.emit(relax.op.nn.relu(relax.op.matmul(x, v)))
                b = builder.emit(relax.op.nn.relu(relax.op.matmul(a, w)))
                out = builder.emit_output(relax.op.matmul(b, u))
            builder.emit_func_output(out)
        return builder.get()

    WORKLOADS = {"net": net}
    """
)


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("network") / "net.py"
    file.write_text(NETWORK)
    return file


def _records(folder: Path) -> list:
    lines = (folder / "database_tuning_record.json").read_text().splitlines()
    return [orjson.loads(line) for line in lines]


def test_equal_tasks_of_a_network_are_one_with_its_weight(network: Path, target: str) -> None:
    tasks = tasks_of([str(network), "matmul:8,12,16", "matmul:8,12,16"], target)
    weights = {task.name: task.weight for task in tasks}
    assert weights.pop("matmul:8,12,16") == 2.0
    assert sorted(weights.values()) == [1.0, 2.0]


def test_relax_compiles_with_the_tuned_database(network: Path, target: str, tmp_path: Path) -> None:
    tasks = tasks_of([str(network)], target)
    settings = TuneSettings(trials=12, strategy="random", round_size=4, seed=1)
    result = tune(
        tasks, tmp_path, target=target, protocol=PROTOCOL, settings=settings, guides=TrainedModels()
    )
    assert result["trials"] == 12 and result["records"] == len(_records(tmp_path))
    assert all(row["best_latency_s"] > 0 for row in result["tasks"])
    assert result["weighted_latency_s"] == pytest.approx(
        sum(row["weight"] * row["best_latency_s"] for row in result["tasks"])
    )
    with opened(tmp_path) as dataset:
        assert {row["task_id"] for row in result["tasks"]} == set(dataset.tasks())
    scope: dict = {}
    exec(NETWORK, scope)
    module = scope["net"]()
    database = ms.database.JSONDatabase(work_dir=str(tmp_path))
    for task in tasks:
        assert database.has_workload(task.module)
    compiled = ms.relax_integration.compile_relax(
        database, module, tvm.target.Target(orjson.loads(target)), None
    )
    machine = tvm.relax.VirtualMachine(compiled, tvm.cpu())
    rng = np.random.default_rng(0)
    shapes = ((8, 16), (16, 16), (16, 16), (16, 8))
    x, v, w, u = (rng.uniform(-1, 1, shape).astype("float32") for shape in shapes)
    given = [tvm.runtime.tensor(value) for value in (x, v, w, u)]
    expected = np.maximum(np.maximum(x @ v, 0) @ w, 0) @ u
    np.testing.assert_allclose(machine["main"](*given).numpy(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("strategy", ["evolutionary", "droplet"])
def test_a_search_that_was_cut_goes_on_as_if_it_had_not_been(
    strategy: str, target: str, tmp_path: Path
) -> None:
    tasks = tasks_of(["matmul:8,12,16"], target)
    small = {"round_size": 4, "population": 16, "iterations": 1, "sampled": 8}
    options = small if strategy == "evolutionary" else {}

    def go(trials: int) -> dict:
        settings = TuneSettings(
            trials=trials,
            strategy=strategy,
            options=options,
            round_size=4,
            finalists=0,
            check=False,
        )
        return tune(
            tasks,
            tmp_path,
            target=target,
            protocol=PROTOCOL,
            settings=settings,
            guides=TrainedModels(),
        )

    go(8)
    first = (tmp_path / "database_tuning_record.json").read_bytes()
    # Killed in the middle of a batch, between a record and the line beside it.
    lines = (tmp_path / "database_trials.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "database_trials.jsonl").write_bytes(b"".join(lines[:-2]))
    result = go(16)
    again = (tmp_path / "database_tuning_record.json").read_bytes()
    kept = b"".join(first.splitlines(keepends=True)[: len(lines) - 2])
    assert again.startswith(kept), "what was measured stays as it was"
    traces = [orjson.dumps(record[1][0]) for record in _records(tmp_path)]
    assert len(set(traces)) == len(traces), "nothing is measured twice"
    refused = sum(row["failed"].get("instantiation", 0) for row in result["tasks"])
    assert result["trials"] - refused == len(traces) <= 16


@pytest.mark.chaos
def test_killed_at_random_points_loses_and_repeats_nothing(target: str, tmp_path: Path) -> None:
    code = textwrap.dedent(
        f"""
        from pathlib import Path
        from tests.live.conftest import PROTOCOL
        from toolkit.training.trained.models import TrainedModels
        from toolkit.networks.tasks import tasks_of
        from toolkit.live.tune.settings import TuneSettings
        from toolkit.live.tune.tune import tune
        target = {target!r}
        tune(
            tasks_of(["matmul:8,12,16"], target), Path({str(tmp_path)!r}), target=target,
            protocol=PROTOCOL, guides=TrainedModels(),
            settings=TuneSettings(
                trials=24, strategy="random", round_size=8, finalists=0, check=False
            ),
        )
        """
    )
    root = str(Path(__file__).parents[2])
    environment = dict(os.environ, PYTHONPATH=root)
    records = tmp_path / "database_tuning_record.json"
    kept = b""
    for kill_after in (3, 11, None):
        process = subprocess.Popen(
            [sys.executable, "-c", code], env=environment, start_new_session=True, cwd=root
        )
        while kill_after is not None and process.poll() is None:
            if records.is_file() and records.read_bytes().count(b"\n") >= kill_after:
                os.killpg(process.pid, signal.SIGKILL)
                break
            time.sleep(0.002)
        process.wait(timeout=240)
        now = records.read_bytes()
        whole = [line for line in now.splitlines(keepends=True) if line.endswith(b"\n")]
        assert b"".join(whole[: kept.count(b"\n")]) == kept
        # The last record may be without its line beside it: that one is measured again.
        kept = b"".join(whole[:-1])
    traces = [orjson.dumps(record[1][0]) for record in _records(tmp_path)]
    assert len(traces) == len(set(traces)) == 24
    assert len((tmp_path / "database_trials.jsonl").read_bytes().splitlines()) == 24


def test_another_search_in_the_same_folder_is_refused(target: str, tmp_path: Path) -> None:
    tasks = tasks_of(["matmul:8,8,8"], target)
    common = {"target": target, "protocol": PROTOCOL, "guides": TrainedModels()}
    settings = TuneSettings(trials=1, strategy="random", check=False)
    with pytest.raises(ToolkitError, match="randon"):
        tune(tasks, tmp_path, settings=replace(settings, strategy="randon"), **common)
    # A mistyped name is no search.
    tune(tasks, tmp_path, settings=settings, **common)
    with pytest.raises(LiveError, match="seed"):
        tune(tasks, tmp_path, settings=TuneSettings(trials=1, strategy="random", seed=2), **common)
    with pytest.raises(LiveError, match="budget"):
        tune(tasks, tmp_path, settings=TuneSettings(trials=None), **common)


def test_tasks_of_an_earlier_run_keep_their_names(target: str, tmp_path: Path) -> None:
    names = ["matmul:8,8,8", "matmul:8,12,16"]
    for name in (*names, names[0]):
        (task,) = tasks_of([name], target)
        with DatabaseWriter(tmp_path, target) as writer:
            entry = {"workload_index": writer.workload_index(task.module), "name": name}
            writer.describe({"tasks": [entry]})
    told = read_collection(tmp_path)["tasks"]
    assert {entry["workload_index"]: entry["name"] for entry in told} == dict(enumerate(names))
    assert len(told) == 2


def test_a_condemned_record_is_a_failure_and_the_database_still_opens(
    target: str, tmp_path: Path
) -> None:
    tasks = tasks_of(["matmul:8,12,16"], target)
    settings = TuneSettings(trials=3, strategy="random", check=False, finalists=0)
    tune(
        tasks, tmp_path, target=target, protocol=PROTOCOL, settings=settings, guides=TrainedModels()
    )
    records = tmp_path / "database_tuning_record.json"
    before = records.read_bytes()
    with DatabaseWriter(tmp_path, target) as writer:
        latencies = [np.mean(record[1][1]) for record in writer.records]
        best = int(np.argmin(latencies))
        writer.condemn(best, TrialState.WRONG_ANSWER, "outputs differ")
    # Killed, or the disk was full, between the two files: TVM would compile with it.
    records.write_bytes(before)
    with DatabaseWriter(tmp_path, target) as writer:
        assert np.mean(writer.trials[best]["searched_s"]) == latencies[best]
    database = ms.database.JSONDatabase(work_dir=str(tmp_path))
    (top,) = database.get_top_k(database.commit_workload(tasks[0].module), 1)
    second = sorted(latencies)[1]
    assert float(np.mean([float(s) for s in top.run_secs])) == pytest.approx(second)


def test_a_network_file_that_is_absent_or_needs_an_extra_is_a_named_error(tmp_path: Path) -> None:
    with pytest.raises(LiveError, match="no such file"):
        load_model(tmp_path / "none.onnx")
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"this is no protobuf")
    with pytest.raises(LiveError, match=r"pip install|cannot import"):
        load_model(broken)


def test_an_onnx_network_gives_tasks(target: str, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx", reason="onnx, an optional extra, is not installed")
    from onnx import TensorProto, helper, numpy_helper

    weight = numpy_helper.from_array(np.ones((8, 3, 3, 3), dtype="float32"), "w")
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
            helper.make_node("Relu", ["c"], ["y"]),
        ],
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 16, 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 8, 16, 16])],
        [weight],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.save(model, str(tmp_path / "small.onnx"))
    tasks = tasks_of([str(tmp_path / "small.onnx")], target)
    (task,) = [task for task in tasks if "conv2d" in task.name]
    assert task.weight == 1.0 and task.network and "relu" in task.name
