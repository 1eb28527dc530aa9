"""Winograd's convolutions compute what a convolution computes, and are taken where it pays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.networks.conftest import PROTOCOL, outputs, save_model
from toolkit.errors import LiveError
from toolkit.live.tune.settings import TuneSettings
from toolkit.live.tune.tune import tune
from toolkit.networks.compile import compile_network, tuned_tolerance
from toolkit.networks.graph import winograd
from toolkit.networks.graph.prepare import operators, prepare
from toolkit.networks.graph.winograd import ERRORS, Shape, with_winograd
from toolkit.networks.tasks import network_of, network_tasks, tasks_of
from toolkit.training.trained.models import TrainedModels

pytestmark = pytest.mark.live

tvm = pytest.importorskip("tvm")


def network(
    shape: tuple[int, int, int, int], filters: int, pads: list[int], after: list[str]
) -> tuple[Any, Any]:
    """A convolution in channels last with what follows it, and its weights."""
    from tvm import relax

    rng = np.random.default_rng(1)
    weight = rng.normal(0, 0.3, (3, 3, shape[3], filters)).astype("float32")
    bias = rng.normal(0, 0.5, (1, 1, 1, filters)).astype("float32")
    out = (shape[0], shape[1] + pads[0] + pads[2] - 2, shape[2] + pads[1] + pads[3] - 2, filters)
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    other = relax.Var("other", relax.TensorType(out, "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x, other]):
        with builder.dataflow():
            y = builder.emit(
                relax.op.nn.conv2d(
                    x, relax.const(weight), padding=pads, data_layout="NHWC", kernel_layout="HWIO"
                )
            )
            for step in after:
                made = {
                    "bias": lambda y: relax.op.add(y, relax.const(bias)),
                    "other": lambda y: relax.op.add(other, y),
                    "relu": relax.op.nn.relu,
                    "clip": lambda y: relax.op.clip(y, -0.5, 1.5),
                    "silu": relax.op.nn.silu,
                    "gate": lambda y: relax.op.multiply(relax.op.sigmoid(y), y),
                }[step]
                y = builder.emit(made(y))
            result = builder.emit_output(y)
        builder.emit_func_output(result)
    return builder.get(), out


@settings(max_examples=12)
@given(
    images=st.integers(1, 2),
    rows=st.integers(3, 11),
    columns=st.integers(3, 11),
    channels=st.sampled_from([4, 8, 12, 32]),
    filters=st.sampled_from([4, 16, 20]),
    pads=st.lists(st.integers(0, 1), min_size=4, max_size=4),
    after=st.permutations(["bias", "other", "relu", "clip", "silu", "gate"]),
    count=st.integers(0, 4),
    m=st.sampled_from(sorted(ERRORS)),
)
def test_it_computes_the_convolution_and_what_follows(
    images: int,
    rows: int,
    columns: int,
    channels: int,
    filters: int,
    pads: list[int],
    after: list[str],
    count: int,
    m: int,
) -> None:
    shape = (images, rows, columns, channels)
    module, out = network(shape, filters, pads, after[:count])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(winograd, "LEAST_GAIN", 0.0)
        patch.setattr(winograd, "ERRORS", {m: ERRORS[m]})
        changed = with_winograd(module, ERRORS[m], weights_in_cache=True)
    found = operators(changed)
    assert found["relax.matmul"] == 1 and found["relax.nn.conv2d"] == 0
    # What followed is done where outputs are written.
    assert set(found) == {"relax.matmul", "relax.call_tir"}
    rng = np.random.default_rng(2)
    inputs = [rng.normal(0, 1, one).astype("float32") for one in (shape, out)]
    (wanted,) = outputs(module, *inputs)
    error = np.max(np.abs(outputs(changed, *inputs)[0] - wanted)) / np.max(np.abs(wanted))
    assert error <= ERRORS[m]


def test_a_value_that_others_use_is_kept() -> None:
    from tvm import relax

    # relu(y) + y is one epilogue; its result is kept for its greatest element.
    x = relax.Var("x", relax.TensorType((1, 8, 8, 16), "float32"))
    weight = relax.const(np.ones((3, 3, 16, 16), dtype="float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(
                relax.op.nn.conv2d(
                    x, weight, padding=[1] * 4, data_layout="NHWC", kernel_layout="HWIO"
                )
            )
            z = builder.emit(relax.op.add(builder.emit(relax.op.nn.relu(y)), y))
            greatest = builder.emit(relax.op.max(z, keepdims=True))
            result = builder.emit_output(relax.op.multiply(z, greatest))
        builder.emit_func_output(result)
    module = builder.get()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(winograd, "LEAST_GAIN", 0.0)
        changed = with_winograd(module, 1e-4, weights_in_cache=True)
    left = {"relax.call_tir": 2, "relax.matmul": 1, "relax.max": 1, "relax.multiply": 1}
    assert operators(changed) == left
    inputs = np.random.default_rng(3).normal(0, 1, (1, 8, 8, 16)).astype("float32")
    (wanted,) = outputs(module, inputs)
    assert np.max(np.abs(outputs(changed, inputs)[0] - wanted)) <= 2e-4 * np.max(np.abs(wanted))


def test_what_a_tolerance_allows_and_what_it_saves() -> None:
    large = Shape(1, 56, 56, 64, 56, 56, 64, 1, 1)
    assert large.best_tile(0.0, True) is None and large.best_tile(1e-6, True) is None
    assert large.best_tile(1e-5, True) == 2 and large.best_tile(1e-4, True) == 4
    # Few channels: the transforms cost what the products save.
    assert Shape(1, 224, 224, 4, 224, 224, 8, 1, 1).best_tile(1e-4, True) is None
    # Four times the weights, which come from memory, for few outputs.
    last = Shape(1, 7, 7, 512, 7, 7, 512, 1, 1)
    assert last.best_tile(1e-4, True) == 4 and last.best_tile(1e-4, False) is None


def _model(path: Path) -> Path:
    pytest.importorskip("onnx")
    from onnx import helper

    weights = {"w1": (32, 32, 3, 3), "w2": (32, 32, 3, 3), "b": (32,)}
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Conv", ["r", "w2"], ["e"], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("Relu", ["e"], ["y"]),
    ]
    return save_model(path, nodes, weights, [1, 32, 24, 24], [1, 32, 12, 12])


def test_a_tolerance_reaches_the_compiled_network(target: str, tmp_path: Path) -> None:
    path = _model(tmp_path / "two.onnx")
    plain = network_of(str(path), target)
    assert all("matmul" not in task.name for task in network_tasks(plain, target))
    tasks = tasks_of([str(path)], target, tolerance=1e-4)
    # The convolution of stride 2 is left; transforms are no tasks.
    kinds = sorted(task.name.partition(":")[2].partition("_")[0] for task in tasks)
    assert "matmul" in "".join(kinds) and not any("winograd" in task.name for task in tasks)
    chosen = TuneSettings(
        trials=len(tasks),
        strategy="random",
        first_round=1,
        finalists=0,
        check=False,
        tolerance=1e-4,
    )
    folder = tmp_path / "tuned"
    run = {"target": target, "protocol": PROTOCOL, "guides": TrainedModels()}
    tune(tasks, folder, settings=chosen, **run)
    assert tuned_tolerance(folder) == 1e-4 and tuned_tolerance(tmp_path) == 0.0
    with pytest.raises(LiveError, match="another tolerance"):
        tune(tasks, folder, settings=TuneSettings(strategy="random", first_round=1), **run)
    graph = network_of(str(path), target, tolerance=tuned_tolerance(folder))
    result = compile_network(
        graph,
        tmp_path / "out",
        database=folder,
        target=target,
        model=path,
        choose_seconds=0,
        seconds=0,
    )
    assert result.tuned == result.functions and result.untuned == []
    assert result.checked_against == "onnxruntime"


def test_first_channels_stay_as_they_are(target: str, tmp_path: Path) -> None:
    from toolkit.networks.importing.files import load_model

    module = load_model(_model(tmp_path / "two.onnx"))
    names = [
        str(name.name_hint)
        for name in prepare(module, target, "two", "NCHW", 1e-4).module.functions
    ]
    assert not any("winograd" in name for name in names)


@pytest.mark.parametrize("m", [2, 4])
def test_operations_are_those_of_the_sums(m: int) -> None:
    matrix = winograd._OUTPUT[m]
    values = [tvm.tirx.Var(f"v{number}", "float32") for number in range(len(matrix[0]))]
    text = " ".join(str(winograd._sum(row, values)) for row in matrix)
    assert winograd._operations(matrix) == sum(text.count(f" {sign} ") for sign in "+-*")
