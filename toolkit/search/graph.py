"""Which candidates differ in exactly one decision, for a whole finite space at once.

Candidates that agree in everything but one knob form a *group* of that knob. Groups are found by
hashing each candidate's decisions with the knob left out, and sorting: O(knobs · n log n), with
no comparison of pairs. Inside a group candidates stand in the order of the knob's value, so that
"up" and "down" are positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from toolkit.records import Direction, Knob, Sketch, iter_ways

IntArray = NDArray[np.int64]


def knob_order(knob: Knob, decisions: IntArray) -> IntArray:
    """Sort keys ``(n, 1 + parts)`` that order candidates by one knob's value.

    A tile comes by the product of its free parts (the inner extent), then by the parts themselves,
    outermost first; any other knob by its value, or by its place among the choices that are known.
    """
    parts = decisions[:, knob.free]
    if knob.kind == "tile":
        return np.column_stack([parts.prod(axis=1), parts])
    if knob.choices is not None and knob.width == 1:
        place = {value: i for i, value in enumerate(knob.choices)}
        ranks = [place.get(v, len(place)) for v in parts[:, 0].tolist()]
        return np.column_stack([np.array(ranks, dtype=np.int64), parts])
    return np.column_stack([parts[:, 0], parts])


def _mix(values: NDArray[np.uint64], column: int) -> NDArray[np.uint64]:
    """Hash values of one column (splitmix64, Steele et al. 2014), seeded by the column."""
    z: NDArray[np.uint64] = values + np.uint64(
        (column + 1) * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF
    )
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return z


def knob_hash(knob: Knob, decisions: IntArray) -> NDArray[np.uint64]:
    """Hash the free parts of one knob, one number a candidate; sums identify whole candidates."""
    total = np.zeros(len(decisions), dtype=np.uint64)
    for column in range(knob.free.start, knob.free.stop):
        total += _mix(decisions[:, column].astype(np.uint64), column)
    return total


class NeighbourGraph:
    """One-decision neighbours of candidates numbered 0 to n - 1.

    Parameters
    ----------
    sketches
        The sketches of the space.
    sketch_of
        Number of each candidate's sketch, ``(n,)``.
    decisions
        For each sketch the decisions of its candidates in order, ``(n_sketch, width)``.

    Attributes
    ----------
    knobs
        Largest number of knobs of a sketch; arrays have that many rows, and a knob that a
        candidate's sketch does not have is a group of one.
    members, place, start, count
        ``(knobs, n)``: the candidates in group order, each one's position in ``members``, where
        its group begins, and how many are in it (itself included).
    rank
        ``(knobs, n)``: place of the candidate's value among those that occur in its sketch.
    values
        For each sketch and knob those values, ``(distinct, free parts)``, in the order of rank.
    degree
        Number of neighbours of each candidate, ``(n,)``.
    """

    def __init__(
        self, sketches: Sequence[Sketch], sketch_of: IntArray, decisions: Sequence[IntArray]
    ) -> None:
        self.sketches = tuple(sketches)
        self.sketch_of = np.asarray(sketch_of, dtype=np.int64)
        n = len(self.sketch_of)
        self.knobs = max((len(s.knobs) for s in self.sketches), default=0)
        by_sketch = np.argsort(self.sketch_of, kind="stable")
        position = np.empty(n, dtype=np.int64)
        position[by_sketch] = np.arange(n)
        self.members = np.tile(by_sketch, (self.knobs, 1))
        self.place = np.tile(position, (self.knobs, 1))
        self.start = self.place.copy()
        self.count = np.ones((self.knobs, n), dtype=np.int64)
        self.rank = np.zeros((self.knobs, n), dtype=np.int64)
        self.values: list[list[IntArray]] = []
        # What strategies derive from the space alone is kept here, for all runs on it.
        self.kept: dict[Any, Any] = {}
        # Whether a knob has an up and a down.
        self.ordered = np.zeros((len(self.sketches), self.knobs), dtype=bool)
        base = 0
        for s, sketch in enumerate(self.sketches):
            for k, knob in enumerate(sketch.knobs):
                self.ordered[s, k] = bool(list(iter_ways(knob)))
            rows = by_sketch[base : base + int((self.sketch_of == s).sum())]
            self._add_sketch(sketch, rows, base, np.asarray(decisions[s], dtype=np.int64))
            base += len(rows)
        self.degree = (self.count - 1).sum(axis=0)

    def _add_sketch(self, sketch: Sketch, rows: IntArray, base: int, decisions: IntArray) -> None:
        hashes = [knob_hash(knob, decisions) for knob in sketch.knobs]
        values: list[IntArray] = []
        for k, knob in enumerate(sketch.knobs):
            distinct, rank = np.unique(knob_order(knob, decisions), axis=0, return_inverse=True)
            values.append(distinct[:, 1:])
            rank = rank.reshape(-1)
            self.rank[k, rows] = rank
            rest = np.zeros(len(rows), dtype=np.uint64)
            for other, part in enumerate(hashes):
                if other != k:
                    rest += part
            order = np.lexsort((rank, rest))
            grouped = rest[order]
            first = np.flatnonzero(np.r_[True, grouped[1:] != grouped[:-1]][: len(rows)])
            sizes = np.diff(np.r_[first, len(rows)])
            ordered = rows[order]
            self.members[k, base : base + len(rows)] = ordered
            self.place[k, ordered] = base + np.arange(len(rows))
            self.start[k, ordered] = np.repeat(base + first, sizes)
            self.count[k, ordered] = np.repeat(sizes, sizes)
        self.values.append(values)

    def knob_number(self, candidate: int, name: str) -> int:
        """Row of a knob in the candidate's sketch; raise ``KeyError`` when it has none such."""
        for k, knob in enumerate(self.sketches[self.sketch_of[candidate]].knobs):
            if knob.name == name:
                return k
        raise KeyError(name)

    def group(self, candidate: int, knob: int) -> IntArray:
        """Candidates that differ in that knob alone, the candidate itself among them."""
        start = self.start[knob, candidate]
        members: IntArray = self.members[knob, start : start + self.count[knob, candidate]]
        return members

    def neighbours(self, candidate: int, knob: int | None = None) -> IntArray:
        """Candidates that differ in exactly one decision: that knob's, or any."""
        knobs = range(len(self.sketches[self.sketch_of[candidate]].knobs))
        groups = [self.group(candidate, k) for k in (knobs if knob is None else (knob,))]
        everything: IntArray = np.concatenate([np.empty(0, dtype=np.int64), *groups])
        others: IntArray = everything[everything != candidate]
        return others

    def one_way(self, candidate: int, knob: int, way: Literal["up", "down"] | None) -> IntArray:
        """Neighbours in a knob with a higher value (nearest first), a lower one, or any."""
        group = self.group(candidate, knob)
        here = int(self.place[knob, candidate] - self.start[knob, candidate])
        if way == "up":
            return group[here + 1 :]
        if way == "down":
            return group[:here][::-1]
        return np.delete(group, here)

    def directions(self, candidate: int) -> list[Direction]:
        """Directions in which at least one neighbour lies, in the order of the knobs."""
        found = []
        for k, knob in enumerate(self.sketches[self.sketch_of[candidate]].knobs):
            count = int(self.count[k, candidate])
            if count < 2:
                continue
            here = int(self.place[k, candidate] - self.start[k, candidate])
            ways = list(iter_ways(knob))
            if not ways:
                found.append(Direction(knob.kind, knob.name))
            if "up" in ways and here + 1 < count:
                found.append(Direction(knob.kind, knob.name, "up"))
            if "down" in ways and here > 0:
                found.append(Direction(knob.kind, knob.name, "down"))
        return found

    def step(self, rng: np.random.Generator, candidates: IntArray, knobs: IntArray) -> IntArray:
        """Move each candidate to a random other member of its group of that knob.

        Candidates that are alone in their group stay where they are.
        """
        start = self.start[knobs, candidates]
        count = self.count[knobs, candidates]
        here = self.place[knobs, candidates] - start
        # Draw among the other count - 1 members: a draw at or past oneself is one further on.
        drawn = (rng.random(len(candidates)) * (count - 1)).astype(np.int64)
        drawn += (drawn >= here) & (count > 1)
        moved: IntArray = self.members[knobs, start + drawn]
        return moved

    def random_step(self, rng: np.random.Generator, candidates: IntArray) -> IntArray:
        """Move each candidate along a random knob in which it has a neighbour at all."""
        movable = self.count[:, candidates] > 1
        draws = np.where(movable, rng.random(movable.shape), -1.0)
        return self.step(rng, candidates, draws.argmax(axis=0))

    def weighted_step(
        self, rng: np.random.Generator, candidates: IntArray, weights: NDArray[np.float64]
    ) -> IntArray:
        """Move each candidate along a knob drawn by weight among those in which it can move.

        ``weights`` is ``(sketches, knobs)``; a candidate without any movable knob stays.
        """
        chances = np.where(self.count[:, candidates] > 1, weights[self.sketch_of[candidates]].T, 0)
        # The largest log(weight) + Gumbel noise is a draw in proportion to the weights.
        with np.errstate(divide="ignore"):
            keys = np.log(chances) - np.log(-np.log(rng.random(chances.shape)))
        return self.step(rng, candidates, keys.argmax(axis=0))

    def step_way(self, rng: np.random.Generator, candidates: IntArray, slots: IntArray) -> IntArray:
        """Move each candidate in a direction: slot 2 k is up in knob k (or any), 2 k + 1 down.

        Unordered knobs have one direction, slot 2 k. Where nothing lies there a candidate stays.
        """
        knobs, down = slots // 2, slots % 2 == 1
        start, count = self.start[knobs, candidates], self.count[knobs, candidates]
        here = self.place[knobs, candidates] - start
        up = self.ordered[self.sketch_of[candidates], knobs] & ~down
        low = np.where(up, here + 1, 0)
        high = np.where(up, count, np.where(down, here, count - 1))
        drawn = low + (rng.random(len(candidates)) * np.maximum(high - low, 0)).astype(np.int64)
        drawn = np.where(~up & ~down & (drawn >= here), drawn + 1, drawn)
        moved: IntArray = self.members[knobs, start + np.where(high > low, drawn, here)]
        return moved

    def slots(self, candidate: int) -> list[tuple[int, Direction]]:
        """Directions of a candidate with their slots (see ``step_way``)."""
        found = []
        for direction in self.directions(candidate):
            k = self.knob_number(candidate, str(direction.knob))
            found.append((2 * k + (direction.way == "down"), direction))
        return found
