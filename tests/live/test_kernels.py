"""A live space by the rules that records have: every other tile, and up apart from down."""

from __future__ import annotations

import numpy as np

from toolkit.live.space.choices import all_values, choices, other_values
from toolkit.live.space.design import DesignSpace
from toolkit.live.space.space import MetaScheduleSpace
from toolkit.search.moves.knobs import divisor_moves, way_between


def test_a_direction_with_a_way_leads_that_way(design: DesignSpace) -> None:
    space, rng = MetaScheduleSpace(design, machine="bench", ways=True), np.random.default_rng(5)
    led = []
    for candidate in space.sample(rng, 6):
        sketch = next(s for s in space.sketches if s.sketch_id == candidate.sketch_id)
        for direction in space.directions(candidate):
            moved = space.mutate(candidate, direction, rng)
            if moved is not None and direction.way is not None and direction.knob is not None:
                knob = sketch.knob(direction.knob)
                way = way_between(knob, candidate.decisions, moved.decisions)
                assert way == direction.way
                led.append(way)
    assert {"up", "down"} == set(led)


def test_a_tile_becomes_what_the_kernel_says(design: DesignSpace) -> None:
    tiles = [c for base in design.bases for c in choices(base) if c.kind == "tile"]
    assert tiles
    for tile in tiles:
        every = [v for v in all_values(tile) if v != tile.value]
        assert other_values(tile, "any-value") == every
        near = other_values(tile, "one-divisor")
        assert near == divisor_moves(tile.value, tile.limits[1])
        assert all(value in every for value in near)
