"""Step and trace features against values worked out by hand."""

from __future__ import annotations

import loglines
import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolkit.features.base import CandidateGroup
from toolkit.features.extractors.primitives import PrimitivesExtractor
from toolkit.features.loops.ansor_nest import ansor_nest
from toolkit.features.loops.nest import Nest, running_product
from toolkit.features.loops.roles import assign_roles, infer_operation
from toolkit.features.loops.trace_nest import trace_nest
from toolkit.logs.formats.ansor.reader import AnsorReader
from toolkit.logs.formats.metaschedule.reader import Database, MetaScheduleReader
from toolkit.logs.formats.metaschedule.workload import WorkloadBlock, read_workload
from toolkit.records import Knob, Sketch, Task

GPU_TASK = [
    '["matmul_layer", 128, 256, 64]',
    "cuda -keys=cuda,gpu -max_num_threads=1024 -thread_warp_size=32",
    [-1, 16, 64, 49152, 2147483647, 1024, 8, 32],
    "",
    0,
    [],
]


def gpu_steps(rows: list[int], columns: list[int], depth: list[int], shared: int) -> list[object]:
    """A tiled matrix product with both inputs staged in shared memory."""
    return [
        ["CHW", 2, "local"],
        ["SP", 2, 0, 128, rows, 1],
        ["SP", 2, 5, 256, columns, 1],
        ["SP", 2, 10, 64, depth, 1],
        ["RE", 2, [0, 5, 1, 6, 2, 7, 10, 11, 3, 8, 12, 4, 9]],
        ["FSP", 3, 0, 1, 3],
        ["FSP", 3, 4, 2, 3],
        ["RE", 3, [0, 4, 1, 5, 2, 6, 3, 7]],
        ["CA", 2, 3, 5],
        ["CHR", 1, "shared", [2]],
        ["CA", 2, 3, 6],
        ["FU", 4, [0, 1]],
        ["AN", 4, 0, 5],
        ["FU", 4, [1, 2]],
        ["AN", 4, 1, 4],
        ["FU", 4, [2, 3]],
        ["AN", 4, 2, 6],
        ["FU", 2, [0, 1]],
        ["SP", 2, 0, shared, [2], 1],
        ["AN", 2, 1, 2],
        ["FFSP", 2, 0, [2, 1], 1, 1],
        ["AN", 2, 1, 6],
        ["PR", 3, 0, "auto_unroll_max_step$512"],
    ]


def ansor_group(*all_steps: list[object], task: list[object] | None = None) -> CandidateGroup:
    reader = AnsorReader()
    readings = []
    for steps in all_steps:
        entry = loglines.ansor(steps)
        if task is not None:
            entry["i"][0] = task
        readings.append(reader.interpret(orjson.loads(orjson.dumps(entry))))
    assert len({r.sketch.sketch_id for r in readings}) == 1
    decisions = np.array([r.decisions for r in readings], dtype=np.int64)
    return CandidateGroup(readings[0].task, readings[0].sketch, decisions)


def columns_of(group: CandidateGroup) -> dict[str, list[float]]:
    block = PrimitivesExtractor().extract(group)
    return {n: v.tolist() for n, v in zip(block.columns, block.values.T, strict=True)}


def test_grid_and_tiles_of_an_ansor_gpu_schedule() -> None:
    group = ansor_group(
        gpu_steps([2, 8, 1, 2], [1, 16, 2, 2], [4, 2], 512),
        gpu_steps([1, 4, 1, 1], [2, 32, 1, 4], [8, 1], 256),
        task=GPU_TASK,
    )
    columns = columns_of(group)
    # rows: 128 = 4 * 2 * 8 * 1 * 2; columns: 256 = 4 * 1 * 16 * 2 * 2
    assert columns["block_extent"] == [4 * 4, 32 * 1]
    assert columns["vthread_extent"] == [2, 2]
    assert columns["thread_extent"] == [8 * 16, 4 * 32]
    # staged: (rows, columns) of a block times the depth of a round, not what the step says
    assert columns["staged_bytes"] == [(32 + 64) * 8 * 4, (4 + 256) * 8 * 4]
    assert columns["fetch_vector_data"] == [2, 2]
    # 32 * 8 elements of data by 128 threads of two each; 4 * 8 leave threads idle
    assert columns["fetch_rounds_data"] == [1, 4 * 8 / (128 * 2)]
    assert columns["fetch_fill_data"] == [1, 4 * 8 / (128 * 2)]
    # 128 * 256 * 64 multiply-adds by 16 blocks of 128 threads, or 32 of 128
    assert columns["serial_steps"] == [1024, 512]
    # on 80 processors of 64 lanes an even spread would take 409.6
    assert columns["serial_over_ideal"] == pytest.approx([2.5, 1.25])
    # a thread's share of one round is 32 * 64 * 8 / 128 multiply-adds, or 4 * 256 * 8 / 128
    assert columns["unroll_cover_stage"] == [512 / 128, 512 / 64]
    assert columns["unroll_step"] == [512, 512]
    assert columns["flops"] == [2 * 128 * 256 * 64] * 2
    # a thread's own tile, without vthreads: rows 1 * 2, columns 2 * 2
    assert columns["mid_out_bytes"] == [2 * 4 * 4, 1 * 4 * 4]
    assert columns["stage_rounds"] == [64 / (4 * 2), 64 / (8 * 1)]
    assert columns["location_1"] == [6, 6]


def test_threads_of_an_ansor_gpu_schedule_that_add_up_together() -> None:
    def across(threads: int, unroll: int) -> list[object]:
        """The fused reduction over 121 is split for the threads; no step sizes the outputs."""
        return [
            ["FU", 1, [2, 3]],
            ["SP", 1, 2, 121, [threads], 1],
            ["AN", 1, 3, 6],
            ["FU", 1, [0, 1]],
            ["AN", 1, 0, 5],
            ["PR", 1, 0, f"auto_unroll_max_step${unroll}"],
        ]

    def alone(threads: int, *last: object) -> list[object]:
        """A thread for each of 2048 outputs."""
        return [
            ["FU", 1, [0, 1]],
            ["SP", 1, 0, 2048, [threads], 1],
            ["AN", 1, 0, 5],
            ["AN", 1, 1, 6],
            *last,
        ]

    columns = columns_of(ansor_group(across(11, 16), across(1, 512), task=GPU_TASK))
    assert columns["cross_threads"] == [11, 1]
    assert columns["op_depth"] == [121, 121]
    reduction = columns["op_family"]

    unrolled = ["PR", 1, 0, "auto_unroll_max_step$64"]
    columns = columns_of(ansor_group(alone(32, unrolled), alone(64, unrolled), task=GPU_TASK))
    assert columns["cross_threads"] == [1, 1]
    assert columns["thread_extent"] == [32, 64]
    # What is added up is named nowhere; that something is, the limit of unrolling tells.
    assert columns["op_family"] == reduction
    columns = columns_of(ansor_group(alone(32), alone(64), task=GPU_TASK))
    assert columns["op_family"] != reduction


def test_parallel_and_vector_extents_of_an_ansor_cpu_schedule() -> None:
    one, two = loglines.ansor_steps(fused=1), loglines.ansor_steps(fused=2)
    nest = ansor_nest(ansor_group(one, two))
    assert nest.parallel is not None
    assert nest.vector is not None
    # rows 64 = 8 * 2 * 1 * 4, columns 96 = 6 * 1 * 2 * 8: the outermost tiles are 8 and 6
    assert nest.parallel.tolist() == [8, 48]
    assert nest.vector.tolist() == [16, 16]  # stage 4 follows: 2 * 8 columns are its innermost loop
    assert [axis.extent for axis in nest.axes] == [64, 96, 32]


def test_shares_of_threads_of_an_ansor_cpu_schedule() -> None:
    one, two = loglines.ansor_steps(fused=1), loglines.ansor_steps(fused=2)
    columns = columns_of(ansor_group(one, two))
    # on the 8 cores of the hardware list: 8 blocks of 8 rows, or 48 of these by 16 columns
    assert columns["thread_rounds"] == [1, 6]
    assert columns["thread_balance"] == [1, 1]
    assert columns["n_parallel"] == [1, 1]
    assert columns["serial_steps"] == [64 * 96 * 32 / 8] * 2
    assert columns["task_bytes"] == [
        4 * (8 * 32 + 96 * 32 + 8 * 96),
        4 * (8 * 32 + 16 * 32 + 8 * 16),
    ]
    # six of the latter, one after the other, are one of the former
    assert columns["thread_bytes"] == [columns["task_bytes"][0]] * 2
    assert columns["thread_weight_bytes"] == [4 * 96 * 32] * 2


def metaschedule_group(*traces: list[object]) -> CandidateGroup:
    line = orjson.dumps(loglines.workload())
    reader = MetaScheduleReader(Database(workloads=[read_workload(line)]))
    readings = [
        reader.interpret(orjson.loads(orjson.dumps(loglines.metaschedule(0, trace))), i)
        for i, trace in enumerate(traces)
    ]
    assert len({r.sketch.sketch_id for r in readings}) == 1
    decisions = np.array([r.decisions for r in readings], dtype=np.int64)
    return CandidateGroup(readings[0].task, readings[0].sketch, decisions)


def test_a_trace_is_followed_by_names() -> None:
    group = metaschedule_group(
        loglines.trace(tile=(8, 4, 2), unroll=1), loglines.trace(tile=(2, 4, 8), unroll=3)
    )
    nest = trace_nest(group)
    assert nest.label == "matmul"
    assert [level.tolist() for level in nest.axes[0].levels] == [[8, 2], [4, 4], [2, 8]]
    assert nest.unroll is not None
    assert nest.unroll.tolist() == [16, 512]
    assert nest.located[0].tolist() == [-1, -1]
    columns = columns_of(group)
    assert columns["unroll_step"] == [16, 512]
    assert columns["inner_volume"] == [2, 8]


@pytest.mark.parametrize(
    ("spatial", "reduction", "label", "roles"),
    [
        ([64, 96], [32], "", {"w": 64, "co": 96, "ci": 32}),
        ([8, 64, 96], [32], "", {"n": 8, "w": 64, "co": 96, "ci": 32}),
        ([1, 64, 7, 7], [32, 3, 3], "", {"n": 1, "co": 64, "h": 7, "w": 7, "ci": 32}),
        ([1, 7, 7, 64], [3, 3, 32], "", {"n": 1, "co": 64, "h": 7, "w": 7, "ci": 32}),
        ([1, 7, 7, 64], [1, 1, 32], "conv2d_nhwc", {"co": 64, "h": 7, "ci": 32}),
        ([1, 64, 7, 7], [3, 3], "", {"co": 64, "kh": 3, "kw": 3}),
        ([4, 4, 128, 196], [128], "bgemm", {"n": 16, "co": 128, "w": 196, "ci": 128}),
        ([1, 8, 7, 7, 16], [4, 3, 3, 16], "", {"co": 128, "ci": 64, "kh": 3}),
    ],
)
def test_roles_follow_from_order_and_extents(
    spatial: list[float], reduction: list[float], label: str, roles: dict[str, int]
) -> None:
    operation, _, _ = infer_operation(spatial, reduction, label)
    assert {role: operation.extent(role) for role in roles} == roles


@given(st.integers(0, 8), st.integers(0, 6), st.sampled_from(["", "pool", "nhwc", "bgemm", "x"]))
def test_any_number_of_axes_gets_roles(s: int, r: int, label: str) -> None:
    operation, s_roles, r_roles = infer_operation([4.0] * s, [3.0] * r, label)
    assert (len(s_roles), len(r_roles)) == (s, r)
    assert operation.flops > 0


def test_products_that_end_differently_in_each_candidate() -> None:
    levels = [np.array([2.0, 2.0]), np.array([np.nan] * 2), np.array([3.0, 3.0])]
    assert np.array_equal(
        running_product(levels, np.array([1.0, 2.0]), 2), [2.0, np.nan], equal_nan=True
    )


def test_unknown_extents_are_absent_and_no_error() -> None:
    steps: list[object] = [["SP", 0, 0, None, [None, 4], 1], ["FSP", 1, 0, 9, 2], ["CI", 3]]
    columns = columns_of(ansor_group(steps))
    assert columns["n_inlined"] == [1]
    assert not any(np.isinf(value[0]) for value in columns.values())


def softmax_group(threads: list[int], *, fused: bool) -> CandidateGroup:
    """Two blocks over 1 x 1000: a sum and what divides by it; the sum across threads or by one."""
    blob = orjson.dumps(loglines.workload()).decode()
    task = Task("t", "metaschedule", "softmax", [], "cuda", "cuda", blob=blob)
    trace: list[list[object]] = [["GetBlock", [], ["sum", "main"], ["b0"]]]
    trace += [["GetConsumers", ["b0"], [], ["b1"]], ["GetLoops", ["b1"], [], ["l0", "l1"]]]
    trace += [["SampleCategorical", [], [[8, 64, 256]], ["v0"]]]
    trace += [["Split", ["l1", "None", "v0"], [1], ["l2", "l3"]]]
    trace += [["Bind", ["l3"], ["threadIdx.x"], []]]
    if fused:
        trace += [["ComputeAt", ["b0", "l0"], [1, -1], []]]
        trace += [["GetLoops", ["b0"], [], ["l4", "l5", "l6"]]]
        trace += [["Split", ["l6", "None", "v0"], [1], ["l7", "l8"]]]
        trace += [["Bind", ["l8"], ["threadIdx.x"], []]]
    trace += [
        ["GetBlock", [], ["norm", "main"], ["b2"]],
        ["GetLoops", ["b2"], [], ["m0", "m1", "m2"]],
    ]
    trace += [["Fuse", ["m0"], [1], ["m3"]], ["Bind", ["m3"], ["blockIdx.x"], []]]
    if not fused:
        trace += [["GetLoops", ["b0"], [], ["n0", "n1"]], ["Fuse", ["n0"], [1], ["n2"]]]
        trace += [["Split", ["n2", "None", 1], [1], ["n3", "n4"]]]
        trace += [["Bind", ["n3"], ["blockIdx.x"], []], ["Bind", ["n4"], ["threadIdx.x"], []]]
    skeleton = orjson.dumps(trace).decode()
    sketch = Sketch("s", "metaschedule", skeleton, (Knob("threads", "thread_binding", 0, 1),))
    return CandidateGroup(task, sketch, np.array([[n] for n in threads], dtype=np.int64))


def test_what_adds_up_without_tiles_is_a_reduction(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = (WorkloadBlock("T_softmax_maxelem", (12, 128, 64), (False, False, True)),)
    name = "toolkit.features.loops.roles.workload_blocks"
    monkeypatch.setattr(name, lambda task: blocks)
    task = Task("t", "metaschedule", "main", [], "llvm", "llvm", blob="{}")
    operation, factors, _ = assign_roles(task, Nest(1))
    assert operation.family == "reduction"
    assert (operation.extent("w"), operation.extent("ci")) == (12 * 128, 64)
    assert operation.flops == 12 * 128 * 64
    assert not factors


def test_threads_that_several_blocks_share_are_not_multiplied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    blocks = (
        WorkloadBlock("sum", (1, 1000), (False, True)),
        WorkloadBlock("norm", (1, 1000), (False, False)),
    )
    monkeypatch.setattr("toolkit.features.loops.trace_nest.workload_blocks", lambda task: blocks)
    nest = trace_nest(softmax_group([8, 256], fused=True))
    assert [extent.tolist() for extent in nest.threads] == [[8, 256]]
    assert np.asarray(nest.across).tolist() == [8, 256]
    assert [extent.tolist() for extent in nest.blocks] == [[1, 1]]
    assert nest.serial is not None
    assert nest.serial.tolist() == [2 * 1000 / 8, 2 * 1000 / 256]


def test_kernels_follow_one_another(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = (
        WorkloadBlock("sum", (1, 1000), (False, True)),
        WorkloadBlock("norm", (1, 1000), (False, False)),
    )
    monkeypatch.setattr("toolkit.features.loops.trace_nest.workload_blocks", lambda task: blocks)
    nest = trace_nest(softmax_group([64], fused=False))
    assert [extent.tolist() for extent in nest.threads] == [[64], [1]]
    assert nest.across == 1.0  # no block of a kernel shares its threads with another
    assert nest.serial is not None
    assert nest.serial.tolist() == [1000 / 64 + 1000]  # one thread adds everything up


def test_an_attached_stage_with_threads_of_its_own_is_no_kernel() -> None:
    # Ansor's cross-thread reduction: stage 1 follows the split of stage 2 and is attached to it
    def steps(threads: int) -> list[list[object]]:
        return [
            ["SP", 2, 2, 768, [threads], 1],
            ["AN", 2, 3, 6],
            ["FSP", 1, 3, 0, 1],
            ["AN", 1, 4, 6],
            ["CA", 1, 2, 2],
            ["FU", 2, [0, 1, 2]],
            ["AN", 2, 0, 5],
            ["PR", 1, 0, "auto_unroll_max_step$16"],
        ]

    columns = columns_of(ansor_group(steps(32), steps(64), task=GPU_TASK))
    assert columns["n_kernels"] == [1, 1]
    assert columns["thread_extent"] == [32, 64]
    assert columns["cross_threads"] == [32, 64]
