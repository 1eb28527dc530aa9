"""A sketch's candidates as points of a grid: one axis per knob, one step per value.

AutoTVM's tuners work on such points (``ConfigSpace.point2knob``): a gene, a coordinate, a grid
index. The grid has holes: points that are no candidate of the record or the template.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from toolkit.records import Candidate
from toolkit.search.base import Composes, Indexed, Space
from toolkit.search.moves.knobs import IntArray

# Candidates at holes are kept, since tuners return to them; at most this many, to limit memory.
MOST_HOLES = 200_000
# Grids of at most this many points are looked up in a table with one entry per point (2 MiB).
MOST_POINTS = 1 << 18


class Lattice:
    """The grid of one sketch of an indexed space.

    Values of a knob are in the order in which they first appear along ``grid_order``: in AutoTVM
    that is the template's own order of a knob's entities. ``dims``, ``(knobs,)``, are the numbers
    of values of each knob. ``numbers`` are the numbers of the sketch's candidates in the space,
    ``points``, ``(candidates, knobs)``, their places on the grid.
    """

    def __init__(self, space: Space, sketch: int = 0) -> None:
        assert isinstance(space, Indexed)
        self._space = space
        self._all = space.candidates()
        self.sketch = space.sketches[sketch]
        graph = space.graph
        order = space.grid_order()
        self.numbers: IntArray = np.flatnonzero(graph.sketch_of == sketch)
        along = order[graph.sketch_of[order] == sketch]
        knobs = len(self.sketch.knobs)
        self.dims = np.array([len(v) for v in graph.values[sketch]], dtype=np.int64)
        self._free = [knob.free for knob in self.sketch.knobs]
        self._values: list[list[list[int]]] = []
        self.points = np.zeros((len(self.numbers), knobs), dtype=np.int64)
        for k in range(knobs):
            ranks = graph.rank[k, along]
            _, first = np.unique(ranks, return_index=True)
            by_appearance = ranks[np.sort(first)]
            place = np.argsort(by_appearance)  # of each rank
            self.points[:, k] = place[graph.rank[k, self.numbers]]
            self._values.append(graph.values[sketch][k][by_appearance].tolist())
        # The key of a point is its place in the grid if the grid is small enough for a table, else
        # a hash: a sum of random multiples (64 bits), practically never equal for two points.
        small = math.prod(self.dims.tolist()) <= MOST_POINTS
        rng = np.random.default_rng(0x1A77)
        strides = np.r_[1, np.cumprod(self.dims)[:-1]][:knobs].astype(np.int64)
        self._factors = strides if small else rng.integers(-(2**63), 2**63 - 1, size=knobs)
        self._table = np.full(self.dims.prod() if small else 0, -1, dtype=np.int64)
        keys = self.keys(self.points)
        if small:
            self._table[keys] = self.numbers
        by_key = np.argsort(keys)
        self._keys, self._keyed = keys[by_key], self.numbers[by_key]
        self._composes = not space.complete and isinstance(space, Composes)
        self._holes: dict[int, Candidate | None] = {}

    @classmethod
    def of(cls, space: Space, sketch: int = 0) -> Lattice:
        """Return the space's grid, built once and shared by all runs."""
        assert isinstance(space, Indexed)
        return space.graph.keep(("lattice", sketch), lambda: cls(space, sketch))

    def keys(self, points: IntArray) -> IntArray:
        """One number per point, ``(n, knobs)`` to ``(n,)``."""
        return np.asarray(points @ self._factors)

    def find(self, points: IntArray) -> IntArray:
        """Number of the candidate at each point, -1 at a hole."""
        keys = self.keys(points)
        if len(self._table):
            return self._table[keys]
        at = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        return np.where(self._keys[at] == keys, self._keyed[at], -1)

    def decisions(self, point: Sequence[int]) -> tuple[int, ...]:
        """Decision vector of a point; outermost tile factors are left open (0)."""
        vector = [0] * self.sketch.width
        for free, values, place in zip(self._free, self._values, point, strict=True):
            vector[free] = values[place]
        return tuple(vector)

    def candidates(self, points: IntArray) -> list[Candidate | None]:
        """Candidate at each point; at a hole the composed one, or ``None`` if it is invalid."""
        numbers = self.find(points)
        found: list[Candidate | None] = list(map(self._all.__getitem__, numbers.tolist()))
        holes = (numbers < 0).nonzero()[0]
        known = self._holes
        space: Any = self._space
        for i, key in zip(holes.tolist(), self.keys(points[holes]).tolist(), strict=True):
            if key not in known:
                if len(known) >= MOST_HOLES:
                    known.clear()
                vector = self.decisions(points[i].tolist())
                known[key] = (
                    space.compose(self.sketch.sketch_id, vector) if self._composes else None
                )
            found[i] = known[key]
        return found
