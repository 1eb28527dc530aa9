"""Limits of parallel loops are computed; TVM's mutator proposes none that does more."""

from __future__ import annotations

import numpy as np
import pytest
import tvm_ffi
from tvm.s_tir.meta_schedule import _ffi_api

from toolkit.live.measure.machine import default_target
from toolkit.live.space.choices import choices, with_value
from toolkit.live.space.design import Design, DesignSpace
from toolkit.live.space.parallel import parallel_limits, same_plan
from toolkit.live.space.programs import decisions_of, plain, trace_json
from toolkit.live.workloads.named import parse_workload

WORKLOADS = (
    "conv2d_nhwc:1,14,14,16,16,3,1,1",
    "depthwise_bias_relu6:1,28,28,32,3,2,1",
    "softmax:4,16,64",
    "layer_norm:16,64",
    "max_pool2d:1,20,20,16,3,2,1",
)


def _same_program(one: Design | None, other: Design) -> bool:
    return one is not None and tvm_ffi.structural_equal(one.schedule.mod, other.schedule.mod)


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_limit_that_tvm_draws_and_that_changes_a_program_is_computed(name: str) -> None:
    (workload,) = parse_workload(name)
    space, rng = DesignSpace(workload.module, default_target(2)), np.random.default_rng(0)
    mutator = space._mutators["MutateParallel"]
    compared = 0
    for sketch in range(len(space.bases)):
        for start in (None, 4):
            design = space.sample(rng, sketch)
            assert design is not None
            choice = next((c for c in choices(design.chosen) if c.kind == "parallel"), None)
            if choice is None:
                continue
            if start is not None:
                design = space.realise(sketch, with_value(design.chosen, choice, start))
                assert design is not None
                choice = next(c for c in choices(design.chosen) if c.kind == "parallel")
            schedule = space._applied(design.chosen)
            assert schedule is not None
            seeds = rng.integers(1, 2**31 - 1, size=20).tolist()
            drawn = [_ffi_api.MutatorApply(mutator, schedule.trace, seed) for seed in seeds]
            tvms = {plain(d.insts[choice.position].inputs[1]) for d in drawn if d is not None}
            computed = space._parallel_limits(choice, sketch, design.chosen)
            for limit in tvms - set(computed):
                other = space.realise(sketch, with_value(design.chosen, choice, limit))
                assert _same_program(other, design)
            compared += len(computed)
    assert compared > 0


def test_limits_that_fuse_the_same_loops_are_one_plan() -> None:
    limits = (2, 14, 28)
    assert same_plan(limits, 14, 16) and same_plan(limits, 27, 14) and same_plan(limits, 30, 28)
    assert not same_plan(limits, 1, 2) and not same_plan(limits, 28, 16)


def test_loops_over_a_reduction_end_what_is_fused() -> None:
    (workload,) = parse_workload("row_sum:8,64")
    # Rows are spatial, columns are summed: only the rows can be shared among threads.
    assert parallel_limits(workload.module, 32) == (8,)
    assert parallel_limits(workload.module, 7) == ()


def test_decisions_are_read_as_the_whole_trace_has_them() -> None:
    (workload,) = parse_workload(WORKLOADS[0])
    space = DesignSpace(workload.module, default_target(1))
    drawn = space.draw(np.random.default_rng(5))
    assert drawn is not None
    _, chosen, schedule = drawn
    assert chosen == trace_json(schedule.trace)
    assert decisions_of(schedule, (p for p, _ in chosen[1])) == chosen[1]
