"""Arrays are an accelerator: each search in them does what the objects do, by the same rules."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolkit.records import Candidate, Direction, Knob, Sketch, iter_ways
from toolkit.search.base import Indexed, Space
from toolkit.search.graph import NeighbourGraph
from toolkit.search.moves.genes import LatticeGenes, draw_pairs
from toolkit.search.moves.knobs import (
    Kernel,
    can_become,
    crossed,
    divisor_moves,
    divisors,
    second_parent,
    way_between,
)
from toolkit.search.moves.movers import ANSOR_WEIGHTS, GuidedMover, Mover, WeightedMover
from toolkit.search.moves.steps import Stepper
from toolkit.search.moves.walk import IndexedWalk, Walk
from toolkit.testing.spaces import finite_space, two_sketch_space
from toolkit.testing.strategies import KnowsTheFormula

KERNELS: tuple[Kernel, ...] = ("any-value", "one-divisor")
WAYS = (None, "up", "down")


def tiles(extent: int, levels: int) -> list[tuple[int, ...]]:
    """All factorisations, outermost first."""
    inner = product(divisors(extent), repeat=levels - 1)
    return [(extent // prod(rest), *rest) for rest in inner if extent % prod(rest) == 0]


@given(st.integers(1, 96), st.integers(1, 4))
def test_a_divisor_moves_the_same_by_object_and_by_array(extent: int, levels: int) -> None:
    knob = Knob("tile", "tile", 0, levels)
    every = tiles(extent, levels)
    free = np.array(every, dtype=np.int64)[:, knob.free]
    for value, here in zip(every, free, strict=True):
        near = can_become(knob, np.broadcast_to(here, free.shape), free, "one-divisor")
        moved = {tuple(found) for found in divisor_moves(value, innermost=extent)}
        assert {every[i] for i in np.flatnonzero(near).tolist()} == moved
        others = can_become(knob, np.broadcast_to(here, free.shape), free, "any-value")
        assert int(others.sum()) == len(every) - 1


def test_the_innermost_factor_keeps_its_limit() -> None:
    assert {tuple(t) for t in divisor_moves([4, 2], innermost=4)} == {(2, 4), (8, 1)}


SKETCH = Sketch(
    "s",
    "metaschedule",
    "toy",
    (
        Knob("tile", "tile", 0, 3),
        Knob("unroll", "unroll", 3, 1, choices=(64, 0, 16)),
        Knob("place", "compute_location", 4, 1),
    ),
)
RECORD = st.sets(
    st.tuples(
        st.sampled_from(tiles(12, 3)), st.sampled_from((64, 0, 16)), st.sampled_from((-1, 3))
    ),
    min_size=1,
    max_size=40,
)


def object_moves(
    here: Sequence[int], knob: Knob, way: str | None, kernel: Kernel, recorded: np.ndarray[Any, Any]
) -> list[int]:
    """Numbers of recorded candidates that one mutation makes of another, by the object rules."""
    begin, end = knob.offset, knob.offset + knob.width
    found = []
    for i, other in enumerate(recorded.tolist()):
        same = other[:begin] == here[:begin] and other[end:] == here[end:]
        if not same or other == here:
            continue
        if kernel == "one-divisor" and knob.kind == "tile":
            same = other[begin:end] in divisor_moves(here[begin:end], innermost=12)
        if same and way in (None, way_between(knob, here, other)):
            found.append(i)
    return found


@settings(max_examples=25)
@given(RECORD, st.sampled_from(KERNELS), st.integers(0, 2**32 - 1))
def test_a_record_moves_as_its_objects_do(
    kept: set[tuple[tuple[int, ...], int, int]], kernel: Kernel, seed: int
) -> None:
    vectors = np.array([(*tile, u, p) for tile, u, p in sorted(kept)], dtype=np.int64)
    graph = NeighbourGraph([SKETCH], np.zeros(len(vectors), dtype=np.int64), [vectors], kernel)
    rng = np.random.default_rng(seed)
    for i, here in enumerate(vectors.tolist()):
        possible: list[Direction] = []
        for k, knob in enumerate(SKETCH.knobs):
            by_way = {way: object_moves(here, knob, way, kernel, vectors) for way in WAYS}
            for way in WAYS:
                assert sorted(graph.one_way(i, k, way).tolist()) == by_way[way]  # type: ignore[arg-type]
            stepped = graph.step(rng, np.full(40, i), np.full(40, k)).tolist()
            assert set(stepped) <= set(by_way[None] or [i])
            ways = tuple(iter_ways(knob)) or (None,)
            possible += [Direction(knob.kind, knob.name, w) for w in ways if by_way[w]]
        assert graph.directions(i) == possible
        for slot, direction in graph.slots(i):
            way, k = direction.way, slot // 2
            moved = graph.step_way(rng, np.full(40, i), np.full(40, slot)).tolist()
            assert set(moved) <= set(object_moves(here, SKETCH.knobs[k], way, kernel, vectors))
        assert graph.degree[i] == len(graph.neighbours(i))


class Unlisted:
    """A finite space seen as one that has no numbers."""

    def __init__(self, space: Any) -> None:
        for name in ("task", "sketches", "size", "candidates", "sample", "neighbours", "features"):
            setattr(self, name, getattr(space, name))
        self.directions, self.mutate = space.directions, space.mutate


def forms(space: Any) -> tuple[Any, Any]:
    """A space, and itself without numbers."""
    unlisted = Unlisted(space)
    assert isinstance(unlisted, Space) and not isinstance(unlisted, Indexed)
    return space, unlisted


def movers(space: Any) -> dict[str, Mover]:
    scorer = KnowsTheFormula()
    return {
        "any": Mover(space),
        "weighted": WeightedMover(space, ANSOR_WEIGHTS),
        "unweighted": WeightedMover(space, {"unroll": 0.5, "tile": 0.5}),
        "best": GuidedMover(space, scorer, "best", None),
        "sampled": GuidedMover(space, scorer, "sampled", 0.5),
    }


@settings(max_examples=6)
@given(st.sampled_from(["any", "weighted", "unweighted", "best", "sampled"]), st.integers(0, 39))
def test_a_mover_has_one_law_in_arrays_and_in_objects(name: str, start: int) -> None:
    """Of 40 candidates of 75, so that some knobs cannot move."""
    listed, unlisted = forms(finite_space(keep=40))
    n, every = 1500, listed.candidates()
    numbers = movers(listed)[name].numbers(np.random.default_rng(1), np.full(n, start))
    rng, mover = np.random.default_rng(2), movers(unlisted)[name]
    moved = [mover.moved(rng, every[start]) or every[start] for _ in range(n)]
    shares = np.array([np.bincount(numbers, minlength=40), np.zeros(40)]) / n
    np.add.at(shares[1], listed.index_of(moved), 1 / n)
    noise = np.sqrt(shares.sum(axis=0) / n) + 1 / n
    assert (np.abs(shares[0] - shares[1]) < 5 * noise).all()


@given(st.integers(0, 74), st.integers(15, 75))
def test_steps_along_a_knob_are_the_same_in_both(number: int, keep: int) -> None:
    listed, unlisted = forms(finite_space(keep=keep))
    candidate = listed.candidates()[number % keep]
    for knob in listed.sketches[0].knobs:
        ours = Stepper(listed).sides(candidate, knob.name)
        assert ours == Stepper(unlisted).sides(candidate, knob.name)


@pytest.mark.parametrize("make", [finite_space, two_sketch_space])
def test_a_walk_keeps_the_same_books_in_both(make: Any) -> None:
    listed, unlisted = forms(make())
    rng, walks = np.random.default_rng(3), (IndexedWalk(listed), Walk(unlisted))
    visited = [listed.candidates()[i] for i in (5, 70, 5, 33, 12)]
    seen = {visited[1].candidate_id}
    found = []
    for walk in walks:
        walk.rescore(lambda features: features.sum(axis=1).astype(np.float64))
        states = walk.start(rng, len(visited), visited)
        assert walk.candidates(states) == visited
        scores = walk.scores(states)
        best, values = walk.best(rng, 2, seen)
        found.append((scores.tolist(), walk.visited(), best, values.tolist()))
    assert found[0] == found[1]
    assert found[0][1] == 4


@given(st.integers(0, 2**32 - 1), st.integers(1, 12))
def test_children_are_crossed_the_same_in_arrays_and_in_objects(seed: int, n: int) -> None:
    space = finite_space()
    genes, knobs = LatticeGenes(space), space.sketches[0].knobs
    parents = genes.random(np.random.default_rng(seed), 9, set())
    weights = np.full(9, 1 / 9)
    children = genes.breed(np.random.default_rng(seed), parents, weights, n, 0.0, None)
    rng = np.random.default_rng(seed)
    first, second = draw_pairs(rng, weights, n)
    points = rng.integers(len(knobs), size=n)
    known: list[Candidate] = genes.candidates(parents)
    for child, a, b, point in zip(genes.candidates(children), first, second, points, strict=True):
        assert list(child.decisions) == crossed(
            knobs, known[a].decisions, known[b].decisions, int(point)
        )
    tails = second_parent(len(knobs), points)
    assert tails.sum(axis=1).tolist() == (len(knobs) - points).tolist()
