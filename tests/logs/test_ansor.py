"""Ansor lines: all versions, every step, what is a decision and what is skeleton."""

from __future__ import annotations

import loglines
import orjson
import pytest
from row_of import row_of

from toolkit.logs.formats.ansor.reader import AnsorReader
from toolkit.logs.rows.base import BadLine
from toolkit.records import TrialState


def read(entry: object, machine: str | None = None):
    return AnsorReader(machine).interpret(orjson.loads(loglines.dump(entry)))


def decision(reading, name):
    knob = reading.sketch.knob(name)
    return reading.decisions[knob.offset : knob.offset + knob.width]


@pytest.mark.parametrize("version", ["v0.2", "v0.3", "v0.4", "v0.5", "v0.6"])
def test_all_versions(version):
    reading = read(loglines.ansor(version=version))
    assert reading.format_version == version
    assert reading.task.workload == "matmul_add"
    assert reading.task.arguments == [64, 96, 32, "float32"]
    assert reading.task.hardware.get("num_cores") == (8 if version >= "v0.3" else None)
    assert reading.state is TrialState.OK
    assert reading.latency_s == 0.0044742


def test_decisions_of_a_cpu_schedule():
    reading = read(loglines.ansor())
    assert decision(reading, "SP:s2:i0") == (8, 2, 1, 4)
    assert decision(reading, "SP:s2:i4") == (6, 1, 2, 8)
    assert decision(reading, "SP:s2:i8") == (8, 4)
    assert decision(reading, "CA:s2") == (3,)
    assert decision(reading, "parallel:s4:i0") == (2,)
    assert decision(reading, "unroll:s2") == (16,)
    assert reading.task.extents == (64, 96, 32)
    assert orjson.loads(reading.schedule) == [[], loglines.ansor_steps()]


def test_how_many_loops_run_in_parallel_does_not_change_the_sketch():
    sketches = {
        read(loglines.ansor(loglines.ansor_steps(fused=fused))).sketch.sketch_id
        for fused in (1, 2, 3, 4)
    }
    assert len(sketches) == 1
    alone = loglines.ansor_steps(fused=1)
    alone = [step for step in alone if step[0] != "FU"]
    assert read(loglines.ansor(alone)).sketch.sketch_id in sketches


def test_each_decision_makes_another_candidate_of_the_same_sketch():
    base = read(loglines.ansor())
    for steps in (
        loglines.ansor_steps(tile=(4, 1, 4)),
        loglines.ansor_steps(unroll=64),
        loglines.ansor_steps(fused=3),
    ):
        other = read(loglines.ansor(steps))
        assert other.sketch == base.sketch
        assert row_of(other)["candidate_id"] != row_of(base)["candidate_id"]


def test_a_step_more_makes_another_sketch():
    other = read(loglines.ansor([*loglines.ansor_steps(), ["AN", 4, 1, 1]]))
    assert other.sketch != read(loglines.ansor()).sketch


def test_unknown_extents_and_lengths():
    steps = [["SP", 1, 0, None, [None, 4], 1], ["SP", 1, 3, 0, [8], 1]]
    assert read(loglines.ansor(steps)).decisions == (0, 0, 4, 0, 8)


def test_every_step_of_a_gpu_schedule_is_read():
    steps = [
        ["CHW", 3, "local"],
        ["SP", 3, 0, 128, [1, 2, 1, 8], 1],
        ["RE", 3, [0, 1, 2, 3, 4]],
        ["FSP", 4, 0, 1, 3],
        ["CA", 3, 4, 2],
        ["CHR", 2, "shared", [3]],
        ["CI", 1],
        ["CR", 0],
        ["RF", 2, 1, 0],
        ["SA", 2, 0, 32, 8],
        ["FU", 6, [0, 1]],
        ["AN", 6, 0, 5],
        ["FU", 4, [0, 1, 2]],
        ["SP", 4, 0, 48, [2], 1],
        ["AN", 4, 1, 2],
        ["FFSP", 4, 0, [1, 2], 1, 1],
        ["AN", 4, 1, 6],
        ["PR", 5, 0, "auto_unroll_max_step$512"],
        ["PR", 5, 0, "tensor_core"],
    ]
    reading = read(loglines.ansor(steps))
    assert [knob.kind for knob in reading.sketch.knobs] == [
        "tile",
        "compute_location",
        "tile",
        "vectorize",
        "unroll",
    ]
    # the extent 48 belongs to a fused loop: it is no axis of the workload
    assert reading.task.extents == (128,)


def test_a_bare_key_means_what_its_extents_say():
    def task(rows: int, key: str):
        return read(loglines.ansor(loglines.ansor_steps(rows=rows), key=key)).task.task_id

    assert task(64, '["conv2d_1"]') != task(128, '["conv2d_1"]')
    assert task(64, "conv2d_1") != task(128, "conv2d_1")
    assert task(64, '["conv2d_1", 64]') == task(128, '["conv2d_1", 64]')


def test_task_inputs_tell_tasks_apart():
    plain, sparse = loglines.ansor(), loglines.ansor()
    sparse["i"][0][5] = ["weights_0.60"]
    assert read(plain).task.task_id != read(sparse).task.task_id


def test_nested_and_flat_shapes_in_a_hashed_key():
    nested = read(loglines.ansor(key='["d7b65649a4dd54becea0a52aabbc5af5", [1536, 128], [64]]'))
    assert nested.task.arguments == [[1536, 128], [64]]


def test_failures_keep_their_kind():
    reading = read(loglines.ansor(costs=[1e10], error=6, elapsed=15))
    assert reading.state is TrialState.BUILD_TIMEOUT
    assert reading.latency_s is None
    assert reading.elapsed_s == 15.0


@pytest.mark.parametrize(
    "steps",
    [
        None,
        "none",
        [[]],
        [["XX", 1]],
        [[3, 1]],
        [["SP", 1, 0, 8, 4, 1]],
        [["SP", 1, 0, 8, [2.5], 1]],
        [["SP", 1, 0, 8, [2**70], 1]],
        [["SP", 1]],
        [["FU", 1, []]],
        [["AN", 1, 0, "vector"]],
        [["PR", 1, 0, 16]],
        [["CA", 1, 2]],
        [["FU", 4, [0, 1]], ["AN", 4, 0, 3], ["CA", 2, 4, 2**63 - 1]],
        [["RE", 1, {"a": 1}]],
    ],
)
def test_steps_that_are_none_are_refused(steps):
    entry = loglines.ansor()
    entry["i"][1][1] = steps
    with pytest.raises(BadLine, match=r"\w{3}"):
        read(entry)


@pytest.mark.parametrize(
    "change",
    [
        {"i": []},
        {"i": [["[1]", "llvm"], [[], []]]},
        {"i": [[3, "llvm"], [[], []]]},
        {"i": [["[]", "llvm"], [[], []]]},
        {"i": [['["a", 1]', "llvm", 5], [[], []]]},
        {"i": [['["a", 1]', "llvm"], []]},
        {"r": [[1.0], 0, 1.0]},
        {"r": [[1.0], "ok", 1.0, 1]},
    ],
)
def test_what_is_no_record_is_refused(change):
    with pytest.raises(BadLine, match=r"\w{3}"):
        read({**loglines.ansor(), **change})
