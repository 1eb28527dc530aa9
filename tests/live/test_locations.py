"""Compute locations are settled as TVM settles them, for every tiling."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from toolkit.live.measure.machine import default_target
from toolkit.live.space.choices import choices, redrawn
from toolkit.live.space.design import DesignSpace
from toolkit.live.space.locations import INLINE, ROOT, LocatedLoop, Locations, learn_locations
from toolkit.live.space.space import MetaScheduleSpace
from toolkit.live.workloads.named import parse_workload

WORKLOADS = (
    "conv2d_nhwc:1,14,14,16,16,3,1,1",
    "depthwise_conv2d_nhwc:1,28,28,32,3,2,1",
    "norm_bmn:2,32,32",
    "softmax_mn:16,64",
)


@pytest.mark.parametrize("name", WORKLOADS)
def test_tvm_takes_every_settled_program_and_changes_none_of_its_own(name: str) -> None:
    (workload,) = parse_workload(name)
    space, rng = DesignSpace(workload.module, default_target(1)), np.random.default_rng(0)
    refused = 0
    for sketch in range(min(3, len(space.bases))):
        designs = [design for _ in range(6) if (design := space.sample(rng, sketch)) is not None]
        for design in designs:
            assert space.settled(sketch, design.chosen) == design.chosen
            drawn = redrawn(design.chosen, rng)
            refused += space.realise(sketch, drawn) is None
            assert space.realise(sketch, space.settled(sketch, drawn)) is not None
    if "conv2d" in name:
        assert refused > 0


def test_what_is_sampled_mutated_or_next_to_it_can_be_built() -> None:
    (workload,) = parse_workload("conv2d_nhwc:1,14,14,16,16,3,1,1")
    space = MetaScheduleSpace(DesignSpace(workload.module, default_target(1)))
    rng = np.random.default_rng(3)
    drawn = space.sample(rng, 24)
    for candidate in drawn[:6]:
        moved = [space.mutate(candidate, d, rng) for d in space.directions(candidate)]
        assert candidate not in moved
        drawn += [c for c in moved if c is not None]
        near = space.neighbours(candidate)
        drawn += [near[i] for i in rng.permutation(len(near))[:4].tolist()]
    assert all(space.realise(candidate) is not None for candidate in drawn)


@pytest.mark.parametrize("name", WORKLOADS[:3])
def test_values_of_a_location_are_those_that_tvm_s_mutator_draws(name: str) -> None:
    (workload,) = parse_workload(name)
    space, rng = DesignSpace(workload.module, default_target(1)), np.random.default_rng(1)
    compared = 0
    for sketch in range(min(3, len(space.bases))):
        design = space.sample(rng, sketch)
        located = [c for c in choices(design.chosen) if c.kind == "compute_location"]
        rule = learn_locations(space.module, design.chosen)
        if rule is None or not located:
            continue
        (choice,) = (c for c in located if c.position == rule.position)
        drawn: set[int] = set()
        for _ in range(8):
            drawn |= set(space._ask_mutator(choice, design.chosen, rng))
        tiles = {int(position): value for position, value in design.chosen[1]}
        assert drawn | {choice.value} == set(rule.values(tiles))
        compared += 1
    assert compared


def test_the_rule_by_hand() -> None:
    """Spatial, reduction, spatial: below a loop over a reduction no spatial one is possible."""
    loops = (
        LocatedLoop((3, 0), False),
        LocatedLoop((3, 1), False),
        LocatedLoop((5, 0), True),
        LocatedLoop(4, False),
    )
    rule = Locations(9, loops, inline=True)
    assert rule.possible({3: [2, 8], 5: [3, 1]}) == [0, 1, 2]
    assert rule.possible({3: [2, 1], 5: [1, 3]}) == [0, 3]
    assert [rule.taken(w, {3: [2, 1], 5: [1, 3]}) for w in (-2, -1, 0, 1, 2, 3, 99)] == [
        INLINE,
        ROOT,
        0,
        0,
        0,
        3,
        3,
    ]
    assert rule.taken(1, {3: [1, 1], 5: [1, 3]}) == ROOT
    assert Locations(9, loops, inline=False).taken(INLINE, {3: [2, 8], 5: [3, 1]}) == ROOT
    trace = [[], [[3, [1, 16]], [5, [3, 1]], [9, 0]]]
    before = copy.deepcopy(trace)
    assert rule.settled(trace) == [[], [[3, [1, 16]], [5, [3, 1]], [9, ROOT]]]
    assert trace == before
    same = [[], [[3, [2, 8]], [5, [3, 1]], [9, 2]]]
    assert rule.settled(same) is same


def test_a_sketch_without_locations_has_none_to_learn() -> None:
    (workload,) = parse_workload("matmul:32,32,32")
    space = DesignSpace(workload.module, default_target(1))
    design = space.sample(np.random.default_rng(0), 0)
    assert design is not None
    assert learn_locations(workload.module, design.chosen) is None
    assert space.settled(0, design.chosen) is design.chosen
