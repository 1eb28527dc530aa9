"""Concatenations, shuffles and slices are copies that write what they gave."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.networks.conftest import difference_from_onnxruntime, save_model
from tests.networks.test_transposes import chain_module, chains
from toolkit.networks.graph.movements import Box, Copy, copies_of, movement_of
from toolkit.networks.tasks import network_of

pytestmark = pytest.mark.live


def copied(copies: list[Copy], sources: list[Any], shape: list[int]) -> Any:
    """What copies write; ``nan`` where none does. None writes where another did."""
    out = np.full(shape, np.nan)
    for copy in copies:
        for loops in product(*map(range, copy.loops)):
            here, there = (
                tuple(begin + sum(loops[loop] * step for loop, step in steps)
                      for begin, steps in each)
                for each in (copy.read, copy.write)
            )  # fmt: skip
            assert np.isnan(out[there])
            out[there] = sources[copy.source][here]
    return out


@given(chains(), st.data())
def test_copies_write_what_is_kept_of_what_was_moved(
    chain: tuple[list[int], list[list[int]]], data: st.DataObject
) -> None:
    shape, steps = chain
    calls = [
        binding.value for binding in chain_module(shape, steps)["main"].body.blocks[0].bindings
    ]
    movement = movement_of(shape, [call for call in calls if hasattr(call, "op")])
    if movement is None:
        return
    source = np.arange(prod(shape), dtype=float).reshape(shape)
    boxes = [(source, Box(0, [0] * len(shape), [1] * len(shape), [(0, e) for e in shape]))]
    for axis in data.draw(st.lists(st.sampled_from(range(len(shape))), max_size=2), "cut along"):
        boxes = [part for one in boxes for part in halves(data.draw, *one, axis)]
    sources = [surrounded(data.draw, array, one) for array, one in boxes]
    boxes = [replace(one, source=at) for at, (_, one) in enumerate(sources)]
    whole = source
    for number, step in enumerate(steps):
        whole = whole.transpose(step) if number % 2 else whole.reshape(step)
    kept = [
        (*sorted(data.draw(st.tuples(*[st.integers(0, extent)] * 2))), 1)
        if data.draw(st.booleans())
        else (0, extent, 1)
        for extent in whole.shape
    ]
    result = whole[tuple(slice(*one) for one in kept)]
    copies = copies_of(boxes, movement, kept)
    if copies is not None and result.size:
        arrays = [array for array, _ in sources]
        np.testing.assert_array_equal(copied(copies, arrays, list(result.shape)), result)
    elif result.size:
        assert len(boxes) > 1 or result.size < whole.size


def halves(draw: Any, array: Any, box: Box, axis: int) -> list[tuple[Any, Box]]:
    """Two parts of a tensor, and where they lie."""
    cut = draw(st.integers(0, array.shape[axis]))
    low, high = box.at[axis]
    ends = (low, low + cut), (low + cut, high)
    return [
        (part, replace(box, at=[*box.at[:axis], at, *box.at[axis + 1 :]]))
        for part, at in zip(np.split(array, [cut], axis), ends, strict=True)
        if part.size
    ]


def surrounded(draw: Any, array: Any, box: Box) -> tuple[Any, Box]:
    """A larger tensor that a part is cut from, perhaps with steps."""
    begin, step = draw(st.integers(0, 2)), draw(st.integers(1, 3))
    window = [(begin, begin + step * extent, step) for extent in array.shape]
    outer = np.full([end + 1 for _, end, _ in window], -1.0)
    outer[tuple(slice(*one) for one in window)] = array
    all_of_it = [(0, extent) for extent in outer.shape]
    cut = Box(0, [0] * outer.ndim, [1] * outer.ndim, all_of_it).cut(window)
    assert cut is not None
    for axis, (low, _) in enumerate(box.at):
        cut = cut.moved(axis, low)
    assert cut.at == box.at
    return outer, cut


CHANNELS = 6
WEIGHTS = {"w": (CHANNELS, 3, 1, 1), "v": (CHANNELS, 3, 1, 1), "u": (4, CHANNELS, 1, 1)}
SHUFFLE = [
    ("Reshape", ["j", "groups"], "g", {}),
    ("Transpose", ["g"], "t", {"perm": [0, 2, 1, 3, 4]}),
    ("Reshape", ["t", "flat"], "s", {}),
]
JOINED = ("Concat", ["a", "b"], "j", {"axis": 1})
SECOND = ("Slice", ["s", "six", "twelve", "one"], "h", {})
# What is done to ``a`` and ``b``, and the functions that it takes beside convolutions.
CASES: dict[str, tuple[list[Any], set[str]]] = {
    "a half of what is shuffled": ([JOINED, *SHUFFLE, SECOND], {"shuffle"}),
    "halves, one of them used again": (
        [
            JOINED, *SHUFFLE, SECOND,
            ("Slice", ["s", "zero", "six", "one"], "f", {}),
            ("Conv", ["h", "same"], "c", {}),
            ("Concat", ["f", "c"], "j2", {"axis": 1}),
            ("Reshape", ["j2", "groups"], "g2", {}),
            ("Transpose", ["g2"], "t2", {"perm": [0, 2, 1, 3, 4]}),
            ("Reshape", ["t2", "flat"], "s2", {}),
            ("Slice", ["s2", "six", "twelve", "one"], "h2", {}),
        ],
        {"shuffle"},
    ),
    "slices that are joined": (
        [
            ("Slice", ["a", "zero", "three", "one"], "p", {}),
            ("Slice", ["b", "three", "six", "one"], "q", {}),
            ("Concat", ["p", "q"], "j", {"axis": 1}),
        ],
        {"concatenate"},
    ),
    "a cyclic shift": (
        [
            ("Slice", ["a", "two", "five", "two"], "p", {}),
            ("Slice", ["a", "zero", "two", "two"], "q", {}),
            ("Concat", ["p", "q"], "j", {"axis": 2}),
            ("Slice", ["j", "three", "five", "three"], "r", {}),
            ("Slice", ["j", "zero", "three", "three"], "s", {}),
            ("Concat", ["r", "s"], "k", {"axis": 3}),
        ],
        {"concatenate"},
    ),
    "every second row, then the others": (
        [
            ("Slice", ["a", "zero", "five", "two", "two"], "p", {}),
            ("Slice", ["a", "one", "five", "two", "two"], "q", {}),
            ("Concat", ["p", "q"], "j", {"axis": 2}),
        ],
        {"concatenate"},
    ),
    "what is joined is used again": (
        [
            JOINED,
            ("MaxPool", ["j"], "m", {"kernel_shape": [1, 1]}),
            ("Slice", ["m", "three", "six", "one"], "n", {}),
            ("Concat", ["n", "j"], "k", {"axis": 1}),
            ("Slice", ["k", "zero", "six", "one"], "h", {}),
        ],
        {"concatenate", "maxpoold"},
    ),
    "a part ends within what moves": (
        [
            ("Slice", ["b", "zero", "three", "one"], "p", {}),
            ("Concat", ["p", "a", "p"], "j", {"axis": 1}), *SHUFFLE, SECOND,
        ],
        {"concatenate", "shuffle"},
    ),
}  # fmt: skip
ARRAYS = {
    **WEIGHTS, "same": (CHANNELS, CHANNELS, 1, 1),
    "groups": np.int64([1, 2, CHANNELS, 5, 5]), "flat": np.int64([1, 2 * CHANNELS, 5, 5]),
    "zero": np.int64([0]), "one": np.int64([1]), "three": np.int64([3]), "six": np.int64([6]),
    "twelve": np.int64([12]), "two": np.int64([2]), "five": np.int64([5]),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_networks_of_shuffles(tmp_path: Path, target: str, name: str) -> None:
    from onnx import helper

    steps, functions = CASES[name]
    last = steps[-1][2]
    steps = [("Conv", ["x", "w"], "a", {}), ("Conv", ["x", "v"], "b", {}), *steps]
    steps = [*steps, ("Conv", [last, "u"], "y", {})]
    nodes = [helper.make_node(kind, given, [to], **more) for kind, given, to, more in steps]
    used = {one for node in nodes for one in node.input}
    arrays = {key: value for key, value in ARRAYS.items() if key in used}
    path = save_model(tmp_path / "m.onnx", nodes, arrays, [1, 3, 5, 5], [1, 4, 5, 5])
    graph = network_of(str(path), target)
    names = {"".join(filter(str.isalpha, one.name_hint)) for one in graph.module.functions}
    assert names == {"main", "convd", "transpose", *functions}
    assert difference_from_onnxruntime(graph, path) < 1e-6


def test_parts_of_one_are_joined_between_what_fuses(tmp_path: Path, target: str) -> None:
    # The pairs of a rotary embedding, as PyTorch's stack exports them.
    from onnx import helper

    steps: list[tuple[str, list[str], str, dict[str, Any]]] = [
        ("Slice", ["x", "zero", "six", "two", "two"], "even", {}),
        ("Slice", ["x", "one", "six", "two", "two"], "odd", {}),
        ("Neg", ["odd"], "negative", {}),
        ("Unsqueeze", ["negative", "three"], "left", {}),
        ("Unsqueeze", ["even", "three"], "right", {}),
        ("Concat", ["left", "right"], "pairs", {"axis": 3}),
        ("Reshape", ["pairs", "flat"], "turned", {}),
        ("Mul", ["turned", "sine"], "y", {}),
    ]
    nodes = [helper.make_node(kind, given, [to], **more) for kind, given, to, more in steps]
    arrays = {key: ARRAYS[key] for key in ("zero", "one", "two", "three", "six")}
    arrays |= {"flat": np.int64([1, 5, 6]), "sine": (5, 6)}
    path = save_model(tmp_path / "m.onnx", nodes, arrays, [1, 5, 6], [1, 5, 6])
    assert difference_from_onnxruntime(network_of(str(path), target), path) < 1e-6
