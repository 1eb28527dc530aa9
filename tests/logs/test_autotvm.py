"""AutoTVM lines: both versions, every kind of entity, failures, extents."""

from __future__ import annotations

import loglines
import orjson
import pytest
from row_of import row_of

from toolkit.logs.formats.autotvm.extents import axis_extents
from toolkit.logs.formats.autotvm.format import AutoTVMReader
from toolkit.logs.rows.base import BadLine
from toolkit.records import TrialState


def read(entry: object, machine: str | None = None):
    return AutoTVMReader(machine).interpret(orjson.loads(loglines.dump(entry)))


def test_a_record_of_version_0_2():
    reading = read(loglines.autotvm())
    assert reading.task.workload == "dense_nopack.x86"
    assert reading.task.target_kind == "llvm"
    assert reading.tvm_version == "0.12.0"
    assert reading.format_version == "0.2"
    assert reading.state is TrialState.OK
    assert reading.run_times_s == (1.5e-5, 1.7e-5)
    assert reading.latency_s == pytest.approx(1.6e-5)
    # rows 64 by 4, columns 96 by 8, inner 32 by 2: the outermost factors follow
    assert reading.decisions == (16, 4, 12, 8, 16, 2)
    assert [knob.name for knob in reading.sketch.knobs] == ["tile_y", "tile_x", "tile_k"]
    assert orjson.loads(reading.schedule)["index"] == 7


def test_a_record_of_version_0_1_and_its_template():
    plain = read(loglines.autotvm_old())
    assert plain.format_version == "0.1"
    assert plain.decisions == (2, 4, 8, 512)
    assert [knob.kind for knob in plain.sketch.knobs] == ["tile", "unroll"]
    winograd = read(loglines.autotvm_old(template="winograd"))
    assert winograd.task.workload == "conv2d_no_batching/winograd"
    assert winograd.task.task_id != plain.task.task_id


def test_the_outermost_factor_is_derived_and_does_not_tell_candidates_apart():
    known = read(loglines.autotvm())
    unknown = read(loglines.autotvm(arguments=[["TENSOR", [64, "n"], "float32"]]))
    assert unknown.decisions[::2] == (0, 0, 0)
    assert known.decisions[1::2] == unknown.decisions[1::2]
    explicit = loglines.autotvm()
    for entity in explicit["config"]["entity"]:
        entity[2][0] = 99
    assert row_of(read(explicit))["candidate_id"] == row_of(known)["candidate_id"]


def test_a_factor_that_does_not_divide_is_rounded_up_as_the_split_does():
    assert read(loglines.autotvm(tiles=(5, 8, 2))).decisions[:2] == (13, 5)


@pytest.mark.parametrize(
    ("entity", "kind", "value"),
    [
        (["unroll_kw", "ot", True], "unroll", 1),
        (["vec", "ot", 8], "vectorize", 8),
        (["tile_oh", "ot", 2], "categorical", 2),
    ],
)
def test_other_options_keep_their_numbers(entity, kind, value):
    reading = read(loglines.autotvm(extra=[entity]))
    knob = reading.sketch.knob(entity[0])
    assert knob.kind == kind
    assert reading.decisions[knob.offset] == value


def test_words_are_coded_and_the_sketch_learns_their_labels():
    reader = AutoTVMReader()
    codes = set()
    for word in (["vec"], ["unroll", "vec"], ["none"]):
        line = loglines.dump(loglines.autotvm(extra=[["ann_c", "an", word], ["re", "re", [1, 0]]]))
        reading = reader.interpret(orjson.loads(line))
        codes.add(reading.decisions[-2])
    assert len(codes) == 3
    assert {label for _, label in reading.sketch.knob("ann_c").labels} == {
        '["vec"]',
        '["unroll","vec"]',
        '["none"]',
    }


@pytest.mark.parametrize("number", range(1, 9))
def test_failures_have_a_state_and_no_time(number):
    reading = read(loglines.autotvm(costs=[1e9], error=number))
    assert reading.state is not TrialState.OK
    assert reading.error_number == number
    assert reading.run_times_s == ()
    assert reading.latency_s is None


@pytest.mark.parametrize("costs", [[1e9], [1e10], [10000000000], [0.0], [-1.0], []])
def test_no_sentinel_passes_for_a_time(costs):
    reading = read(loglines.autotvm(costs=costs, error=0))
    assert reading.state is TrialState.UNKNOWN
    assert reading.latency_s is None


def test_a_slow_record_is_a_good_record():
    assert read(loglines.autotvm(costs=[12.5])).latency_s == 12.5


def test_repeats_share_a_candidate_and_differ_as_records():
    first = read(loglines.autotvm(timestamp=1.0))
    again = read(loglines.autotvm(timestamp=2.0))
    assert row_of(first)["candidate_id"] == row_of(again)["candidate_id"]
    assert row_of(first)["record_id"] != row_of(again)["record_id"]
    assert row_of(first)["record_id"] == row_of(read(loglines.autotvm(timestamp=1.0)))["record_id"]


def test_an_object_among_the_arguments_of_an_operator_is_not_understood():
    image, kernel = ["TENSOR", [1, 3, 8, 8], "float32"], ["TENSOR", [4, 3, 3, 3], "float32"]
    assert axis_extents("conv2d_nchw.x86", [image, kernel, {"stride": 1}, [1, 1], 1]) == {}


def test_the_machine_tells_tasks_apart():
    assert read(loglines.autotvm(), "a").task.task_id != read(loglines.autotvm(), "b").task.task_id
    assert read(loglines.autotvm()).task.machine is None


@pytest.mark.parametrize(
    "change",
    [
        {"input": None},
        {"input": ["llvm"]},
        {"input": ["llvm", 3, [], {}]},
        {"input": ["llvm", "dense", "none", {}]},
        {"config": None},
        {"config": {"index": "x", "entity": []}},
        {"config": {"index": 1, "entity": [["a", "sp"]]}},
        {"config": {"index": 1, "entity": [["a", "sp", []]]}},
        {"config": {"index": 1, "entity": [["a", "sp", [1, 2.5]]]}},
        {"config": {"index": 1, "entity": [["a", "sp", [1, 10**30]]]}},
        {"config": {"index": 1, "entity": [["a", "zz", 1]]}},
        {"config": {"index": 1, "entity": [[1, "ot", 1]]}},
        {"result": None},
        {"result": [[1.0], 0, 1.0]},
        {"result": [1.0, 0, 1.0, 1.0]},
        {"result": [["fast"], 0, 1.0, 1.0]},
        {"result": [[1.0], 9, 1.0, 1.0]},
        {"result": [[1.0], 0.5, 1.0, 1.0]},
        {"result": [[1.0], 0, "long", 1.0]},
    ],
)
def test_what_is_no_record_is_refused_with_a_reason(change):
    with pytest.raises(BadLine, match=r"\w{3}"):
        read({**loglines.autotvm(), **change})


TENSOR = "TENSOR"


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        (
            "conv2d_NCHWc.x86",
            [[TENSOR, [1, 3, 224, 224], "f"], [TENSOR, [64, 3, 7, 7], "f"], [2, 2], [3, 3, 3, 3],
             [1, 1], "NCHW", "NCHW", "f"],
            {"tile_ic": 3, "tile_oc": 64, "tile_ow": 112, "tile_oh": 112},
        ),
        (
            "conv2d_NCHWc.x86",
            [[TENSOR, [1, 2, 28, 28, 16], "f"], [TENSOR, [4, 2, 3, 3, 16, 8], "f"], [1, 1],
             [1, 1, 1, 1], [2, 2], "NCHW16c", "NCHW8c", "f"],
            {"tile_ic": 32, "tile_oc": 32, "tile_ow": 26},
        ),
        (
            "depthwise_conv2d_NCHWc.x86",
            [[TENSOR, [1, 32, 112, 112], "f"], [TENSOR, [32, 2, 3, 3], "f"], [1, 1],
             [1, 1, 1, 1], [1, 1], "NCHW", "NCHW", "f"],
            {"tile_ic": 32, "tile_oc": 64, "tile_ow": 112},
        ),
        (
            "conv2d_nchw.cuda",
            [[TENSOR, [128, 256, 15, 14], "f"], [TENSOR, [512, 256, 3, 3], "f"], 2, "SAME", 1,
             "f"],
            {"tile_f": 512, "tile_y": 8, "tile_x": 7, "tile_rc": 256, "tile_ry": 3, "tile_rx": 3},
        ),
        (
            "conv2d_nhwc.cuda",
            [[TENSOR, [1, 28, 30, 64], "f"], [TENSOR, [3, 5, 64, 96], "f"], [1, 1], "VALID",
             [1, 1], "f"],
            {"tile_f": 96, "tile_y": 26, "tile_x": 26, "tile_rc": 64, "tile_rx": 5},
        ),
        (
            "conv2d_transpose_nchw.cuda",
            [[TENSOR, [1, 64, 8, 8], "f"], [TENSOR, [64, 32, 4, 4], "f"], [2, 2], [1, 1], "f",
             [0, 0]],
            {"tile_f": 32, "tile_y": 16, "tile_x": 16, "tile_rc": 64},
        ),
        (
            "conv2d_nchw_winograd.cuda",
            [[TENSOR, [2, 16, 56, 56], "f"], [TENSOR, [32, 16, 3, 3], "f"], [1, 1],
             [1, 1, 1, 1], [1, 1], "f"],
            {"tile_b": 36, "tile_y": 32, "tile_x": 2 * 14 * 14, "tile_rc": 16},
        ),
        (
            "batch_matmul.x86",
            [[TENSOR, [12, 128, 64], "f"], [TENSOR, [12, 64, 256], "f"], [12, 128, 256], "f", 0,
             0],
            {"tile_y": 128, "tile_x": 256, "tile_k": 64},
        ),
        (
            "batch_matmul.x86",
            [[TENSOR, [12, 128, 64], "f"], [TENSOR, [12, 256, 64], "f"]],
            {"tile_y": 128, "tile_x": 256, "tile_k": 64},
        ),
        (
            "dense_large_batch.gpu",
            [[TENSOR, [128, 2048], "f"], [TENSOR, [1000, 2048], "f"]],
            {"tile_x": 128, "tile_y": 1000, "tile_k": 2048},
        ),
        (
            "dense_pack.x86",
            [[TENSOR, [8, 768], "f"], [TENSOR, [96, 768, 32], "f"], None, "f"],
            {"tile_y": 8, "tile_x": 3072, "tile_k": 768},
        ),
        (
            "tutorial/conv2d_no_batching",
            [1, 7, 9, 512, 256, 3, 3, [1, 1], [1, 1]],
            {"tile_f": 512, "tile_y": 7, "tile_x": 9, "tile_rc": 256, "tile_ry": 3},
        ),
        ("tutorial/matmul", [512, 128, 256, "f"], {"tile_y": 512, "tile_x": 256}),
    ],
)  # fmt: skip
def test_extents_follow_from_the_workload(name, arguments, expected):
    found = axis_extents(name, arguments)
    assert {knob: found.get(knob) for knob in expected} == expected


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("conv2d_NCHWc.x86", []),
        ("conv2d_NCHWc.x86", [[TENSOR, [1, "n", 7, 7], "f"], [TENSOR, [1, 1, 1, 1], "f"]]),
        ("conv2d_nchw.cuda", [[TENSOR, [1, 8, 7, 7], "f"], [TENSOR, [8, 8, 1, 1], "f"], 0, 0, 1]),
        ("softmax.cpu", [[TENSOR, [8, 8], "f"]]),
        ("dense.x86", [[TENSOR, [8, 8], "f"], [TENSOR, [9, 9], "f"]]),
    ],
)
def test_what_is_not_understood_is_left_out(name, arguments):
    assert axis_extents(name, arguments) == {}
