"""Products of a number of rows that no tile divides are padded, and outputs stay the same."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.networks.conftest import difference_from_onnxruntime, save_model
from toolkit.networks.graph.padding import pad_rows
from toolkit.networks.graph.prepare import Graph
from toolkit.networks.tasks import network_of

pytestmark = pytest.mark.live

ROWS, PADDED, WIDTH = 23, 24, 8
LATER = np.where(np.tri(ROWS) > 0, 0, -np.inf).astype("float32")
HEADS, FLAT = np.int64([1, ROWS, 2, WIDTH // 2]), np.int64([1, ROWS, WIDTH])

Step = tuple[str, list[str], dict[str, Any]]


def attention(*masked: Step) -> list[Step]:
    """Two heads, of ``a`` alone."""
    scores = "masked" if masked else "scores"
    return [
        ("Reshape", ["a", "heads"], {"to": "cut"}),
        ("Transpose", ["cut"], {"perm": [0, 2, 1, 3], "to": "q"}),
        ("Transpose", ["cut"], {"perm": [0, 2, 3, 1], "to": "k"}),
        ("MatMul", ["q", "k"], {"to": "scores"}),
        *masked,
        ("Softmax", [scores], {"axis": -1, "to": "p"}),
        ("MatMul", ["p", "q"], {"to": "mixed"}),
        ("Transpose", ["mixed"], {"perm": [0, 2, 1, 3], "to": "back"}),
        ("Reshape", ["back", "flat"], {}),
    ]


def norm_by(kind: str, other: str) -> tuple[list[Step], list[int]]:
    """A norm of ``a`` over its columns, and its shape: ``kind`` of two inputs makes the squares."""
    steps: list[Step] = [
        ("ReduceMean", ["a"], {"axes": [2], "to": "mean"}),
        ("Sub", ["a", "mean"], {"to": "centred"}),
        (kind, ["centred", other], {"to": "square"}),
        ("ReduceMean", ["square"], {"axes": [2], "to": "variance"}),
        ("Add", ["variance", "little"], {"to": "above"}),
        ("Sqrt", ["above"], {"to": "root"}),
        ("Div", ["centred", "root"], {}),
    ]
    return steps, [1, ROWS, WIDTH]


# What is done to ``a`` of shape (1, ROWS, WIDTH), and the shape of the result.
CASES: dict[str, tuple[list[Step], list[int]]] = {
    "nothing": ([("Relu", ["a"], {})], [1, ROWS, WIDTH]),
    "attention": (attention(), [1, ROWS, WIDTH]),
    "attention to what came before": (
        attention(("Add", ["scores", "later"], {"to": "masked"})), [1, ROWS, WIDTH]),
    "attention that skips": (
        attention(("Where", ["kept", "scores", "low"], {"to": "masked"})), [1, ROWS, WIDTH]),
    "attention to nothing": (
        attention(("Add", ["scores", "nothing"], {"to": "masked"})), [1, ROWS, WIDTH]),
    "attention to rows that came by attention": (
        [
            *attention(("Where", ["before", "scores", "never"], {"to": "masked"}))[:-3],
            ("MatMul", ["p", "q"], {"to": "once"}),
            ("MatMul", ["p", "once"], {"to": "mixed"}),
            *attention()[-2:],
        ],
        [1, ROWS, WIDTH],
    ),
    "attention to rows of one length": (
        [
            ("ReduceL2", ["rows0"], {"axes": [2], "to": "length"}),
            ("Div", ["rows0", "length"], {"to": "even"}),
            ("Transpose", ["even"], {"perm": [0, 2, 1], "to": "t"}),
            ("MatMul", ["a", "t"], {"to": "scores"}),
            ("Softmax", ["scores"], {"axis": -1, "to": "p"}),
            ("MatMul", ["p", "even"], {}),
        ],
        [1, ROWS, WIDTH],
    ),
    "weights along the other rows": (
        [
            ("Transpose", ["a"], {"perm": [0, 2, 1], "to": "t"}),
            ("MatMul", ["a", "t"], {"to": "scores"}),
            ("Softmax", ["scores"], {"axis": 1, "to": "p"}),
            ("MatMul", ["p", "a"], {}),
        ],
        [1, ROWS, WIDTH],
    ),
    "the first row": ([("Gather", ["a", "zero"], {"axis": 1})], [1, WIDTH]),
    "the other rows": ([("Slice", ["a", "from", "end", "rows"], {})], [1, ROWS - 1, WIDTH]),
    "mean of rows": ([("ReduceMean", ["a"], {"axes": [1], "keepdims": 0})], [1, WIDTH]),
    "softmax of rows": ([("Softmax", ["a"], {"axis": 1})], [1, ROWS, WIDTH]),
    "norm": norm_by("Mul", "centred"),
    "norm with powers": norm_by("Pow", "two"),
    "a quotient by rows": ([("Div", ["a", "each"], {})], [1, ROWS, WIDTH]),
    "rows mixed by weights": ([("MatMul", ["mix", "a"], {})], [1, ROWS, WIDTH]),
    "rows summed": (
        [("Transpose", ["a"], {"perm": [0, 2, 1], "to": "t"}), ("MatMul", ["t", "a"], {})],
        [1, WIDTH, WIDTH],
    ),
    "halves": (
        [
            ("Split", ["a"], {"axis": 2, "outputs": ["left", "right"]}),
            ("Mul", ["left", "right"], {}),
        ],
        [1, ROWS, WIDTH // 2],
    ),
    "halves of rows": (
        [
            ("Split", ["a", "parts"], {"axis": 1, "outputs": ["left", "right"]}),
            ("Concat", ["right", "left"], {"axis": 1}),
        ],
        [1, ROWS, WIDTH],
    ),
    "after itself": ([("Concat", ["a", "a"], {"axis": 1})], [1, 2 * ROWS, WIDTH]),
    "beside itself": ([("Concat", ["a", "pos"], {"axis": 2})], [1, ROWS, 2 * WIDTH]),
    "one row after another": ([("Reshape", ["a", "long"], {})], [1, ROWS * WIDTH]),
}  # fmt: skip
CUT = (
    "rows mixed by weights", "weights along the other rows", "one row after another",
    "attention to rows of one length",
)  # fmt: skip
"""The rows that count are cut out in the function of a product."""

ARRAYS: dict[str, Any] = {
    "before": np.tri(ROWS) > 0, "never": np.array(-np.inf, "float32"),
    "first": (1, 1, WIDTH), "pos": (1, ROWS, WIDTH), "bias": (WIDTH,), "mix": (ROWS, ROWS),
    **{f"w{number}": (WIDTH, WIDTH) for number in range(3)},
    "heads": HEADS, "flat": FLAT, "long": np.int64([1, ROWS * WIDTH]), "later": LATER,
    "nothing": np.full((ROWS, ROWS), np.finfo("float32").min, "float32"),
    "kept": LATER == 0, "low": np.array(-1e4, "float32"), "zero": np.array(0),
    "little": np.array(1e-5, "float32"), "two": np.array(2, "float32"),
    "from": np.int64([1]), "end": np.int64([ROWS]), "rows": np.int64([1]),
    "parts": np.int64([3, ROWS - 3]), "each": np.linspace(1, 2, ROWS, dtype="float32")[:, None],
}  # fmt: skip


def model_of(path: Path, steps: list[Step], shape: list[int]) -> Path:
    """A row put before the others, three products with weights, and the steps."""
    from onnx import helper

    nodes = [
        helper.make_node("Concat", ["first", "x"], ["rows0"], axis=1),
        helper.make_node("Add", ["rows0", "pos"], ["a0"]),
    ]
    for number in range(3):
        nodes += [
            helper.make_node("MatMul", [f"a{number}", f"w{number}"], [f"p{number}"]),
            helper.make_node("Add", [f"p{number}", "bias"], [f"a{number + 1}"]),
        ]
    for kind, inputs, options in steps:
        given = ["a3" if one == "a" else one for one in inputs]
        ends = options.get("outputs") or [options.get("to", "y")]
        rest = {key: value for key, value in options.items() if key not in ("to", "outputs")}
        nodes.append(helper.make_node(kind, given, ends, **rest))
    used = {name for node in nodes for name in node.input}
    arrays = {name: array for name, array in ARRAYS.items() if name in used}
    return save_model(path, nodes, arrays, [1, ROWS - 1, WIDTH], shape)


def extents_of_products(graph: Graph) -> set[int]:
    """Extents of what the functions write that hold a product."""
    lines = [line for line in graph.module["main"].script().splitlines() if "matmul" in line]
    shapes = [re.findall(r"R\.Tensor\(\(([\d, ]+)\)", line)[-1] for line in lines]
    return {int(extent) for shape in shapes for extent in shape.split(",") if extent.strip()}


@pytest.mark.parametrize("name", CASES)
def test_it_is_computed_the_same(tmp_path: Path, target: str, name: str) -> None:
    path = model_of(tmp_path / "m.onnx", *CASES[name])
    graph = network_of(str(path), target)
    extents = extents_of_products(graph)
    assert PADDED in extents and (ROWS in extents) == (name in CUT)
    assert difference_from_onnxruntime(graph, path) < 1e-6


@pytest.mark.parametrize("name", ["norm", "norm with powers"])
def test_a_divisor_that_cannot_be_zero_stays(tmp_path: Path, target: str, name: str) -> None:
    graph = network_of(str(model_of(tmp_path / "m.onnx", *CASES[name])), target)
    assert "where" not in graph.module.script()


def test_rows_and_their_mean_are_both_returned(tmp_path: Path, target: str) -> None:
    import onnx

    path = model_of(tmp_path / "m.onnx", *CASES["mean of rows"])
    model = onnx.load(str(path))
    rows = onnx.helper.make_tensor_value_info("a3", onnx.TensorProto.FLOAT, [1, ROWS, WIDTH])
    model.graph.output.insert(0, rows)
    onnx.save(model, str(path))
    assert difference_from_onnxruntime(network_of(str(path), target), path) < 1e-6


def test_a_number_of_rows_that_tiles_divide_stays(tmp_path: Path, target: str) -> None:
    from onnx import helper

    from toolkit.networks.importing.files import load_model

    nodes = [
        helper.make_node(
            "MatMul", ["x" if not n else f"p{n - 1}", f"w{n}"], [f"p{n}" if n < 2 else "y"]
        )
        for n in range(3)
    ]
    weights = {f"w{number}": (WIDTH, WIDTH) for number in range(3)}
    for rows, padded in ((21, 21), (23, 24), (17, 17)):
        path = save_model(tmp_path / f"{rows}.onnx", nodes, weights, [1, rows, 8], [1, rows, 8])
        text = pad_rows(load_model(path)).script()
        assert (f"{padded}, 8)" in text) and (padded == rows or f"({rows}, 8)" not in text)
