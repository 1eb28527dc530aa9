"""Channels that no vector divides are padded where nothing is copied for it; outputs stay."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.networks.conftest import difference_from_onnxruntime, save_model
from toolkit.networks.graph.channels import lanes_of, padded
from toolkit.networks.graph.prepare import Graph
from toolkit.networks.tasks import network_of

pytestmark = pytest.mark.live

ODD, PADDED = 29, 32
EDGES = {"pads": [1, 1, 1, 1]}
SIX = {"kernel_shape": [2, 2], "strides": [2, 2]}

# What is done to ``a`` and ``b`` of 29 channels, both results of convolutions; whether all of them
# are padded. The last step's result, of 29 channels, is convolved again.
CASES: dict[str, tuple[list[tuple[str, list[str], dict[str, Any]]], bool]] = {
    "activation": ([("Relu", ["a"], {})], True),
    "depthwise": ([("Conv", ["a", "each"], {"group": ODD, **EDGES})], True),
    "hard swish": ([("HardSwish", ["a"], {})], True),
    "sum": ([("Add", ["a", "b"], {})], True),
    "quotient by channels": ([("Div", ["a", "by"], {})], True),
    "maximum": ([("MaxPool", ["a"], SIX)], True),
    "average": ([("AveragePool", ["a"], SIX)], True),
    "squeeze and excite": (
        [
            ("GlobalAveragePool", ["a"], {}),
            ("Conv", ["s0", "square"], {}),
            ("Sigmoid", ["s1"], {}),
            ("Mul", ["a", "s2"], {}),
        ],
        True,
    ),
    "joined": ([("Concat", ["a", "b"], {"axis": 1}), ("Conv", ["s0", "two"], {})], True),
    "joined with itself": (
        [("Concat", ["a", "a"], {"axis": 1}), ("Conv", ["s0", "two"], {})], True),
    "quotient": ([("Sigmoid", ["b"], {}), ("Div", ["a", "s0"], {})], False),
    "scaled, then activated": (
        [("Conv", ["a", "one"], {"group": ODD}), ("Relu", ["s0"], {})], True),
    "softmax": ([("Softmax", ["a"], {"axis": 1})], False),
    "mean of channels": (
        [("ReduceMean", ["a"], {"axes": [1]}), ("Add", ["a", "s0"], {})], False),
    "channels in turn": (
        [("Transpose", ["a"], {"perm": [0, 2, 1, 3]}), ("Reshape", ["s0", "shape"], {})], False),
}  # fmt: skip

ARRAYS: dict[str, Any] = {
    "w": (ODD, 3, 1, 1), "v": (ODD, 3, 1, 1), "u": (8, ODD, 1, 1), "each": (ODD, 1, 3, 3),
    "one": (ODD, 1, 1, 1), "square": (ODD, ODD, 1, 1), "two": (ODD, 2 * ODD, 1, 1),
    "by": np.linspace(1, 2, ODD, dtype="float32").reshape(1, ODD, 1, 1),
    "shape": np.int64([1, ODD, 6, 6]), "long": (256, ODD), "bias": (ODD,), "other": (256, ODD),
}  # fmt: skip


def channels_of(graph: Graph) -> set[int]:
    """Channels of what the convolutions and products write."""
    lines = graph.module["main"].script().splitlines()
    shapes = [
        re.findall(r"R\.Tensor\(\(([\d, ]+)\)", line)[-1]
        for line in lines
        if re.search(r"call_tir\((fused_)?(conv2d|matmul)", line)
    ]
    return {int(shape.rsplit(",", 1)[1]) for shape in shapes}


def network(path: Path, steps: list[Any], x: list[int], y: list[int] | None, opset: int) -> Path:
    from onnx import helper

    nodes = [helper.make_node(kind, given, [to], **more) for kind, given, to, more in steps]
    used = {one for node in nodes for one in node.input}
    arrays = {key: value for key, value in ARRAYS.items() if key in used}
    return save_model(path, nodes, arrays, x, y, opset=opset)


@pytest.mark.parametrize("name", CASES)
def test_it_is_computed_the_same(tmp_path: Path, target: str, name: str) -> None:
    between, all_padded = CASES[name]
    steps: list[Any] = [("Conv", ["x", "w"], "a", {}), ("Conv", ["x", "v"], "b", {})]
    steps += [(kind, given, f"s{at}", more) for at, (kind, given, more) in enumerate(between)]
    steps.append(("Conv", [steps[-1][2], "u"], "y", {}))
    opset = 14 if name == "hard swish" else 13
    path = network(tmp_path / "m.onnx", steps, [1, 3, 6, 6], None, opset)
    graph = network_of(str(path), target)
    assert (ODD not in channels_of(graph), PADDED in channels_of(graph)) == (all_padded, all_padded)
    assert difference_from_onnxruntime(graph, path) < 1e-6


def test_a_large_product_is_cut_at_its_end(tmp_path: Path, target: str) -> None:
    steps = [("MatMul", ["x", "long"], "m", {}), ("Add", ["m", "bias"], "y", {})]
    path = network(tmp_path / "m.onnx", steps, [1, 8, 256], [1, 8, ODD], 13)
    graph = network_of(str(path), target)
    (product,) = [one for one in graph.module.functions if "matmul" in one.name_hint]
    assert "add" in product.name_hint
    assert re.search(rf"grid\(.*\b8\b.*\b{PADDED}\b.*\b256\b", graph.module[product].script())
    assert difference_from_onnxruntime(graph, path) < 1e-6


@pytest.mark.parametrize("more", ["", "m", "z"])
def test_what_is_returned_has_the_channels_that_count(
    tmp_path: Path, target: str, more: str
) -> None:
    import onnx
    from onnx import TensorProto, helper

    steps = [("MatMul", ["x", "long"], "m", {}), ("Add", ["m", "bias"], "y", {})]
    steps += [("MatMul", ["x", "other"], "z", {})] if more == "z" else []
    path = network(tmp_path / "m.onnx", steps, [8, 256], [8, ODD], 13)
    model = onnx.load(str(path))
    second = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [8, ODD]) for name in more]
    model.graph.output.extend(second)
    onnx.save(model, str(path))
    graph = network_of(str(path), target)
    assert difference_from_onnxruntime(graph, path) < 1e-6


def test_a_result_of_little_work_stays(tmp_path: Path, target: str) -> None:
    path = network(
        tmp_path / "m.onnx", [("Conv", ["x", "w"], "y", {})], [1, 3, 6, 6], [1, ODD, 6, 6], 13
    )
    assert channels_of(network_of(str(path), target)) == {ODD}


@pytest.mark.parametrize("lanes", [1, 4, 8, 16])
def test_few_are_added_or_none(lanes: int) -> None:
    for channels in range(1, 2000):
        wanted = padded(channels, lanes)
        assert channels <= wanted <= 6 / 5 * channels
        assert wanted == channels or wanted % lanes == 0
        assert padded(wanted, lanes) == wanted
    assert [padded(one, 16) for one in (58, 116, 232, 40, 24)] == [64, 128, 240, 48, 24]
    assert [padded(one, 8) for one in (58, 116, 232, 72, 24)] == [64, 120, 240, 72, 24]


def test_vectors_are_those_of_the_processor() -> None:
    from tvm.target import Target

    lanes = {"znver3": 8, "znver4": 8, "znver5": 16, "skylake-avx512": 16, "cortex-a72": 4}
    for name, expected in lanes.items():
        triple = {"mtriple": "aarch64-linux-gnu"} if name.startswith("cortex") else {}
        assert lanes_of(Target({"kind": "llvm", "mcpu": name, **triple})) == expected
    assert lanes_of(Target({"kind": "cuda", "arch": "sm_80"})) == 1
