"""Transposes and reshapes are joined where that takes fewer of them; what is computed stays."""

from __future__ import annotations

from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.networks.conftest import difference_from_onnxruntime, save_model
from toolkit.networks.graph.prepare import operators
from toolkit.networks.graph.transposes import join_transposes
from toolkit.networks.tasks import network_of

pytestmark = pytest.mark.live


def chain_module(shape: list[int], steps: list[list[int]]) -> Any:
    """A function of reshapes and transposes in turn: shapes, and orders of the axes."""
    import tvm
    from tvm import relax

    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            at: Any = x
            for number, step in enumerate(steps):
                operator = relax.op.permute_dims if number % 2 else relax.op.reshape
                at = builder.emit(operator(at, step))
            out = builder.emit_output(at)
        builder.emit_func_output(out)
    made: tvm.IRModule = builder.get()
    return made


def evaluated(module: Any, array: Any) -> Any:
    """What a module of reshapes and transposes gives."""
    values = {module["main"].params[0]: array}
    for block in module["main"].body.blocks:
        for binding in block.bindings:
            value = binding.value
            if not hasattr(value, "op"):
                values[binding.var] = values[value]
            elif value.op.name == "relax.permute_dims":
                axes = [int(axis) for axis in value.attrs.axes]
                values[binding.var] = values[value.args[0]].transpose(axes)
            else:
                new = [int(extent) for extent in value.args[1].values]
                values[binding.var] = values[value.args[0]].reshape(new)
    return values[module["main"].body.body]


@st.composite
def chains(draw: st.DrawFn) -> tuple[list[int], list[list[int]]]:
    primes = draw(st.lists(st.sampled_from([1, 2, 2, 3, 5]), min_size=1, max_size=6))

    def shape() -> list[int]:
        """The same number of elements in other groups, in any order."""
        left = draw(st.permutations(primes)) if draw(st.booleans()) else primes
        cuts = sorted(draw(st.sets(st.integers(0, len(left)), max_size=4)) | {0, len(left)})
        return [prod(left[begin:end]) for begin, end in pairwise(cuts)]

    first, steps = shape(), []
    for _ in range(draw(st.integers(1, 3))):
        grouped = shape()
        steps += [grouped, list(draw(st.permutations(range(len(grouped)))))]
    return first, steps


@given(chains())
def test_a_chain_gives_what_it_gave_and_is_no_longer(
    chain: tuple[list[int], list[list[int]]],
) -> None:
    shape, steps = chain
    module = chain_module(shape, steps)
    joined = join_transposes(module)
    array = np.arange(prod(shape), dtype="float32").reshape(shape)
    np.testing.assert_array_equal(evaluated(joined, array), evaluated(module, array))
    before, after = operators(module), operators(joined)
    assert after["relax.permute_dims"] <= before["relax.permute_dims"]
    assert after.total() <= before.total()


@pytest.mark.parametrize(
    ("shape", "steps", "left"),
    [
        # Patches of an image, channels last, as tokens: nothing but another shape.
        ([1, 4, 5, 6], [[1, 20, 6], [0, 2, 1], [1, 6, 4, 5], [0, 2, 3, 1]], {}),
        ([1, 4, 5, 6], [[20, 6], [1, 0], [6, 4, 5], [1, 2, 0], [20, 6]], {"relax.reshape": 1}),
        # Shuffled channels, channels last.
        (
            [1, 4, 5, 6],
            [[20, 6], [1, 0], [2, 3, 4, 5], [1, 0, 2, 3], [6, 20], [1, 0], [1, 4, 5, 6]],
            {"relax.reshape": 2, "relax.permute_dims": 1},
        ),
        # Heads of attention, then what a product takes.
        (
            [7, 6],
            [[7, 2, 3], [1, 0, 2], [2, 7, 3], [0, 2, 1]],
            {"relax.reshape": 1, "relax.permute_dims": 1},
        ),
    ],
)
def test_chains_of_networks(shape: list[int], steps: list[list[int]], left: dict[str, int]) -> None:
    assert operators(join_transposes(chain_module(shape, steps))) == left


W = {"g": (6,), "h": (6,), "w": (6, 6, 3, 3), "s": (6, 1, 1), "k": (6, 6), "p": np.int64([0] * 4)}
TO_LAST, TO_FIRST = {"perm": [0, 2, 3, 1]}, {"perm": [0, 3, 1, 2]}
CONVOLUTION = ("Conv", ["x", "w"], "c", {"pads": [1, 1, 1, 1]})
BETWEEN = {
    "norm of channels": [
        ("Transpose", ["c"], "t", TO_LAST),
        ("LayerNormalization", ["t", "g", "h"], "n", {}),
        ("Transpose", ["n"], "u", TO_FIRST),
        ("Mul", ["u", "s"], "m", {}),
        ("Add", ["m", "c"], "z", {}),
    ],
    **{
        f"product of rows, added {where}": [
            ("Transpose", ["c"], "t", TO_LAST),
            ("Reshape", ["t", "rows"], "r", {}),
            ("MatMul", ["r", "k"], "q", {}),
            ("Reshape", ["q", "image"], "v", {}),
            ("Transpose", ["v"], "u", TO_FIRST),
            ("Add", added, "z", {}),
        ]
        for where, added in (("first", ["u", "c"]), ("last", ["c", "u"]))
    },
    "shuffle": [
        ("Reshape", ["c", "groups"], "t", {}),
        ("Transpose", ["t"], "u", {"perm": [0, 2, 1, 3, 4]}),
        ("Reshape", ["u", "joined"], "z", {}),
    ],
    "shuffle and split": [
        ("Reshape", ["c", "groups"], "t", {}),
        ("Transpose", ["t"], "u", {"perm": [0, 2, 1, 3, 4]}),
        ("Reshape", ["u", "joined"], "j", {}),
        ("Split", ["j", "uneven"], "a b", {"axis": 1}),
        ("Relu", ["a"], "d", {}),
        ("Concat", ["b", "d"], "z", {"axis": 1}),
    ],
    "tokens": [
        ("Reshape", ["c", "flat"], "t", {}),
        ("Transpose", ["t"], "u", {"perm": [0, 2, 1]}),
        ("LayerNormalization", ["u", "g", "h"], "n", {}),
        ("Transpose", ["n"], "v", {"perm": [0, 2, 1]}),
        ("Reshape", ["v", "joined"], "z", {}),
    ],
    "shuffle and cut": [
        ("Reshape", ["c", "groups"], "t", {}),
        ("Transpose", ["t"], "u", {"perm": [0, 2, 1, 3, 4]}),
        ("Reshape", ["u", "joined"], "j", {}),
        ("Slice", ["j", "begin", "middle", "one"], "a", {}),
        ("Slice", ["j", "middle", "end", "one"], "b", {}),
        ("Relu", ["a"], "d", {}),
        ("Concat", ["d", "b"], "z", {"axis": 1}),
    ],
    "response normalisation": [("LRN", ["c"], "z", {"size": 5, "alpha": 0.5})],
    "no padding": [("Pad", ["c", "none"], "z", {})],
    "padding": [
        ("Transpose", ["c"], "t", TO_LAST),
        ("Pad", ["t", "around"], "q", {}),
        ("Transpose", ["q"], "z", TO_FIRST),
    ],
}
LEFT = {"shuffle": 1, "shuffle and cut": 1, "shuffle and split": 1}
SHAPES = {
    "groups": np.int64([1, 2, 3, 8, 8]), "joined": np.int64([1, 6, 8, 8]),
    "rows": np.int64([64, 6]), "image": np.int64([1, 8, 8, 6]),
    "flat": np.int64([1, 6, 64]), "none": np.int64([0] * 8),
    "begin": np.int64([0]), "middle": np.int64([3]), "end": np.int64([6]), "one": np.int64([1]),
    "uneven": np.int64([2, 4]), "around": np.int64([0, 1, 1, 0, 0, 1, 1, 0]),
}  # fmt: skip


@pytest.mark.parametrize("name", BETWEEN)
def test_channels_last_run_through(tmp_path: Path, target: str, name: str) -> None:
    from onnx import helper

    steps = [CONVOLUTION, *BETWEEN[name], ("Conv", ["z", "w"], "y", {"pads": [1, 1, 1, 1]})]
    nodes = [helper.make_node(kind, given, out.split(), **rest) for kind, given, out, rest in steps]
    size = 10 if name == "padding" else 8
    path = save_model(
        tmp_path / "r.onnx", nodes, {**W, **SHAPES}, [1, 6, 8, 8], [1, 6, size, size], opset=17
    )
    graph = network_of(str(path), target)
    assert graph.layout == "NHWC"
    # The input's, the output's, and the shuffle itself.
    names = " ".join(str(one) for one in graph.module.get_global_vars())
    assert names.count("transpose") == 2 + LEFT.get(name, 0)
    assert "split" not in names, "its parts are slices, read where they are used"
    assert difference_from_onnxruntime(graph, path) < 1e-6
