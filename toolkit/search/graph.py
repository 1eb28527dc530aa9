"""Which candidates differ in exactly one decision, for a whole finite space at once.

Candidates that agree in everything but one knob form a *group* of that knob. Groups are found by
hashing each candidate's decisions with the knob left out, and sorting: O(knobs · n log n), with
no comparison of pairs. Inside a group candidates are sorted by the knob's value, so that "up"
and "down" are positions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from toolkit.records import Direction, Knob, Sketch, iter_ways
from toolkit.search.moves.knobs import IntArray, Kernel, can_become, knob_order

__all__ = ["NeighbourGraph", "knob_hash", "knob_order"]

T = TypeVar("T")


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
    """Hash the free parts of one knob, one number per candidate; the sum identifies it."""
    total = np.zeros(len(decisions), dtype=np.uint64)
    for column in range(knob.free.start, knob.free.stop):
        total += _mix(decisions[:, column].astype(np.uint64), column)
    return total


class NeighbourGraph:
    """One-decision neighbours of candidates numbered 0 to n - 1.

    Built from the space's ``sketches``, the number of each candidate's sketch, ``(n,)``, and the
    decisions of each sketch's candidates in order, ``(n_sketch, width)``. ``kernel`` says what
    counts as one step (``search.moves.knobs``).

    Attributes
    ----------
    knobs
        Largest number of knobs of a sketch; arrays have that many rows. For a knob that its
        sketch lacks, a candidate is a group of one.
    members
        Candidates, group after group. A candidate's group of a knob holds itself and all that
        one step of that knob can reach, sorted by value. With ``any-value``, candidates that
        differ only in that knob share one group.
    start, count, here
        ``(knobs, n)``: where in ``members`` the group begins, how many are in it, and the
        candidate's own place in it.
    rank
        ``(knobs, n)``: place of the candidate's value among those that occur in its sketch.
    values
        For each sketch and knob the values that occur, ``(distinct, free parts)``, by rank.
    ordered
        ``(sketches, knobs)``: whether a knob has an up and a down.
    degree
        Number of neighbours of each candidate, ``(n,)``.
    """

    def __init__(
        self,
        sketches: Sequence[Sketch],
        sketch_of: IntArray,
        decisions: Sequence[IntArray],
        kernel: Kernel = "any-value",
    ) -> None:
        self.sketches = tuple(sketches)
        self.sketch_of = np.asarray(sketch_of, dtype=np.int64)
        self._kernel = kernel
        self._kept: dict[Any, Any] = {}
        n = len(self.sketch_of)
        self.knobs = max((len(s.knobs) for s in self.sketches), default=0)
        shape = (self.knobs, n)
        self.start = np.tile(np.arange(n), (self.knobs, 1))
        self.count = np.ones(shape, dtype=np.int64)
        self.here, self.rank = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
        self.ordered = np.zeros((len(self.sketches), self.knobs), dtype=bool)
        self.values: list[list[IntArray]] = []
        # A candidate whose sketch has no such knob is a group of its own.
        self._segments = [np.arange(n)]
        for s, sketch in enumerate(self.sketches):
            rows = np.flatnonzero(self.sketch_of == s)
            vectors = np.asarray(decisions[s], dtype=np.int64)
            hashes = [knob_hash(knob, vectors) for knob in sketch.knobs]
            total = sum(hashes, np.zeros(len(rows), dtype=np.uint64))
            self.values.append([])
            for k, knob in enumerate(sketch.knobs):
                self.ordered[s, k] = any(True for _ in iter_ways(knob))
                self._add_knob(k, knob, rows, vectors, total - hashes[k])
        self.members = np.concatenate(self._segments)
        self.degree = (self.count - 1).sum(axis=0)

    def _add_knob(
        self, k: int, knob: Knob, rows: IntArray, decisions: IntArray, rest: NDArray[np.uint64]
    ) -> None:
        """Group the candidates that agree in ``rest``, all decisions but this knob's."""
        distinct, rank = np.unique(knob_order(knob, decisions), axis=0, return_inverse=True)
        rank = rank.reshape(-1)
        self.values[-1].append(distinct[:, 1:])
        self.rank[k, rows] = rank
        order = np.lexsort((rank, rest))
        grouped = rest[order]
        first = np.flatnonzero(np.r_[True, grouped[1:] != grouped[:-1]][: len(rows)])
        sizes = np.diff(np.r_[first, len(rows)])
        start, count = np.repeat(first, sizes), np.repeat(sizes, sizes)
        here, members = np.arange(len(rows)) - start, order
        if self._kernel != "any-value" and knob.kind == "tile":
            # Each candidate has its own group: members of the common group that it can become.
            owner = np.repeat(np.arange(len(rows)), count)
            other = np.arange(len(owner)) - np.repeat(np.cumsum(count) - count - start, count)
            parts = decisions[order, knob.free]
            near = can_become(knob, parts[owner], parts[other], self._kernel) | (owner == other)
            owner, other = owner[near], other[near]
            count = np.bincount(owner, minlength=len(rows))
            start = np.cumsum(count) - count
            here, members = np.flatnonzero(owner == other) - start, order[other]
        ordered = rows[order]
        self.start[k, ordered] = sum(map(len, self._segments)) + start
        self.count[k, ordered], self.here[k, ordered] = count, here
        self._segments.append(rows[members])

    def keep(self, key: Any, make: Callable[[], T]) -> T:
        """Return ``make()``, computed once for each key and shared by all runs on the space."""
        if key not in self._kept:
            self._kept[key] = make()
        found: T = self._kept[key]
        return found

    def knob_number(self, candidate: int, name: str) -> int:
        """Row of a knob in the candidate's sketch; raise ``KeyError`` if it has no such knob."""
        for k, knob in enumerate(self.sketches[self.sketch_of[candidate]].knobs):
            if knob.name == name:
                return k
        raise KeyError(name)

    def group(self, candidate: int, knob: int) -> IntArray:
        """Candidates that are one step away in that knob, and the candidate itself, by value."""
        start = self.start[knob, candidate]
        members: IntArray = self.members[start : start + self.count[knob, candidate]]
        return members

    def neighbours(self, candidate: int, knob: int | None = None) -> IntArray:
        """Candidates that are one step away: in that knob, or in any."""
        knobs = range(self.knobs) if knob is None else (knob,)
        found = [self.one_way(candidate, k, None) for k in knobs]
        everything: IntArray = np.concatenate([np.empty(0, dtype=np.int64), *found])
        return everything

    def one_way(self, candidate: int, knob: int, way: Literal["up", "down"] | None) -> IntArray:
        """Neighbours in a knob with a higher value (nearest first), a lower one, or any."""
        group, here = self.group(candidate, knob), int(self.here[knob, candidate])
        if way == "up":
            return group[here + 1 :]
        if way == "down":
            return group[:here][::-1]
        return np.delete(group, here)

    def directions(self, candidate: int) -> list[Direction]:
        """Directions in which at least one neighbour lies, in the order of the knobs."""
        return [direction for _, direction in self.slots(candidate)]

    def slots(self, candidate: int) -> list[tuple[int, Direction]]:
        """Directions of a candidate with their slots (see ``step_way``)."""
        found = []
        s = self.sketch_of[candidate]
        for k, knob in enumerate(self.sketches[s].knobs):
            above = int(self.count[k, candidate] - 1 - self.here[k, candidate])
            below = int(self.here[k, candidate])
            if not self.ordered[s, k] and above + below:
                found.append((2 * k, Direction(knob.kind, knob.name)))
            if self.ordered[s, k] and above:
                found.append((2 * k, Direction(knob.kind, knob.name, "up")))
            if self.ordered[s, k] and below:
                found.append((2 * k + 1, Direction(knob.kind, knob.name, "down")))
        return found

    def step(self, rng: np.random.Generator, candidates: IntArray, knobs: IntArray) -> IntArray:
        """Move each candidate to a random other member of its group of that knob.

        Candidates that are alone in their group stay where they are.
        """
        count, here = self.count[knobs, candidates], self.here[knobs, candidates]
        # Draw among the other count - 1 members: the candidate's own place is skipped.
        drawn = (rng.random(len(candidates)) * (count - 1)).astype(np.int64)
        drawn += (drawn >= here) & (count > 1)
        return np.asarray(self.members[self.start[knobs, candidates] + drawn])

    def random_step(self, rng: np.random.Generator, candidates: IntArray) -> IntArray:
        """Move each candidate along a random knob in which it has a neighbour."""
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

        Unordered knobs have one direction, slot 2 k. Without a neighbour there, a candidate stays.
        """
        knobs, down = slots // 2, slots % 2 == 1
        count, here = self.count[knobs, candidates], self.here[knobs, candidates]
        up = self.ordered[self.sketch_of[candidates], knobs] & ~down
        low = np.where(up, here + 1, 0)
        high = np.where(up, count, np.where(down, here, count - 1))
        drawn = low + (rng.random(len(candidates)) * np.maximum(high - low, 0)).astype(np.int64)
        drawn = np.where(~up & ~down & (drawn >= here), drawn + 1, drawn)
        place = self.start[knobs, candidates] + np.where(high > low, drawn, here)
        return np.asarray(self.members[place])
