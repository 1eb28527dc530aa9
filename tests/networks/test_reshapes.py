"""Reshapes move behind elementwise operators and norms, and what is computed stays the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.networks.conftest import difference_from_onnxruntime, save_model
from toolkit.networks.graph.prepare import operators
from toolkit.networks.graph.reshapes import move_reshapes
from toolkit.networks.importing.files import load_model
from toolkit.networks.tasks import network_of

pytestmark = pytest.mark.live

OUTER, INNER = np.int64([2, 5, 6]), np.int64([10, 6])

# What stands between a reshape to (2, 5, 6) and one back to (10, 6), and what is left of both.
BETWEEN = {
    "gelu": ([("Gelu", ["a"], {})], {}, 0),
    "bias": ([("Add", ["a", "w"], {})], {"w": (6,)}, 0),
    "one number": ([("Mul", ["w", "a"], {})], {"w": (1, 1, 1)}, 0),
    "square": ([("Mul", ["a", "a"], {})], {}, 0),
    "rows": ([("Add", ["a", "w"], {})], {"w": (5, 1)}, 2),
    "images": ([("Mul", ["a", "w"], {})], {"w": (2, 1, 1)}, 2),
    "softmax": ([("Softmax", ["a"], {"axis": 2})], {}, 0),
    "softmax of rows": ([("Softmax", ["a"], {"axis": 1})], {}, 2),
    "norm": ([("LayerNormalization", ["a", "w", "b"], {"axis": 2})], {"w": (6,), "b": (6,)}, 0),
    "norm of both": ([("LayerNormalization", ["a", "w"], {"axis": 1})], {"w": (5, 6)}, 2),
    "two": ([("Erf", ["a"], {}), ("Mul", ["a", "n0"], {}), ("Relu", ["n1"], {})], {}, 0),
    "transpose": ([("Transpose", ["a"], {"perm": [1, 0, 2]})], {}, 2),
}


@pytest.mark.parametrize("name", BETWEEN)
def test_what_stands_between_is_computed_the_same(tmp_path: Path, target: str, name: str) -> None:
    from onnx import helper

    steps, weights, left = BETWEEN[name]
    nodes = [helper.make_node("Reshape", ["x", "outer"], ["a"])]
    for number, (kind, inputs, options) in enumerate(steps):
        nodes.append(helper.make_node(kind, inputs, [f"n{number}"], **options))
    nodes.append(helper.make_node("Reshape", [f"n{len(steps) - 1}", "inner"], ["c"]))
    nodes.append(helper.make_node("Neg", ["c"], ["y"]))
    arrays = {**weights, "outer": OUTER, "inner": INNER}
    path = save_model(tmp_path / "r.onnx", nodes, arrays, [10, 6], [10, 6], opset=20)
    assert operators(move_reshapes(load_model(path)))["relax.reshape"] == left
    assert difference_from_onnxruntime(network_of(str(path), target), path) < 1e-6


def test_a_transformers_layer_is_two_products_with_all_they_need(
    tmp_path: Path, target: str
) -> None:
    from onnx import helper

    weights = {"w1": (8, 16), "b1": (16,), "w2": (16, 8), "b2": (8,), "g": (8,), "h": (8,)}
    steps = [
        ("LayerNormalization", ["x", "g", "h"], "n"),
        ("MatMul", ["n", "w1"], "p"),
        ("Add", ["p", "b1"], "q"),
        ("Gelu", ["q"], "r"),
        ("MatMul", ["r", "w2"], "s"),
        ("Add", ["s", "b2"], "t"),
        ("Add", ["x", "t"], "y"),
    ]
    nodes = [helper.make_node(kind, inputs, [end]) for kind, inputs, end in steps]
    path = save_model(tmp_path / "layer.onnx", nodes, weights, [1, 6, 8], [1, 6, 8], opset=20)
    graph = network_of(str(path), target)
    names = list(map(str, graph.module.get_global_vars()))
    products = [name for name in names if "matmul" in name]
    assert len(products) == 2 and sum("erf" in name for name in products) == 1
    # Every addition is in one of them.
    assert not [name for name in names if name not in products and ("erf" in name or "add" in name)]
    assert difference_from_onnxruntime(graph, path) < 1e-6
