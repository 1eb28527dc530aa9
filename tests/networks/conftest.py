"""A small network with what importers stumble over, and its tuned database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest

from toolkit.live.measure.machine import default_target, parse_target
from toolkit.live.measure.protocol import Protocol
from toolkit.live.tune.settings import TuneSettings
from toolkit.live.tune.tune import tune
from toolkit.networks.graph.prepare import Graph
from toolkit.training.trained.models import TrainedModels

PROTOCOL = Protocol(number=1, repeat=1, min_repeat_ms=1, threads=1)


@pytest.fixture(scope="session")
def target() -> str:
    return parse_target(default_target(1))


def small_model(*, batch: int | str = 1, ir_version: int = 8) -> Any:
    """Convolution, batch norm, Clip, Dropout, Sum of three, pooling, product, softmax."""
    onnx = pytest.importorskip("onnx", reason="onnx, an optional extra, is not installed")
    pytest.importorskip("onnxruntime", reason="onnxruntime, an optional extra, is not installed")
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(0)

    def weight(name: str, *shape: int) -> Any:
        return numpy_helper.from_array(rng.normal(0, 0.5, shape).astype("float32"), name)

    weights = [
        weight("w1", 8, 3, 3, 3), weight("w2", 8, 8, 1, 1), weight("w3", 8, 5),
        *(weight(name, 8) for name in ("scale", "shift", "mean")),
        numpy_helper.from_array(np.ones(8, dtype="float32"), "var"),
        numpy_helper.from_array(np.float32(0), "low"),
        numpy_helper.from_array(np.float32(6), "high"),
    ]  # fmt: skip
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["c", "scale", "shift", "mean", "var"], ["n"]),
        helper.make_node("Clip", ["n", "low", "high"], ["r"]),
        helper.make_node("Dropout", ["r"], ["d"]),
        helper.make_node("Conv", ["d", "w2"], ["e"]),
        helper.make_node("Sum", ["d", "e", "r"], ["s"]),
        helper.make_node("GlobalAveragePool", ["s"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("MatMul", ["f", "w3"], ["m"]),
        helper.make_node("Softmax", ["m"], ["y"]),
    ]
    shape = [batch, 3, 12, 12]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
    if ir_version < 4:
        inputs += [
            helper.make_tensor_value_info(w.name, TensorProto.FLOAT, list(w.dims)) for w in weights
        ]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, 5])]
    graph = helper.make_graph(nodes, "small", inputs, outputs, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    model.ir_version = ir_version
    onnx.checker.check_model(model)
    return model


@pytest.fixture(scope="session")
def model_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = small_model()
    path = tmp_path_factory.mktemp("model") / "small.onnx"
    path.write_bytes(model.SerializeToString())
    return path


@pytest.fixture(scope="session")
def tuned(model_file: Path, target: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Database of the small network, one trial a task."""
    from toolkit.networks.tasks import tasks_of

    folder = tmp_path_factory.mktemp("tuned")
    tasks = tasks_of([str(model_file)], target)
    settings = TuneSettings(
        trials=len(tasks), strategy="random", first_round=1, finalists=0, check=False
    )
    tune(tasks, folder, target=target, protocol=PROTOCOL, settings=settings, guides=TrainedModels())
    return folder


def save_model(
    path: Path,
    nodes: list[Any],
    weights: Mapping[str, Any],
    x: Sequence[int],
    y: Sequence[int] | None,
    *,
    opset: int = 13,
) -> Path:
    """Write a model from ``x`` to ``y``, whose shape may be left out (``None``).

    ``weights`` are arrays, or shapes of random ones.
    """
    onnx = pytest.importorskip("onnx", reason="onnx, an optional extra, is not installed")
    pytest.importorskip("onnxruntime", reason="onnxruntime, an optional extra, is not installed")
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(0)
    tensors = [
        numpy_helper.from_array(
            one if isinstance(one, np.ndarray) else rng.normal(0, 0.3, one).astype("float32"), name
        )
        for name, one in weights.items()
    ]
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", x), ("y", y))
    ]
    graph = helper.make_graph(nodes, "network", ends[:1], ends[1:], tensors)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    made.ir_version = 8
    onnx.save(made, str(path))
    return path


def run_built(built: Any, *inputs: np.ndarray) -> list[np.ndarray]:
    """Run a compiled network on this CPU."""
    import tvm
    from tvm import relax

    machine = relax.VirtualMachine(built, tvm.cpu())
    returned = machine["main"](*map(tvm.runtime.tensor, inputs))
    return [one.numpy() for one in ([returned] if hasattr(returned, "numpy") else returned)]


def outputs(module: Any, *inputs: np.ndarray) -> list[np.ndarray]:
    """What a network computes. LLVM's optimisations would take longer than all the rest."""
    import tvm

    target = tvm.target.Target({"kind": "llvm", "opt-level": 0})
    return run_built(tvm.compile(module, target=target), *inputs)


def difference_from_onnxruntime(graph: Graph, model: Path, target: str | None = None) -> float:
    """By how much the outputs of a graph differ from its model file's, as a share of their range.

    Both run in this process: what ``compile`` does beside is tested with it. For a ``target`` the
    graph is built, untuned, as ``compile`` does.
    """
    import onnxruntime
    import tvm

    from toolkit.networks.codegen.library import build_library
    from toolkit.networks.codegen.objects import ObjectFiles

    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(7)
    given = {one.name: rng.normal(0, 1, one.shape).astype("f4") for one in session.get_inputs()}
    wanted = session.run(None, given)
    if target is None:
        found = outputs(graph.module, *given.values())
    else:
        with TemporaryDirectory() as folder, ObjectFiles(target) as objects:
            build_library(graph.module, target, Path(folder) / "network.so", objects)
            built = tvm.runtime.load_module(str(Path(folder) / "network.so"))
            found = run_built(built, *given.values())
    shares = [
        float(np.max(np.abs(one - exact)) / np.ptp(exact))
        for one, exact in zip(found, wanted, strict=True)
    ]
    return float(np.max(shares))  # not a number where one is
