"""What blocks compute and read, of workloads that TVM wrote and that the project measured."""

from __future__ import annotations

import gzip
from base64 import b64decode, b64encode
from functools import cache
from pathlib import Path
from typing import Any

import loglines
import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from toolkit.logs.formats.metaschedule.bodies import BlockBody, IndexTerm, Read, read_bodies

DATASETS = Path(__file__).parents[2] / "datasets"


@cache
def line_of(log: str) -> bytes:
    with gzip.open(DATASETS / log / "database_workload.json.gz") as file:
        return file.readline()


def bodies_of(log: str) -> dict[str, BlockBody]:
    return read_bodies(line_of(log))


def changed(line: bytes, graph: Any) -> bytes:
    """The workload line with another graph."""
    raw = orjson.dumps(graph)
    raw = len(raw).to_bytes(8, "little") + raw
    return orjson.dumps([orjson.loads(line)[0], b64encode(raw).decode()])


def graph_of(line: bytes) -> Any:
    return orjson.loads(b64decode(orjson.loads(line)[1])[8:])


def same(producer: str, *places: int) -> Read:
    return Read(producer, tuple((IndexTerm(place),) for place in places))


def test_a_softmax_calls_exp_once_for_each_element() -> None:
    found = bodies_of("xeon-rocketlake-1core/softmax_mn-256-256")
    each, row = ((0, 256), (1, 1)), ((0, 1),)  # strides of the two iterators
    largest, added = (same("T_softmax_maxelem", 0),), (same("T_softmax_exp", 0, 1),)
    assert found == {
        "T_softmax_maxelem": BlockBody(1, 0, 0, (), (0,), (each, row)),
        "T_softmax_exp": BlockBody(1, 1, 0, largest, (0, 1), (row, each)),
        "T_softmax_expsum": BlockBody(1, 0, 0, added, (0,), (each, row)),
        "T_softmax_norm": BlockBody(
            1, 0, 0, (same("T_softmax_expsum", 0), *added), (0, 1), (row, each)
        ),
    }


def test_polynomials_are_arithmetic_and_no_calls() -> None:
    found = bodies_of("epyc-znver4-2core/softmax-8-128-128")
    assert found["T_fast_exp"].calls == 0
    assert 15 <= found["T_fast_exp"].arithmetic <= 40


def test_a_window_walks_along_the_image_by_two_iterators() -> None:
    found = bodies_of("xeon-rocketlake-1core/depthwise_conv2d_nhwc-1-28-28-64-3-2-1")
    image, padded = (28 * 28 * 64, 28 * 64, 64, 1), (30 * 30 * 64, 30 * 64, 64, 1)
    strides = tuple(tuple(enumerate(each)) for each in (image, padded))
    assert found["PadInput"] == BlockBody(0, 0, 1, (), (0, 1, 2, 3), strides)
    _, window, _ = found["depth_conv2d_nhwc"].accesses
    # Two iterators move along a row: each has its own stride.
    assert dict(window) == {
        **dict(enumerate((padded[0], 2 * padded[1], 2 * padded[2], 1))),
        4: padded[1],
        5: padded[2],
    }
    (read,) = found["depth_conv2d_nhwc"].reads
    assert read.producer == "PadInput"
    assert read.axes == (
        (IndexTerm(0),),
        (IndexTerm(1, 2.0), IndexTerm(4)),  # stride 2, and the window's rows
        (IndexTerm(2, 2.0), IndexTerm(5)),
        (IndexTerm(3),),
    )


def test_channels_of_a_group_go_on_once_a_group() -> None:
    found = bodies_of("epyc-znver4-2core/conv2d_bias_relu-1-20-20-64-128-3-2-1")
    (read,) = found["conv2d_nhwc"].reads
    assert read.axes[3] == (IndexTerm(3, 64.0, 128), IndexTerm(6))


def test_a_workload_of_either_layout_without_bodies_has_none() -> None:
    for new in (False, True):
        assert read_bodies(loglines.dump(loglines.workload("1", 64, new=new))) == {}


@settings(max_examples=150)
@given(st.data())
def test_damaged_workloads_are_never_an_error(data: st.DataObject) -> None:
    line = line_of("xeon-rocketlake-1core/depthwise_conv2d_nhwc-1-28-28-64-3-2-1")
    graph = graph_of(line)
    for _ in range(data.draw(st.integers(1, 4))):
        node = data.draw(st.sampled_from(graph["nodes"]))
        other = data.draw(st.sampled_from([0, -1, 3, 10**9, "x", None, [], {}, node]))
        if isinstance(node.get("data"), dict) and node["data"]:
            node["data"][data.draw(st.sampled_from(sorted(node["data"])))] = other
        else:
            node["data"] = other
    try:
        damaged = changed(line, graph)
    except orjson.JSONEncodeError:  # a node inside itself
        return
    found = read_bodies(damaged)
    assert all(isinstance(body, BlockBody) for body in found.values())


def test_expressions_that_share_their_parts_are_read_in_time() -> None:
    line = line_of("xeon-rocketlake-1core/softmax_mn-256-256")
    graph = graph_of(line)
    nodes = graph["nodes"]
    (subtract,) = (node for node in nodes if node["type"] == "prim.Sub")
    span, kind = subtract["data"]["span"], subtract["data"]["ty"]
    part = subtract["data"]["a"]
    for _ in range(100):  # x + x, a hundred times over: 2**100 paths
        add = {"span": span, "ty": kind, "a": part, "b": part}
        nodes.append({"type": "prim.Add", "data": add})
        part = len(nodes) - 1
    subtract["data"]["a"] = part
    load = next(node for node in nodes if node["type"] == "ir.TensorLoad")
    nodes[load["data"]["indices"]]["data"][0] = part
    assert read_bodies(changed(line, graph))["T_softmax_exp"].arithmetic == 101
