"""Vectorised loops of each block, and the sums that registers keep.

MetaSchedule's postprocessor chooses the vectorised loops
(``src/s_tir/meta_schedule/postproc/rewrite_parallel_vectorize_unroll.cc``, TVM 0.27): it fuses
loops from the innermost one outwards, while each access of the block stays contiguous or does not
depend on the loop, up to the annotated extent. A loop that reduces or holds two statements ends it.
A strided innermost loop may be vectorised alone. If all loops of a block can be fused, they are cut
into vectors of the annotated extent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from toolkit.features.base import Floats
from toolkit.features.loops.executions import INLINED, Bools, Executions
from toolkit.features.loops.nest import Loop, product
from toolkit.logs.formats.metaschedule.bodies import Access


class Vectors(NamedTuple):
    """Vectorised loops: arrays of one row per block, one column per candidate.

    ``extents`` are 1 where a block has none, ``loops`` the number of innermost loops that are
    fused. ``whole``: all loops of the block are fused, and cut.
    """

    extents: Floats
    loops: Floats
    whole: Bools


def vectorised(executions: Executions, limit: Floats) -> Vectors:
    """Return the vectorised loops of all blocks; ``limit`` is the annotated extent."""
    depth, into = executions.depth, executions.into
    found = Vectors(np.ones(depth.shape), np.zeros(depth.shape), np.zeros(depth.shape, dtype=bool))
    for place, block in enumerate(executions.blocks):
        held = (depth >= 0) & (into == place)
        deepest = np.where(held, depth, -1.0).max(axis=0)  # the last loop that holds two statements
        for where, around, loops in executions.own_loops(place):
            here = where & (depth[place] > INLINED)
            free = np.minimum(len(loops) - 1 - (deepest - around), len(loops))
            accesses = block.body.accesses if block.body else ()
            fusible = np.minimum(free, _contiguous(loops, accesses, executions.rows))
            extent, fused = np.ones(executions.rows), np.zeros(executions.rows)
            for number, loop in enumerate(reversed(loops)):
                more = (fused == number) & (number < fusible) & (not loop.reduces)
                more &= extent * loop.extent <= limit
                extent, fused = np.where(more, extent * loop.extent, extent), fused + more
            total = product((loop.extent for loop in loops), executions.rows)
            whole = here & (fusible == len(loops)) & (depth[place] < 0) & (total > 1)
            whole &= bool(accesses) and not any(loop.reduces for loop in loops)
            found.extents[place, here] = np.where(whole, limit, extent)[here]
            found.loops[place, here] = fused[here]
            found.whole[place] |= whole
    return found


def _contiguous(loops: Sequence[Loop], accesses: Sequence[Access], rows: int) -> Floats:
    """Number of innermost loops through which all accesses move on without a gap, if at all."""
    steps = []
    inside: dict[int, Floats] = {}
    for loop in reversed(loops):
        steps.append(inside.get(loop.place, np.ones(rows)))
        inside[loop.place] = steps[-1] * loop.extent
    fusible = np.full(rows, float(len(loops)))
    for access in accesses:
        strides = dict(access)
        count, goes = np.zeros(rows), np.ones(rows, dtype=bool)
        following = np.full(rows, np.nan)  # the stride that continues the loops inside
        for loop, step in zip(reversed(loops), steps, strict=True):
            stride = strides.get(loop.place, 0) * step
            if loop.source:  # TVM drops the index of a loop of one iteration that a split made
                stride = np.where(loop.extent > 1, stride, 0.0)
            first = np.where(count == 0, True, stride == 1)
            goes &= (stride == 0) | np.where(np.isnan(following), first, stride == following)
            count += goes
            following = np.where(goes & (stride != 0), stride * loop.extent, following)
        fusible = np.minimum(fusible, count)
    return fusible


def kept_sums(
    executions: Executions, place: int, vectors: Vectors, step: Floats, lanes: float
) -> tuple[Floats, Floats]:
    """Return the vector registers of sums that a block adds to in turn, and the additions to each.

    TVM unrolls inner loops while their iterations, a vector counting as one, stay within ``step``
    (``src/s_tir/transform/unroll_loop.cc``). A compiler keeps what the unrolled body adds to in
    registers through the reducing loops around it, and stores it at their end.
    """
    rows = executions.rows
    sums, additions = np.ceil(vectors.extents[place] / lanes), np.ones(rows)
    for where, _, loops in executions.own_loops(place):
        iterations = np.ones(rows)
        unrolls, keeps = where, where
        for number, loop in enumerate(reversed(loops)):
            times = np.where(number < vectors.loops[place], 1.0, loop.extent)
            unrolls = unrolls & (iterations * times <= np.maximum(step, 1.0))
            iterations = np.where(unrolls, iterations * times, iterations)
            if loop.reduces:
                additions = np.where(keeps, additions * times, additions)
            else:
                sums = np.where(unrolls, sums * times, sums)
                keeps = keeps & (unrolls | (times == 1))
    return sums, additions
