"""The bodies of a program's blocks, as the instructions of a trace change them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from toolkit.features.base import Floats
from toolkit.features.loops.executions import INLINED, Executions
from toolkit.features.loops.nest import Loop, ProgramWork
from toolkit.logs.formats.metaschedule.bodies import BlockBody, IndexTerm, Read

_FAR = 2**20
"""Factor that makes a stride unequal to all loops inside."""


class ProgramBodies:
    """What each block of a program computes and reads, by its name."""

    def __init__(self, bodies: Mapping[str, BlockBody]) -> None:
        self._original = dict(bodies)
        self._bodies = dict(bodies)

    def get(self, name: str) -> BlockBody | None:
        """Return a block's body; ``None`` if it is not known."""
        return self._bodies.get(name)

    def copy(self, name: str, copy: str) -> None:
        """Add the block that copies another one's result to where it belongs (``CacheWrite``)."""
        body = self._bodies.get(name)
        if body is None:
            return
        for other, own in self._bodies.items():
            reads = [replace(r, producer=copy) if r.producer == name else r for r in own.reads]
            self._bodies[other] = replace(own, reads=tuple(reads))
        same = (_same(name, body.writes),)
        self._bodies[copy] = BlockBody(0, 0, 0, same, body.writes, body.accesses[-1:])

    def split_sum(self, name: str, first: str, factor: int) -> None:
        """Reduce in two steps (``RFactor``): ``first`` keeps a sum for each step of ``factor``."""
        body = self._bodies.get(name)
        if body is None:
            return
        writes = (*body.writes, factor)
        # The sums lie side by side in the new buffer; how many depends on the candidate.
        *others, own = body.accesses or ((),)
        sums = (*((place, _FAR * stride) for place, stride in own), (factor, 1))
        self._bodies[first] = replace(body, writes=writes, accesses=(*others, sums))
        same = (_same(first, writes),)
        self._bodies[name] = BlockBody(1, 0, 0, same, body.writes, (sums, own))

    def fuse(self, loops: Sequence[Loop]) -> None:
        """Make one loop of several: each of their iterators moves on once in so many steps."""
        name = loops[0].block
        body = self._bodies.get(name)
        places = [loop.place for loop in loops]
        lengths = [set(loop.extent.tolist()) for loop in loops]
        if body is None or len(set(places)) < len(places):
            return
        if any(len(own) != 1 or not np.isfinite(max(own)) for own in lengths):
            return
        every, terms = 1, {}
        for place, own in zip(reversed(places), reversed(lengths), strict=True):
            extent = int(max(own))
            terms[place] = every, extent
            every *= extent
        into = places[0]

        def fused(term: IndexTerm) -> IndexTerm:
            if term.place not in terms:
                return term
            every, most = terms[term.place]
            return IndexTerm(into, term.stride, term.every * every, min(term.most, most))

        reads = tuple(
            replace(read, axes=tuple(tuple(map(fused, axis)) for axis in read.axes))
            for read in body.reads
        )
        writes = tuple(-1 if place in terms else place for place in body.writes)
        # TVM takes what is divided by a length as not moving at all.
        accesses = tuple(
            tuple(one for one in access if one[0] not in terms) for access in body.accesses
        )
        self._bodies[name] = replace(body, reads=reads, writes=writes, accesses=accesses)

    def work(self, executions: Executions, volumes: Mapping[str, int]) -> ProgramWork | None:
        """Return the work of a program's blocks; ``None`` if a block's body is not known.

        ``volumes`` are the iterations of the workload's blocks.
        """
        names = [block.name for block in executions.blocks]
        if not self._bodies.keys() >= set(names):
            return None
        evaluations = dict(zip(names, executions.evaluations(), strict=True))

        def done(kind: str) -> Floats:
            each = (evaluations[name] * getattr(self._bodies[name], kind) for name in names)
            return np.asarray(sum(each), dtype=np.float64)

        def least(kind: str) -> float:
            bodies = self._original.items()
            return float(sum(volumes.get(name, 0) * getattr(body, kind) for name, body in bodies))

        return ProgramWork(
            steps=np.where(executions.depth > INLINED, executions.steps, 0.0).sum(axis=0),
            arithmetic=done("arithmetic"),
            calls=done("calls"),
            branches=done("branches"),
            waits=executions.waits(),
            least_arithmetic=max(least("arithmetic"), 1.0),
            least_calls=least("calls"),
        )


def _same(producer: str, places: Sequence[int]) -> Read:
    """A read of the element at the same place."""
    return Read(producer, tuple((IndexTerm(place),) for place in places))
