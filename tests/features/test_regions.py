"""What runs in parallel: extents worked out by hand, and those of TVM for the same traces."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import orjson
import pytest

from toolkit.features.base import CandidateGroup
from toolkit.features.loops.executions import INLINED, Executions, Placed
from toolkit.features.loops.nest import Loop, Region
from toolkit.features.loops.parallel import (
    parallel_columns,
    region_columns,
    root_regions,
    share_columns,
    work_columns,
)
from toolkit.features.loops.program import ProgramBodies
from toolkit.features.loops.tiling import Tiling
from toolkit.features.loops.trace_nest import trace_nest
from toolkit.features.loops.vectors import Vectors, kept_sums, vectorised
from toolkit.features.task.operation import Operation
from toolkit.logs.formats.metaschedule.bodies import BlockBody, IndexTerm, Read

ONE = np.ones(1)


def loops(*extents: float, reduces: int = 0) -> list[Loop]:
    """Loops of a block; the last ones add up."""
    first = len(extents) - reduces
    return [Loop(np.array([float(e)]), n, n >= first) for n, e in enumerate(extents)]


def block(name: str, *extents: float, reduces: int = 0, **rest: Any) -> Placed:
    return Placed(name, float(np.prod(extents)) * ONE, loops(*extents, reduces=reduces), **rest)


def extents(*blocks: Placed, limit: float, vector: float = 64.0) -> list[tuple[float, float]]:
    executions = Executions(blocks, 1)
    vectors = vectorised(executions, vector * ONE)
    regions, _, _ = root_regions(executions, vectors, limit * ONE, 0)
    return [(float(r.extent[0]), float(r.steps[0])) for r in regions]


def accessing(*accesses: tuple[tuple[int, int], ...]) -> BlockBody:
    """The body of a block with these strides."""
    return BlockBody(1, 0, 0, (), (), accesses)


def test_loops_are_fused_up_to_the_one_that_exceeds_the_limit() -> None:
    product = block("C", 4, 7, 5, 3, 9, reduces=1)
    assert extents(product, limit=16) == [(28, 3780)]
    assert extents(product, limit=28) == [(140, 3780)]
    assert extents(product, limit=1e6) == [(420, 3780)]  # what reduces is not fused


def test_a_block_that_moved_in_ends_the_fused_loops() -> None:
    product = block("C", 4, 7, 9, reduces=1)
    assert extents(block("A", 4, 9, depth=0), product, limit=16) == [(4, 36 + 252)]
    # nothing is left to run in parallel where the loops outside are of extent 1
    alone = block("C", 1, 7, 9, reduces=1)
    assert extents(block("A", 1, 9, depth=0), alone, limit=16) == [(1, 9 + 63)]


def test_a_block_of_one_run_of_memory_is_cut_into_vectors() -> None:
    rows = ((0, 128), (1, 1))
    copy = block("norm", 128, 128, body=accessing(((0, 1),), rows))
    assert extents(copy, limit=32) == [(256, 16384)]
    transpose = block("T", 128, 128, body=accessing(((0, 1), (1, 128)), rows))
    assert extents(transpose, limit=32) == [(128, 16384)]
    # else its last loops become the vector and the others run in parallel
    into, out = ((1, 30 * 32), (2, 32), (3, 1)), ((1, 28 * 32), (2, 32), (3, 1))
    pad = block("pad", 1, 30, 30, 32, body=accessing(out, into))
    assert extents(pad, limit=32) == [(900, 28800)]


def vectors_of(*given: Placed, limit: float = 64.0) -> list[float]:
    return vectorised(Executions(given, 1), limit * ONE).extents[:, 0].tolist()


def test_vectors_are_the_innermost_loops_that_go_on_in_memory() -> None:
    left, right, out = ((0, 48), (2, 1)), ((1, 1), (2, 32)), ((0, 32), (1, 1))

    def product(*inner: float, split: bool = True) -> Placed:
        body = accessing(left, right, out)
        made = block("C", 8, 8, 48, reduces=1, body=body)
        source = "knob" if split else ""
        made.loops += [Loop(extent * ONE, n, False, source) for n, extent in enumerate(inner)]
        return made

    assert vectors_of(product(4, 8)) == [8]  # rows of A lie apart
    assert vectors_of(product(4, 65)) == [1]  # longer than the limit
    assert vectors_of(product(4, 1)) == [1]  # A's column is no vector of C
    assert vectors_of(block("C", 8, 8, 48, reduces=1, body=accessing(left, right, out))) == [1]
    # An image whose whole rows are in the tile goes on from row to row.
    whole = block("relu", 2, 4, 8, body=accessing(((0, 32), (1, 8), (2, 1))))
    assert vectors_of(whole, limit=32) == [32]
    # A loop that holds another block is none.
    held = block("relu", 2, 4, 8, body=accessing(((0, 32), (1, 8), (2, 1))))
    assert vectors_of(block("pad", 8, depth=1), held) == [4, 8]


def test_sums_stay_in_registers_through_what_is_unrolled_and_the_reductions_around_it() -> None:
    # A tiled product: i, j, then k, i, j, then k, i, and a vector of 8 columns.
    order = ((0, 9), (1, 9), (2, 12), (0, 2), (1, 2), (2, 4), (0, 2), (1, 8))
    nest = [Loop(extent * ONE, place, place == 2, "knob") for place, extent in order]
    product = Placed("C", 9 * 9 * 12 * 512 * ONE, nest, tiled=True)
    product.body = accessing(((0, 48), (2, 1)), ((1, 1), (2, 144)), ((0, 144), (1, 1)))
    executions = Executions([product], 1)
    vectors = vectorised(executions, 64 * ONE)

    def kept(step: float, lanes: float = 8.0) -> tuple[float, float]:
        sums, additions = kept_sums(executions, 0, vectors, step * ONE, lanes)
        return float(sums[0]), float(additions[0])

    assert kept(0) == (1, 1)  # each row's sum goes to memory before the next row's
    assert kept(2) == (2, 4)  # two rows stay through four steps of k
    assert kept(64) == (8, 48)  # four tiles of them through all of k
    assert kept(512, lanes=4.0) == (16, 48)


def test_what_is_computed_inside_loops_that_are_not_its_own_is_computed_again() -> None:
    exp, norm = block("exp", 16, 16), block("norm", 16, 16)

    def total(depth: float) -> float:
        top = block("max", 16, 16, reduces=1, depth=depth)
        return extents(top, exp, norm, limit=16)[0][1]

    assert total(-1) == 256
    assert total(0) == 512  # once a row, with exp beside it
    assert total(1) == 16 * 256 + 256  # for each of the 16 columns anew


def test_an_overlap_is_computed_again_where_its_readers_say_so() -> None:
    # Four tiles of four outputs; a window of 3 reads two elements of the next tile as well.
    axis = (IndexTerm(0), IndexTerm(1))
    window = BlockBody(2, 0, 0, (Read("pad", (axis,)),), (0,))
    sums = Placed("sums", 48 * ONE, [*loops(4), *loops(4, 3, reduces=1)], tiled=True, body=window)

    def steps(depth: float) -> float:
        pad = block("pad", 18, depth=depth, body=BlockBody(0, 0, 1, (), (0,)))
        executions = Executions([pad, sums], 1)
        assert executions.evaluations().tolist() == executions.steps.tolist()
        return float(executions.steps[0, 0])

    assert steps(-1) == 18
    assert steps(0) == 4 * (4 + 2)
    assert steps(1) == 4 * 4 * (1 + 2)
    assert steps(2) == 4 * 4 * 3


def test_an_inlined_body_runs_wherever_it_is_read() -> None:
    same = (IndexTerm(0),), (IndexTerm(1),)
    exp = block("exp", 8, 16, depth=INLINED, body=BlockBody(1, 1, 0, (), (0, 1)))
    sums = block("sum", 8, 16, reduces=1, body=BlockBody(1, 0, 0, (Read("exp", same),), (0,)))
    reads = Read("sum", same[:1]), Read("exp", same)
    norm = block("norm", 8, 16, body=BlockBody(1, 0, 0, reads, (0, 1)))
    executions = Executions([exp, sums, norm], 1)
    assert executions.evaluations()[:, 0].tolist() == [256, 128, 128]
    bodies = ProgramBodies(
        {one.name: one.body for one in (exp, sums, norm) if one.body is not None}
    )
    work = bodies.work(executions, dict.fromkeys(("exp", "sum", "norm"), 128))
    assert work is not None
    assert {name: column.tolist() for name, column in work_columns(work).items()} == {
        "arithmetic_over_least": [512 / 384],
        "branches_per_step": [0.0],
        "calls_over_least": [2.0],
        "calls_per_step": [1.0],
        "waits_per_step": [0.5],  # the sums of the rows, each with its additions one by one
    }
    assert ProgramBodies({}).work(executions, {}) is None


def test_additions_to_several_sums_in_turn_wait_less() -> None:
    rows = block("sum", 8, 64, 4, reduces=0)
    rows.loops[1].reduces = True  # 64 times over four sums that lie side by side
    executions = Executions([rows], 1)
    assert executions.sums[0].tolist() == [4]
    assert executions.waits().tolist() == [8 * 64 * 4 / 4]
    assert Executions([block("exp", 8, 64)], 1).waits().tolist() == [0]


def test_a_chain_is_what_adds_up_in_its_innermost_loop() -> None:
    row, tiled = block("max", 6, 10, reduces=1, depth=0), block("exp", 6, 10)
    tiled.loops[0].reduces = True  # an outer one: the innermost does not wait
    executions = Executions([row, tiled], 1)
    vectors = vectorised(executions, 64 * ONE)
    (region,) = root_regions(executions, vectors, 2 * ONE, 1)[0]
    assert (region.steps.tolist(), region.chained.tolist()) == ([120], [60])
    serial = Region(ONE, 40 * ONE, 30 * ONE)
    found = region_columns([Region(5 * ONE, 120 * ONE, 60 * ONE), serial], 2.0, None)
    assert found["chained_share"].tolist() == [90 / 160]
    assert found["chained_steps"].tolist() == [60 * 3 / 5 + 30]  # of the busiest thread
    assert "chained_steps" not in region_columns([Region(5 * ONE, ONE), serial], 2.0, None)


def test_inlined_blocks_are_no_nest() -> None:
    blocks = block("exp", 16, 16, depth=INLINED), block("norm", 16, 16)
    assert extents(*blocks, limit=1) == [(16, 256)]


def test_balance_and_shares_on_the_cores_that_there_are() -> None:
    extent = np.array([8.0, 12.0, 33.0, 1.0])
    two = parallel_columns(extent, 2.0, np.full(4, 66.0))
    assert two["thread_rounds"].tolist() == [4, 6, 17, 1]
    assert two["thread_balance"].tolist() == [1, 1, 33 / 34, 0.5]
    assert two["thread_work"].tolist() == [33, 33, 34, 66]
    assert two["parallel_fill_8"].tolist() == [1.0, 12 / 16, 33 / 40, 1 / 8]
    one = parallel_columns(extent, 1.0, np.full(4, 66.0))
    assert one["thread_balance"].tolist() == [1] * 4
    assert one["thread_work"].tolist() == [66] * 4
    unknown = parallel_columns(extent, np.nan, np.full(4, 66.0))
    assert np.isnan(unknown["thread_balance"]).all()
    assert unknown["parallel_extent"].tolist() == extent.tolist()


def test_threads_share_what_they_all_read() -> None:
    # 8 rows by 6 columns of depth 10: rows and columns split in 4 and 2
    factors = {
        "w": [np.array([4.0]), np.array([2.0])],
        "co": [np.array([2.0]), np.array([3.0])],
        "ci": [np.array([10.0])],
    }
    operation = Operation("matmul", {"w": 8, "co": 6, "ci": 10})
    tiling = Tiling(operation, factors, False, 1)
    fused = [("w", np.array([4.0])), ("co", np.array([2.0]))]
    found = share_columns(tiling, fused, np.array([8.0]), 2.0)
    # one iteration: 2 rows, 3 columns; a thread: 4 iterations, both columns of 2 rows: 4 by 6
    assert found["task_bytes"] == [4 * (2 * 10 + 3 * 10 + 2 * 3)]
    assert found["thread_data_bytes"] == [4 * 4 * 10]
    assert found["thread_weight_bytes"] == [4 * 6 * 10]
    assert found["thread_sharing"] == [2 * (40 + 60 + 24) / (80 + 60 + 48)]
    assert share_columns(tiling, fused, np.array([8.0]), 1.0)["thread_sharing"] == [1]


def test_serial_nests_cost_as_many_times_more_as_there_are_cores() -> None:
    regions = [
        Region(np.array([4.0, 4.0]), np.array([600.0, 600.0])),
        Region(np.array([1.0, 5.0]), np.array([300.0, 300.0])),
        Region(np.array([9.0, 9.0]), np.array([0.0, 0.0])),
    ]
    two = region_columns(regions, 2.0, 900.0)
    assert two["n_parallel"].tolist() == [1, 2]
    assert two["n_serial"].tolist() == [1, 0]
    assert two["serial_steps"].tolist() == [300 + 300, 300 + 180]
    assert two["serial_over_ideal"] == pytest.approx([600 / 450, 480 / 450])
    assert two["starts_per_step"].tolist() == [1 / 900, 2 / 900]
    assert two["region_steps_min"].tolist() == [600, 300]
    one = region_columns(regions, 1.0, 900.0)
    assert one["serial_over_ideal"].tolist() == [1, 1]
    assert one["starts_per_step"].tolist() == [0, 0]
    assert one["steps_over_least"].tolist() == [1, 1]
    unknown = region_columns(regions, np.nan, None)
    assert np.isnan(unknown["serial_over_ideal"]).all()
    assert np.isnan(unknown["starts_per_step"]).all()


def of_tvm(statement: Any, times: int = 1) -> dict[str, int]:
    """Iterations of each block below a statement, without those that set a sum to nought.

    And without the copies of weights, which are made when a network is loaded.
    """
    found: dict[str, int] = {}
    if hasattr(statement, "seq"):
        for part in statement.seq:
            found.update(of_tvm(part, times))
    elif hasattr(statement, "block"):
        name = str(statement.block.name_hint)
        inner = of_tvm(statement.block.body, times)
        packs = "meta_schedule.layout_rewrite_preproc" in statement.block.annotations
        found.update(inner or ({} if name.endswith("_init") or packs else {name: times}))
    elif hasattr(statement, "body"):
        found.update(of_tvm(statement.body, times * int(getattr(statement, "extent", 1))))
    return found


def vectors_in_tvm(statement: Any, extent: int = 1) -> dict[str, int]:
    """Extent of the vectorised loop around each block below a statement; 1 where there is none."""
    found: dict[str, int] = {}
    if hasattr(statement, "seq"):
        for part in statement.seq:
            found.update(vectors_in_tvm(part, extent))
    elif hasattr(statement, "block"):
        inner = vectors_in_tvm(statement.block.body, extent)
        found.update(inner or dict.fromkeys(of_tvm(statement), extent))
    elif hasattr(statement, "body"):
        # kind 2 is a vectorised loop
        here = int(statement.extent) if int(getattr(statement, "kind", 0)) == 2 else 1
        found.update(vectors_in_tvm(statement.body, extent * here))
    return found


def chained_in_tvm(statement: Any, loop: Any = None, times: int = 1) -> int:
    """Iterations of the blocks below a statement whose innermost loop adds up."""
    if hasattr(statement, "seq"):
        return sum(chained_in_tvm(part, loop, times) for part in statement.seq)
    if hasattr(statement, "loop_var"):
        inner = statement if int(statement.extent) > 1 else loop
        return chained_in_tvm(statement.body, inner, times * int(statement.extent))
    if not hasattr(statement, "block"):
        return chained_in_tvm(statement.body, loop, times) if hasattr(statement, "body") else 0
    block = statement.block
    if of_tvm(block.body):
        return chained_in_tvm(block.body, loop, times)
    sums = [
        str(value)
        for iterator, value in zip(block.iter_vars, statement.iter_values, strict=True)
        if int(iterator.iter_type) == 2  # what is added up
    ]
    adds = any(re.search(rf"\b{loop.loop_var.name}\b", value) for value in sums)
    return times if adds and not str(block.name_hint).endswith("_init") else 0


@pytest.mark.live
@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize(
    "name",
    [
        "softmax_mn:24,40",
        "norm_bmn:64,6,10",
        "matmul_relu:32,32,48",
        "conv2d_nhwc_bn_relu:1,14,14,16,32,3,1,1",
        "conv2d_nhwc:1,14,14,32,32,3,2,1,1,4",
        "conv1d_nlc:1,64,16,32,3,1,1",
        "depthwise_bias_relu6:1,14,14,32,3,1,1",
        "transpose_batch_matmul:1,64,4,32",
        "max_pool2d:1,20,20,16,3,2,1",
        "dense_bias_gelu:32,64,48",
        "layer_norm:16,96",
    ],
)
def test_tvm_makes_the_same_loops(name: str, cores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from toolkit.live.space.design import DesignSpace
    from toolkit.live.space.space import MetaScheduleSpace
    from toolkit.live.workloads.named import parse_workload

    (workload,) = parse_workload(name)
    target = orjson.dumps({"kind": "llvm", "num-cores": cores}).decode()
    space = MetaScheduleSpace(DesignSpace(workload.module, target))
    chosen: list[Any] = []

    def kept(executions: Executions, limit: Any) -> Vectors:
        found = vectorised(executions, limit)
        chosen[:] = [(found, executions.depth > INLINED)]
        return found

    monkeypatch.setattr("toolkit.features.loops.trace_nest.vectorised", kept)
    rng = np.random.default_rng(0)
    for sketch in space.sketches:
        found = space.sample(rng, 6, sketch.sketch_id)
        decisions = np.array([c.decisions for c in found], dtype=np.int64)
        nest = trace_nest(CandidateGroup(space.task, sketch, decisions))
        for row, candidate in enumerate(found):
            design = space.realise(candidate)
            if design is None:
                continue
            body = design.schedule.mod["main"].body.block.body
            parts = list(body.seq) if hasattr(body, "seq") else [body]
            parts = [part for part in parts if of_tvm(part)]
            # kind 1 is a parallel loop
            extents = [int(part.extent) if int(part.kind) == 1 else 1 for part in parts]
            nests = [region for region in nest.regions if region.steps[row] != 0]
            assert [region.extent[row] for region in nests] == extents
            steps = [sum(of_tvm(part).values()) for part in parts]
            assert [region.steps[row] for region in nests] == steps
            ((vectors, there),) = chosen
            extents = vectors.extents[there[:, row], row]
            assert sorted(extents) == sorted(vectors_in_tvm(body).values())
            chained = [chained_in_tvm(part) for part in parts]
            assert [region.chained[row] for region in nests] == chained
