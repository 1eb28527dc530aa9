"""A convolution and a depthwise one compute as one what both compute."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.networks.conftest import outputs
from toolkit.live.space.programs import operations
from toolkit.networks.compile import compile_network
from toolkit.networks.graph import expansions
from toolkit.networks.graph.epilogues import ESTIMATED_FLOPS
from toolkit.networks.graph.expansions import Expansion, Window, with_expansions
from toolkit.networks.graph.prepare import operators, prepare

pytestmark = pytest.mark.live

tvm = pytest.importorskip("tvm")

STEPS = ("bias", "relu", "clip", "silu", "sigmoid times", "hardswish")


def network(
    shape: tuple[int, int, int],
    filters: int,
    kernel: tuple[int, int],
    stride: int,
    pads: list[int],
    first: list[str],
    second: list[str],
    *,
    opening: tuple[int, int] = (1, 1),
    opening_stride: int = 1,
    opening_pads: list[int] | None = None,
    planar: bool = False,
    groups: int | None = None,
    twice: bool = False,
) -> Any:
    """A (pointwise) convolution of an image in channels last, and a (depthwise) one after it.

    ``opening`` is the first one's kernel; a ``planar`` image is given in channels first.
    """
    from tvm import relax

    rng = np.random.default_rng(1)
    groups = filters if groups is None else groups
    pointwise = rng.normal(0, 0.4, (*opening, shape[2], filters)).astype("float32")
    depthwise = rng.normal(0, 0.4, (*kernel, filters // groups, filters)).astype("float32")
    given = (1, shape[2], *shape[:2]) if planar else (1, *shape)
    x = relax.Var("x", relax.TensorType(given, "float32"))
    builder = relax.BlockBuilder()

    def convolved(y: Any, weight: Any, steps: list[str], **attributes: Any) -> Any:
        layouts = {"data_layout": "NHWC", "kernel_layout": "HWIO"}
        y = builder.emit(relax.op.nn.conv2d(y, relax.const(weight), **layouts, **attributes))
        for step in steps:
            bias = relax.const(rng.normal(0, 0.5, (1, 1, 1, filters)).astype("float32"))
            made = {
                "bias": lambda y, bias=bias: relax.op.add(y, bias),
                "relu": relax.op.nn.relu,
                "clip": lambda y: relax.op.clip(y, 0.25, 1.5),
                "silu": relax.op.nn.silu,
                "sigmoid times": lambda y: relax.op.multiply(y, relax.op.sigmoid(y)),
                "hardswish": hardswish,
            }[step]
            y = builder.emit(made(y))
        return y

    with builder.function("main", [x]):
        with builder.dataflow():
            image = builder.emit(relax.op.permute_dims(x, [0, 2, 3, 1])) if planar else x
            places = {"strides": opening_stride, "padding": opening_pads or 0}
            y = convolved(image, pointwise, first, **places)
            z = convolved(y, depthwise, second, strides=stride, padding=pads, groups=groups)
            if twice:
                z = builder.emit(relax.op.add(z, relax.op.max(y, axis=[1, 2], keepdims=True)))
            result = builder.emit_output(z)
        builder.emit_func_output(result)
    return builder.get()


def hardswish(x: Any) -> Any:
    """x min(max(x + 3, 0), 6) / 6, as TVM imports it."""
    from tvm import relax

    gate = relax.op.clip(relax.op.add(x, relax.const(3.0)), 0, 6)
    return relax.op.multiply(x, relax.op.divide(gate, relax.const(6.0)))


def taken(module: Any, lanes: int = 8) -> bool:
    """Whether the pair has become one function."""
    found = operators(with_expansions(module, lanes))
    return found["relax.call_tir"] == 1 and found["relax.nn.conv2d"] == 0


@settings(max_examples=12)
@given(
    rows=st.integers(13, 20),
    columns=st.integers(13, 20),
    channels=st.sampled_from([3, 8, 16]),
    filters=st.sampled_from([16, 48, 64]),
    kernel=st.tuples(st.integers(2, 5), st.integers(2, 5)),
    stride=st.integers(1, 2),
    pads=st.lists(st.integers(0, 2), min_size=4, max_size=4),
    opening=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    opening_stride=st.integers(1, 2),
    opening_pads=st.lists(st.integers(0, 2), min_size=4, max_size=4),
    planar=st.booleans(),
    steps=st.tuples(st.permutations(STEPS), st.permutations(STEPS)),
    counts=st.tuples(st.integers(0, 3), st.integers(0, 3)),
    lanes=st.sampled_from([4, 8, 16]),
)
def test_it_computes_both_convolutions(
    rows: int,
    columns: int,
    channels: int,
    filters: int,
    kernel: tuple[int, int],
    stride: int,
    pads: list[int],
    opening: tuple[int, int],
    opening_stride: int,
    opening_pads: list[int],
    planar: bool,
    steps: tuple[list[str], list[str]],
    counts: tuple[int, int],
    lanes: int,
) -> None:
    first, second = (each[:count] for each, count in zip(steps, counts, strict=True))
    shape = (rows, columns, channels)
    places: dict[str, Any] = {
        "opening": opening, "opening_stride": opening_stride, "opening_pads": opening_pads,
        "planar": planar,
    }  # fmt: skip
    module = network(shape, filters, kernel, stride, pads, first, second, **places)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(expansions, "LEAST_BYTES", 0)
        patch.setattr(expansions, "LEAST_OPENING_BYTES", 0)
        patch.setattr(expansions, "MOST_DEPTH", 1000)
        patch.setattr(expansions, "MOST_TWICE", 1e9)
        patch.setattr(expansions, "GROUPS", (6, 5, 4, 3, 2, 1))
        changed = with_expansions(module, lanes)
    assert operators(changed) == {"relax.call_tir": 1}
    given = (1, channels, rows, columns) if planar else (1, *shape)
    x = np.random.default_rng(2).normal(0, 1, given).astype("float32")
    (wanted,) = outputs(module, x)
    assert np.max(np.abs(outputs(changed, x)[0] - wanted)) <= 1e-5 * np.max(np.abs(wanted))


OPENING = {
    "shape": (224, 224, 3), "filters": 32, "stride": 1, "opening": (3, 3), "opening_stride": 2,
    "opening_pads": [1, 1, 1, 1],
}  # fmt: skip
"""How networks for telephones begin."""


@pytest.mark.parametrize(
    ("changes", "is_taken"),
    [
        ({}, True),
        (OPENING, True),
        ({**OPENING, "planar": True}, True),
        ({**OPENING, "shape": (112, 112, 3)}, False),  # little lies between
        ({**OPENING, "shape": (224, 224, 4)}, False),  # the time goes into multiplications
        ({"shape": (56, 56, 16)}, False),  # little lies between
        ({"shape": (112, 112, 64)}, False),  # the time goes into multiplications
        ({"filters": 92}, False),  # not whole vectors
        ({"groups": 1}, False),  # no depthwise convolution
        ({"twice": True}, False),  # what lies between is used once more
        ({"kernel": (11, 11), "pads": [5, 5, 5, 5]}, False),  # much would be made twice
    ],
)
def test_it_is_taken_where_it_pays(changes: dict[str, Any], is_taken: bool) -> None:
    usual: dict[str, Any] = {
        "shape": (112, 112, 16), "filters": 96, "kernel": (3, 3), "stride": 2,
        "pads": [1, 1, 1, 1], "first": ["bias", "relu"], "second": ["bias", "relu"],
    }  # fmt: skip
    module = network(**{**usual, **changes})
    assert taken(module) == is_taken
    assert not taken(module, lanes=1)  # a GPU


def test_a_tile_stays_in_the_cache_and_is_no_task(target: str) -> None:
    second = Window((3, 3), (2, 2), (1, 1))
    shape = Expansion((112, 112, 16), Window(), (112, 112), second, (56, 56), 96)
    assert shape.tile() == (8, 7) and second.read(8, 7) == (17, 15)
    pads, relu = [1, 1, 1, 1], ["bias", "relu"]
    module = network((112, 112, 16), 96, (3, 3), 2, pads, relu, relu)
    graph = prepare(module, target, "pair", "NHWC")
    scheduled = [
        function
        for name, function in graph.module.functions.items()
        if "expansion" in name.name_hint
    ]
    assert len(scheduled) == 1 and scheduled[0].attrs["tirx.is_scheduled"]
    # TVM cannot count what names values; the function says it itself.
    assert operations(tvm.IRModule({"main": scheduled[0]})) == shape.flops
    unsaid = scheduled[0].without_attr(ESTIMATED_FLOPS)
    assert operations(tvm.IRModule({"main": unsaid})) is None


def test_what_it_does_a_second_is_said(target: str, tmp_path: Path) -> None:
    pads, first = [1, 1, 1, 1], ["bias", "silu"]
    module = network((112, 112, 16), 96, (3, 3), 2, pads, first, ["bias", "relu"])
    graph = prepare(module, target, "pair", "NHWC")
    result = compile_network(
        graph, tmp_path, database=None, target=target, choose_seconds=0, seconds=0.1
    )
    (row,) = (row for row in result.kernels if "expansion" in row["kernel"])
    products = 2 * (112 * 112 * 16 * 96 + 56 * 56 * 9 * 96)
    assert row["gflop_per_s"] * row["seconds"] * 1e9 == pytest.approx(products)
