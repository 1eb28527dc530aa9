"""The recorded space stays inside the record and knows its neighbours."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_tables import SECOND, SKETCH, TILES, records, row, toy_rows, toy_table, toy_task

from toolkit.errors import DatasetError
from toolkit.records import Direction, Knob, Sketch
from toolkit.replay import RecordedSpace, RecordedTable
from toolkit.search.base import Composes, Indexed, Space
from toolkit.search.graph import NeighbourGraph


def test_it_keeps_the_roles() -> None:
    space = RecordedSpace(toy_table())
    assert isinstance(space, Space)
    assert isinstance(space, Indexed)
    assert isinstance(space, Composes)


@settings(max_examples=40)
@given(st.sets(st.tuples(*[st.sampled_from(TILES)] * 2, st.sampled_from((0, 16, 64))), min_size=1))
def test_the_graph_is_what_comparing_all_pairs_gives(kept: set[tuple[int, int, int]]) -> None:
    vectors = np.array([(7, x, 3, y, u) for x, y, u in sorted(kept)], dtype=np.int64)
    vectors[:, 0] = np.arange(len(vectors))  # outermost factors are no decisions
    graph = NeighbourGraph([SKETCH], np.zeros(len(vectors), dtype=np.int64), [vectors])
    free = vectors[:, [1, 3, 4]]
    for i, k in product(range(len(vectors)), range(3)):
        others = [c for c in range(3) if c != k]
        same = (free[:, others] == free[i, others]).all(axis=1) & (free[:, k] != free[i, k])
        assert sorted(graph.neighbours(i, k).tolist()) == np.flatnonzero(same).tolist()
        up = graph.one_way(i, k, "up")
        assert (np.diff(free[up, k]) > 0).all()
        assert sorted(up.tolist()) == [
            j for j in np.flatnonzero(same).tolist() if free[j, k] > free[i, k]
        ]
    assert graph.degree.tolist() == [len(graph.neighbours(i)) for i in range(len(vectors))]


def test_random_steps_reach_every_neighbour_and_nothing_else() -> None:
    space = RecordedSpace(toy_table())
    rng = np.random.default_rng(0)
    for start in (0, 17, 74):
        moved = space.graph.random_step(rng, np.full(2000, start))
        assert set(moved.tolist()) == set(space.graph.neighbours(start).tolist())


def test_sample_and_mutate_stay_inside_the_record() -> None:
    table = RecordedTable.from_records(records(toy_rows()[:30]), toy_task(), {"s0": SKETCH})
    space, rng = RecordedSpace(table), np.random.default_rng(1)
    inside = set(table.candidate_ids)
    sampled = space.sample(rng, 100)
    assert len(sampled) == len({c.candidate_id for c in sampled}) == 30
    for candidate in sampled:
        for direction in space.directions(candidate):
            moved = space.mutate(candidate, direction, rng)
            assert moved is not None
            assert moved.candidate_id in inside
            assert moved in space.neighbours(candidate, direction.knob)


def test_directions_say_exactly_where_neighbours_lie() -> None:
    space, rng = RecordedSpace(toy_table()), np.random.default_rng(0)
    corner = space.compose("s0", (0, 1, 0, 16, 16))
    assert corner is not None
    directions = {str(d) for d in space.directions(corner)}
    assert directions == {
        "tile:tile_x:up",
        "tile:tile_y:down",
        "unroll:unroll:up",
        "unroll:unroll:down",
    }
    assert space.mutate(corner, Direction("tile", "tile_x", "down"), rng) is None
    moved = space.mutate(corner, Direction("tile", None, "down"), rng)
    assert moved is not None
    assert moved.decisions[3] < 16


def test_compose_finds_what_was_recorded_whatever_the_outermost_factor() -> None:
    space = RecordedSpace(toy_table())
    for candidate in space.candidates():
        _, x, _, y, u = candidate.decisions
        assert space.compose("s0", (99, x, 99, y, u)) == candidate
    other = space.compose("s0", (0, 4, 0, 8, 48))
    assert other is not None
    assert space.index_of([other]).tolist() == [-1]
    assert space.compose("no such sketch", (1,)) is None


def test_grid_order_counts_with_the_first_knob_fastest() -> None:
    space = RecordedSpace(toy_table())
    first = [space.candidates()[i].decisions for i in space.grid_order()[:6]]
    assert [d[1] for d in first] == [1, 2, 4, 8, 16, 1]
    assert [d[3] for d in first] == [1, 1, 1, 1, 1, 2]


def test_grid_order_follows_autotvm_s_index_where_there_is_one() -> None:
    task = toy_task()
    rows = [
        row(task, (0, 1, 0, 1, u), 1e-3, i, format="autotvm", schedule=f'{{"index":{9 - i}}}')
        for i, u in enumerate((0, 16, 64))
    ]
    autotvm = type(task)(task.task_id, "autotvm", "toy", [], "llvm", "llvm")
    table = RecordedTable.from_records(records(rows), autotvm, {"s0": SKETCH})
    assert RecordedSpace(table).grid_order().tolist() == [2, 1, 0]


def test_sketches_do_not_mix() -> None:
    task = toy_task()
    rows = [row(task, (0, x, 0, 1, 0), 1e-3, i) for i, x in enumerate((1, 2, 4))]
    rows += [row(task, (0, x), 1e-3, 3 + i, sketch=SECOND) for i, x in enumerate((1, 2))]
    table = RecordedTable.from_records(records(rows), task, {"s0": SKETCH, "s1": SECOND})
    space = RecordedSpace(table)
    sketches = {c.candidate_id: c.sketch_id for c in space.candidates()}
    for candidate in space.candidates():
        assert {sketches[n.candidate_id] for n in space.neighbours(candidate)} == {
            candidate.sketch_id
        }
    assert {c.sketch_id for c in space.sample(np.random.default_rng(0), 9, "s1")} == {"s1"}
    assert space.features(space.candidates()).shape[0] == 5


def test_features_of_unrecorded_candidates_are_computed_too() -> None:
    space = RecordedSpace(toy_table())
    inside = space.candidates()[3]
    other = space.compose("s0", (0, 4, 0, 8, 48))
    assert other is not None
    matrix = space.features([inside, other, inside])
    assert matrix.shape[0] == 3
    assert np.array_equal(matrix[0], matrix[2])
    assert not np.array_equal(matrix[0], matrix[1])


def test_neighbourhood_coverage_is_one_only_for_a_full_grid() -> None:
    assert RecordedSpace(toy_table()).neighbourhood_coverage() == 1.0
    few = RecordedTable.from_records(records(toy_rows()[:20]), toy_task(), {"s0": SKETCH})
    assert 0.0 < RecordedSpace(few).neighbourhood_coverage() < 1.0


def test_a_task_without_knobs_is_a_space_of_one() -> None:
    bare = Sketch("s9", "ansor", "nothing to decide", ())
    task = toy_task()
    table = RecordedTable.from_records(
        records([row(task, (), 1e-3, 0, sketch=bare)]), task, {"s9": bare}
    )
    space = RecordedSpace(table)
    assert space.neighbours(space.candidates()[0]) == []
    assert space.features(space.candidates()).shape == (1, 1)


def test_multi_level_tiles_are_ordered_by_their_inner_extent() -> None:
    sketch = Sketch("s3", "ansor", "x", (Knob("t", "tile", 0, 3),))
    vectors = np.array([[0, 4, 4], [0, 1, 2], [0, 8, 1], [0, 1, 1]], dtype=np.int64)
    graph = NeighbourGraph([sketch], np.zeros(4, dtype=np.int64), [vectors])
    assert graph.group(0, 0).tolist() == [3, 1, 2, 0]


def test_no_record_is_an_error() -> None:
    with pytest.raises(DatasetError):
        RecordedTable.from_records(records([]), toy_task(), {"s0": SKETCH})
