"""MetaSchedule records and workloads of both graph layouts, with and without sidecar."""

from __future__ import annotations

import base64
import json

import loglines
import orjson
import pytest
from row_of import row_of

from toolkit.logs.formats.metaschedule.reader import Database, MetaScheduleReader
from toolkit.logs.formats.metaschedule.workload import read_workload
from toolkit.logs.rows.base import BadLine
from toolkit.records import TrialState


def database(**more) -> Database:
    return Database(workloads=[read_workload(loglines.dump(loglines.workload()))], **more)


def read(entry: object, index: int = 0, **more):
    return MetaScheduleReader(database(**more)).interpret(decoded(entry), index)


def decoded(entry: object):
    return orjson.loads(loglines.dump(entry))


@pytest.mark.parametrize("new", [False, True])
def test_both_graph_layouts(new):
    found = read_workload(loglines.dump(loglines.workload("42", 128, new=new)))
    assert found.structural_hash == "42"
    assert found.name == "matmul"
    assert found.blocks[0].reductions == (False, True)
    assert found.extents == (128, 0 if new else 32)  # the new one has a symbolic extent
    assert found.tvm_version == ("0.23.0" if new else "0.17.0")


def test_a_record():
    reading = read(loglines.metaschedule())
    assert reading.state is TrialState.OK
    assert reading.run_times_s == (2.5e-5, 2.75e-5)
    assert reading.error_number is None
    assert reading.elapsed_s is None
    assert reading.tvm_version == "0.17.0"
    assert reading.task.workload == "matmul"
    assert reading.task.arguments == loglines.TENSORS
    assert reading.task.target_kind == "llvm"
    assert reading.task.hardware == {"num-cores": 4}
    assert reading.task.extents == (64, 32)
    assert json.loads(reading.task.blob) == loglines.workload()
    assert json.loads(reading.schedule) == loglines.trace()


def test_the_knobs_of_a_trace():
    reading = read(loglines.metaschedule())
    assert [(knob.name, knob.kind, knob.width) for knob in reading.sketch.knobs] == [
        ("tile:matmul:i0", "tile", 3),
        ("parallel:root", "parallel", 1),
        ("vectorize:root", "vectorize", 1),
        ("unroll:root", "unroll", 1),
        ("location:matmul", "compute_location", 1),
    ]
    assert reading.decisions == (8, 4, 2, 64, 32, 16, -1)
    assert reading.sketch.knob("unroll:root").choices == (0, 16, 64, 512)


def test_limits_are_decisions_and_not_skeleton():
    base = read(loglines.metaschedule())
    other = read(loglines.metaschedule(schedule=loglines.trace(parallel=128)))
    assert other.sketch == base.sketch
    assert row_of(other)["candidate_id"] != row_of(base)["candidate_id"]


def test_what_postprocessors_add_is_not_part_of_the_candidate():
    changed = loglines.trace()
    changed[0][-1] = ["Unannotate", ["b1"], ["meta_schedule.vectorize"], []]
    base, other = read(loglines.metaschedule()), read(loglines.metaschedule(schedule=changed))
    assert row_of(base)["candidate_id"] == row_of(other)["candidate_id"]
    assert base.schedule != other.schedule


def test_blocks_renamed_in_newer_versions_share_the_sketch():
    renamed = loglines.trace()
    for instruction in renamed[0]:
        instruction[0] = instruction[0].replace("Block", "SBlock")
    base = read(loglines.metaschedule())
    assert read(loglines.metaschedule(schedule=renamed)).sketch == base.sketch


def test_thread_extents_and_fetches_are_named():
    schedule = [
        [
            ["GetBlock", [], ["c", "main"], ["b0"]],
            ["GetLoops", ["b0"], [], ["l1"]],
            ["SampleCategorical", [], [[32, 64], [0.5, 0.5]], ["v2"]],
            ["Split", ["l1", None, "v2"], [1], ["l3", "l4"]],
            ["CacheRead", ["b0", []], [0, "shared"], ["b5"]],
            ["SampleCategorical", [], [[1, 2], [0.5, 0.5]], ["v6"]],
            ["Annotate", ["b5", "v6"], ["meta_schedule.cooperative_fetch"], []],
            ["SampleCategorical", [], [["a", "b"], [0.5, 0.5]], ["v7"]],
        ],
        [[2, 1], [5, 0], [7, 1]],
    ]
    reading = read(loglines.metaschedule(schedule=schedule))
    names = [(knob.name, knob.kind) for knob in reading.sketch.knobs]
    assert names == [
        ("threads:c:i0", "thread_binding"),
        ("vectorize:c.cacheread.0.shared", "vectorize"),
        ("categorical", "categorical"),
    ]
    assert reading.decisions[:2] == (64, 1)
    word = reading.sketch.knob("categorical")
    assert dict(word.labels)[reading.decisions[2]] == '"b"'


@pytest.mark.parametrize("costs", [[1e10], [1e9], [10000000000], [], None])
def test_failures(costs):
    reading = read(loglines.metaschedule(costs=costs))
    assert reading.state is TrialState.UNKNOWN
    assert reading.latency_s is None


def test_the_sidecar_says_when_and_why():
    trials = [
        {"elapsed_s": 1.5, "timestamp": 10.0, "state": "ok"},
        {"elapsed_s": 2.5, "timestamp": 11.0, "state": "build_timeout"},
    ]
    good = read(loglines.metaschedule(), 0, trials=trials)
    assert (good.elapsed_s, good.timestamp, good.state) == (1.5, 10.0, TrialState.OK)
    failed = read(loglines.metaschedule(costs=[1e10]), 1, trials=trials)
    assert (failed.elapsed_s, failed.state) == (2.5, TrialState.BUILD_TIMEOUT)
    beyond = read(loglines.metaschedule(costs=[1e10]), 2, trials=trials)
    assert (beyond.elapsed_s, beyond.state) == (None, TrialState.UNKNOWN)


def test_names_are_labels_only():
    plain, named = read(loglines.metaschedule()), read(loglines.metaschedule(), names={0: "C1D"})
    assert named.task.workload == "C1D"
    assert named.task.task_id == plain.task.task_id


def test_a_target_may_be_a_string():
    entry = loglines.metaschedule()
    entry[1][2] = "cuda -arch=sm_80"
    assert read(entry).task.target_kind == "cuda"


@pytest.mark.parametrize(
    "entry",
    [
        [],
        [0],
        ["0", []],
        [0, [1, 2, 3]],
        [5, loglines.metaschedule()[1]],
        [-1, loglines.metaschedule()[1]],
        loglines.metaschedule(schedule=[[], 3]),
        loglines.metaschedule(schedule=[{}, []]),
        loglines.metaschedule(schedule=[[["X"]], []]),
        loglines.metaschedule(schedule=[loglines.trace()[0], []]),
        loglines.metaschedule(schedule=[loglines.trace()[0], [[3, [1, 2]], [7, 0], [9, 0]]]),
        loglines.metaschedule(schedule=[loglines.trace()[0], [[3, [1, 2, 3]], [7, 9], [9, 0]]]),
        loglines.metaschedule(schedule=[loglines.trace()[0], [[3, [1, 2, 2.5]], [7, 0], [9, 0]]]),
        loglines.metaschedule(
            schedule=[loglines.trace()[0], [[3, [1, 2, 3]], [7, 0], [9, 0], [2, 1]]]
        ),
        loglines.metaschedule(costs=["fast"]),
        loglines.metaschedule(costs=3.0),
    ],
)
def test_what_is_no_record_is_refused(entry):
    with pytest.raises(BadLine, match=r"\w{3}"):
        read(entry)


def test_without_workloads_the_trace_tells_the_task():
    found = MetaScheduleReader(Database()).interpret(decoded(loglines.metaschedule()), 0)
    assert found.task.workload == "matmul"
    assert found.task.blob is None and found.tvm_version is None
    assert found.decisions == read(loglines.metaschedule()).decisions
    with pytest.raises(BadLine, match="workload -1"):
        MetaScheduleReader(Database()).interpret(decoded(loglines.metaschedule(which=-1)), 0)


@pytest.mark.parametrize(
    "line",
    [
        b"[",
        b"[1, 2]",
        b'["1", "!!"]',
        b'["1", "AAAA"]',
        json.dumps(["1", base64.b64encode(b"\x09" + bytes(7) + b"{}").decode()]).encode(),
        json.dumps(["1", base64.b64encode(b"\x02" + bytes(7) + b"{}").decode()]).encode(),
        json.dumps(
            ["1", base64.b64encode(b"\x16" + bytes(7) + b'{"root":9, "nodes":[]}').decode()]
        ).encode(),
    ],
)
def test_damaged_workloads_are_refused(line):
    with pytest.raises(BadLine, match=r"\w{3}"):
        read_workload(line)
