"""Iterations of each block of a program, including those that are computed again.

TVM moves a block into a loop of another one (``compute_at``): each iteration computes the region
that the readers inside the loop need (``src/s_tir/schedule/primitive/compute_at.cc``). The indices
by which these read it give the region. So a padding inside a tiled convolution is counted with its
overlaps, and the maximum of a softmax's row once for each element if it moved that far. If the
readers of a block are not known, the order of iterators is taken for the indices, and a block
inside a tiled one is taken as computed once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from toolkit.features.base import Floats
from toolkit.features.loops.nest import Loop, product
from toolkit.logs.formats.metaschedule.bodies import BlockBody, IndexTerm, Read

ROOT, INLINED = -1, -2

Bools = NDArray[np.bool_]
IterVar = tuple[int, bool]
"""Place of an iterator, and whether it reduces: a sum in two steps splits one into both kinds."""
Box = dict[IterVar, Floats]
"""Extent of each iterator of a block, one value per candidate."""

_FOREIGN = (-1, False)
"""Marks a loop that runs over no iterator of the block inside it."""


@dataclass
class Placed:
    """A block at the end of the trace: its own loops, and the loop that it moved into.

    ``volume`` is the number of its iterations if nothing is computed twice. ``depth`` is the index
    of the loop on the path of the block ``into``, or ``ROOT`` or ``INLINED``; ``into=None`` is the
    first reader that is not inlined. ``factor`` is the iterator over which a sum is made in two
    steps: TVM numbers it first in both blocks, and makes loops of that order when one moves.
    ``body`` is ``None`` if it is not known.
    """

    name: str
    volume: Floats | float
    loops: list[Loop] = field(default_factory=list)
    depth: Floats | float = float(ROOT)
    into: str | None = None
    tiled: bool = False
    factor: int | None = None
    body: BlockBody | None = None

    def when_moved(self) -> list[Loop]:
        """Its own loops in the order that they have inside another block's."""
        split = [loop for loop in self.loops if loop.place == self.factor]
        kept = any(not loop.reduces for loop in split)
        first = [loop for loop in split if not (kept and loop.reduces)]
        others = [loop for loop in self.loops if loop not in first]
        return first + sorted(others, key=lambda loop: loop.reduces) if first else self.loops


class OwnLoops(NamedTuple):
    """A block's own loops, outermost first, for the candidates ``where``.

    ``around`` is the number of loops outside of them.
    """

    where: Bools
    around: Floats
    loops: Sequence[Loop]


class Executions:
    """Iterations of a program's blocks: arrays of one row per block, one column per candidate.

    ``steps`` are a block's iterations, including those that are computed again. ``sums`` is the
    number of sums that its innermost loops add to in turn: 1 if the innermost loop of more than one
    iteration adds up, so that each addition waits for the previous one; infinite if none does.
    ``into`` is the block that it moved into, ``depth`` the index of the loop there.
    """

    def __init__(self, blocks: Sequence[Placed], rows: int) -> None:
        self.blocks, self.rows = blocks, rows
        self.ones = np.ones(rows)
        self.depth = np.stack([np.broadcast_to(block.depth, rows) for block in blocks])
        self.places = {block.name: place for place, block in enumerate(blocks)}
        self.readers = self._readers()
        self.into = self._targets()
        volumes = [np.broadcast_to(block.volume, rows) for block in blocks]
        self.steps = np.stack(volumes).astype(np.float64)
        self.sums = np.full(self.steps.shape, np.inf)
        self.whole: list[Box] = []
        for place, block in enumerate(blocks):
            box: Box = {}
            for loop in block.loops:
                iterator = loop.place, loop.reduces
                box[iterator] = box.get(iterator, self.ones) * loop.extent
                self._last(place, loop, loop.extent > 1)
            self.whole.append(box)
        self._paths: dict[int, list[tuple[Bools, Floats, IterVar]]] = {}
        self._owned: dict[int, list[OwnLoops]] = {}
        self._regions: dict[tuple[int, int, int], Box | None] = {}
        for place in np.flatnonzero((self.depth >= 0).any(axis=1)).tolist():
            self._path(place)

    def own_loops(self, place: int) -> list[OwnLoops]:
        """Return a block's own loops in parts, one part for each way in which it has moved."""
        everywhere = np.ones(self.rows, dtype=np.bool_)
        unmoved = [OwnLoops(everywhere, np.zeros(self.rows), self.blocks[place].loops)]
        return self._owned.get(place, unmoved)

    def evaluations(self) -> Floats:
        """Number of times that each body is evaluated: an inlined one wherever it is read."""
        found = self.steps.copy()
        for place in reversed(range(len(self.blocks))):
            inlined = self.depth[place] == INLINED
            readers = {reader for reader, _ in self.readers[place]}
            if inlined.any() and readers:
                found[place] = np.where(inlined, sum(found[one] for one in readers), found[place])
        return np.asarray(found)

    def waits(self) -> Floats:
        """Number of additions that wait for the previous one: of several sums in turn, a share."""
        waits = self.steps / self.sums
        return np.asarray(np.where(self.depth > INLINED, waits, 0.0).sum(axis=0))

    def _readers(self) -> list[list[tuple[int, Read]]]:
        """For each block, the later blocks that read it, with their reads."""
        readers: list[list[tuple[int, Read]]] = [[] for _ in self.blocks]
        for place, block in enumerate(self.blocks):
            for read in block.body.reads if block.body else ():
                producer = self.places.get(read.producer, place)
                if producer < place:
                    readers[producer].append((place, read))
        return readers

    def _targets(self) -> NDArray[np.intp]:
        """Return the block that each block moves into, by candidate."""
        into = np.empty(self.depth.shape, dtype=np.intp)
        following = np.full(self.rows, len(self.blocks) - 1)
        for place, block in reversed(list(enumerate(self.blocks))):
            readers = sorted({reader for reader, _ in self.readers[place]})
            if block.into is not None:
                into[place] = self.places.get(block.into, place)
            elif readers:
                stay = [np.where(self.depth[one] > INLINED, one, into[one]) for one in readers]
                into[place] = np.min(stay, axis=0)
            else:
                into[place] = following
            following = np.where(self.depth[place] > INLINED, place, following)
        return into

    def _last(self, place: int, loop: Loop, there: Bools) -> None:
        inner = 1.0 if loop.reduces else self.sums[place] * loop.extent
        self.sums[place] = np.where(there, inner, self.sums[place])

    def _path(self, place: int) -> list[tuple[Bools, Floats, IterVar]]:
        """Loops around a block, then its own: (candidates that have it, extent, iterator)."""
        if place in self._paths:
            return self._paths[place]
        self._paths[place] = []  # in a damaged trace a block may move into itself
        moved = self.depth[place] >= 0
        loops: list[tuple[Bools, Floats, IterVar]] = []
        inside = dict(self.whole[place])
        around = self.ones
        counted = np.zeros(self.rows, dtype=np.bool_)
        for target in np.unique(self.into[place][moved]).tolist():
            here = moved & (self.into[place] == target)
            box = self._region(place, target, place)
            if target == place or (box is None and self.blocks[target].tiled):
                continue
            counted |= here
            walked: Box = {}
            for there, extent, iterator in self._outside(target, self.depth[place], here):
                around = around * extent
                own = (iterator[0], False)
                own = own if own in inside else _FOREIGN
                walked[own] = walked.get(own, self.ones) * extent
                loops.append((there, extent, own))
            for own, whole in self.whole[place].items():
                left = np.ceil(whole / walked.get(own, self.ones)) if box is None else box[own]
                inside[own] = np.where(here, left, inside[own])
        steps = around * product(inside.values(), self.rows)
        self.steps[place] = np.where(counted, steps, self.steps[place])
        self.sums[place] = np.where(counted, np.inf, self.sums[place])
        outside = sum((there.astype(np.float64) for there, _, _ in loops), np.zeros(self.rows))
        loops += self._own(place, counted, inside, outside)
        for target in np.unique(self.into[place][moved & ~counted]).tolist():
            if target != place:
                self._behind(place, target, moved & ~counted & (self.into[place] == target))
        self._paths[place] = loops
        return loops

    def _behind(self, place: int, target: int, where: Bools) -> None:
        """Own loops of a block that moved into its producer: they cover the tile made there."""
        walked: Box = {}
        around = np.zeros(self.rows)
        for there, extent, iterator in self._outside(target, self.depth[place], where):
            walked[iterator] = walked.get(iterator, self.ones) * extent
            around = around + there
        loops = [
            replace(loop, extent=np.ceil(loop.extent / walked.get((loop.place, False), self.ones)))
            for loop in self.blocks[place].loops
        ]
        self._owned[place].append(OwnLoops(where, around, loops))

    def _outside(
        self, target: int, depth: Floats, where: Bools
    ) -> list[tuple[Bools, Floats, IterVar]]:
        """Loops of a path down to an index, for some candidates; extent 1 for the others."""
        before = np.zeros(self.rows)
        found = []
        for there, extent, iterator in self._path(target):
            here = there & where & (before <= depth)
            before = before + there
            if here.any():
                found.append((here, np.where(here, extent, 1.0), iterator))
        return found

    def _own(
        self, place: int, moved: Bools, inside: Box, around: Floats
    ) -> list[tuple[Bools, Floats, IterVar]]:
        """A block's own loops; where it moved, they cover the region of one outer iteration."""
        block = self.blocks[place]
        loops: list[tuple[Bools, Floats, IterVar]] = []
        self._owned[place] = []
        for mask, own in ((~moved, block.loops), (moved, block.when_moved())):
            left = dict(inside)
            covering = []
            for loop in own:
                iterator, extent = (loop.place, loop.reduces), loop.extent
                if mask is moved:
                    extent = np.minimum(extent, left[iterator])
                    left[iterator] = np.maximum(left[iterator] / extent, 1.0)
                covering.append(replace(loop, extent=extent))
                self._last(place, covering[-1], mask & (extent > 1))
                loops.append((mask, extent, iterator))
            self._owned[place].append(OwnLoops(mask, np.where(mask, around, 0.0), covering))
        return loops

    def _region(self, place: int, target: int, moved: int) -> Box | None:
        """Extents of a block's region in one iteration of the loop that ``moved`` moved into.

        The loop is on ``target``'s path. ``None`` if no block inside it is known to read the block.
        """
        key = place, target, moved
        if key not in self._regions:
            found = self._inside(moved, target) if place == target else self._read(*key)
            self._regions[key] = found
        return self._regions[key]

    def _inside(self, moved: int, target: int) -> Box:
        """Extents of ``target``'s own iterators inside the loop."""
        box = dict.fromkeys(self.whole[target], self.ones)
        before = np.zeros(self.rows)
        for there, extent, iterator in self._path(target):
            if iterator in box:
                inner = there & (before > self.depth[moved])
                box[iterator] = box[iterator] * np.where(inner, extent, 1.0)
            before = before + there
        return box

    def _read(self, place: int, target: int, moved: int) -> Box | None:
        """Extents of the region of a block that the readers inside the loop need."""
        found: Box | None = None
        body = self.blocks[place].body
        for reader, read in self.readers[place]:
            near = (self.depth[reader] >= 0) & (self.into[reader] == target)
            nested = near | (self.depth[reader] == INLINED) | (reader == target)
            outer = self._region(reader, target, moved) if nested.any() else None
            if outer is None or body is None:
                continue
            box = dict(self.whole[place])
            for walked, axis in zip(body.writes, read.axes, strict=False):
                if (walked, False) in box:
                    extent = self._along(axis, outer)
                    box[walked, False] = np.minimum(extent, box[walked, False])
            for iterator, extent in box.items():
                box[iterator] = np.where(nested, extent, 1.0)
                if found is not None:
                    box[iterator] = np.maximum(box[iterator], found[iterator])
            found = box
        return found

    def _along(self, axis: Sequence[IndexTerm], outer: Box) -> Floats:
        """Number of elements along an axis that a reader's iterators span."""
        extent = self.ones
        for term in axis:
            taken = outer.get((term.place, False), self.ones)
            taken = taken * outer.get((term.place, True), self.ones)
            extent = extent + term.stride * (np.minimum(np.ceil(taken / term.every), term.most) - 1)
        return np.ceil(extent)
