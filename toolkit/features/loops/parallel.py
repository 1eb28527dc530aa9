"""What runs in parallel: the nests at the root of a program, and what threads cost.

MetaSchedule leaves the parallel loops to a postprocessor, whose rule is followed here without TVM
(``src/s_tir/meta_schedule/postproc/rewrite_parallel_vectorize_unroll.cc``, TVM 0.27): the leading
loops of every nest are fused up to the one with which their product exceeds the annotated extent,
no further than the first that reduces or holds two statements. A block alone in its nest whose
loops and accesses are one run of memory is fused whole and cut into vectors.

TVM cuts a parallel loop into one run of ``ceil(extent / cores)`` iterations for each thread
(``src/target/llvm/codegen_cpu.cc``, ``src/runtime/thread_pool.cc``); the busiest thread has a whole
one. On one core nothing of this costs anything: balances and ratios are 1, starts 0. Where nothing
says how many cores there are, what needs them is absent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from toolkit.features.base import Floats
from toolkit.features.loops.nest import Loop, Region
from toolkit.features.loops.tiling import Tiling

ROOT, INLINED = -1, -2

PROCESSORS = (4, 8, 16, 32)
"""Numbers of processors for which the balance of a parallel loop is given."""

_FOREIGN = -1
"""Place of a loop that walks no iterator of the block inside it."""


@dataclass
class Placed:
    """A block as the trace leaves it: its own loops, and the loop of another that it moved into.

    ``volume`` counts its iterations where nothing is computed twice. ``depth`` is the index of that
    loop on the other's path, ``ROOT`` or ``INLINED``; ``into`` names the other, and is ``None`` for
    the next block that is not inlined. ``factor`` is the iterator over which a sum is made in two
    steps: TVM numbers it first in both blocks, and makes loops of that order when one moves.
    """

    name: str
    volume: Floats | float
    loops: list[Loop] = field(default_factory=list)
    depth: Floats | float = float(ROOT)
    into: str | None = None
    tiled: bool = False
    factor: int | None = None

    def when_moved(self) -> list[Loop]:
        """Its own loops in the order that they have inside another block's."""
        split = [loop for loop in self.loops if loop.place == self.factor]
        kept = any(not loop.reduces for loop in split)
        first = [loop for loop in split if not (kept and loop.reduces)]
        others = [loop for loop in self.loops if loop not in first]
        return first + sorted(others, key=lambda loop: loop.reduces) if first else self.loops


@dataclass(frozen=True)
class Limits:
    """Annotated extents of fused loops, and volumes that lie in memory in one run."""

    parallel: Floats
    vector: Floats
    runs: frozenset[float]


def root_regions(
    blocks: Sequence[Placed], limits: Limits, rows: int, main: int
) -> tuple[list[Region], Floats, list[tuple[str, Floats]]]:
    """Find the nests that remain at the root.

    Returns one region for each block that stays there in any candidate, the extent of the parallel
    loop around the block ``main``, and the loops that it was fused of, outermost first, with the
    knob that splits each (extent 1 where a candidate does not fuse it).
    """
    depth = np.stack([np.broadcast_to(block.depth, rows) for block in blocks])
    # Index of the block that each moved into, by candidate (its own where it did not).
    names = {block.name: place for place, block in enumerate(blocks)}
    into = np.empty(depth.shape, dtype=np.intp)
    following = np.full(rows, len(blocks) - 1)
    for place, block in reversed(list(enumerate(blocks))):
        into[place] = following if block.into is None else names.get(block.into, place)
        following = np.where(depth[place] > INLINED, place, following)
    home = np.where(depth >= 0, into, np.arange(len(blocks))[:, None])
    column = np.arange(rows)
    for _ in range((len(blocks) - 1).bit_length()):  # each time twice as far
        home = home[home, column]
    steps, adds = _steps(blocks, depth, into, rows)
    chained = steps * adds
    regions = []
    around = np.ones(rows)
    fused: list[tuple[str, Floats]] = []
    for place, block in enumerate(blocks):
        members = (home == place) & (depth > INLINED)
        if not members[place].any():
            continue
        inside = members & (depth >= 0)
        shallowest = np.where(inside, depth, np.inf).min(axis=0)
        extent, loops = _parallel(block, limits, shallowest, rows)
        total, waits = (np.where(members, each, 0.0).sum(axis=0) for each in (steps, chained))
        regions.append(Region(np.where(members[place], extent, 1.0), total, waits))
        around = np.where(home[main] == place, extent, around)
        if place == main:
            fused = loops
    return regions, around, fused


def _parallel(
    block: Placed, limits: Limits, shallowest: Floats, rows: int
) -> tuple[Floats, list[tuple[str, Floats]]]:
    """Extent of a root nest's parallel loop, and its fused loops; others move in at ``shallowest``.

    1 where one thread runs it all.
    """
    extent = np.ones(rows)
    growing = np.ones(rows, dtype=bool)
    fused: list[tuple[str, Floats]] = []
    alone = np.isinf(shallowest)
    spatial = len(block.loops) > 0 and not any(loop.reduces for loop in block.loops)
    last = np.full(rows, float(len(block.loops)))
    if spatial:
        # So many of the last loops are fused into the vectorised one. A loop that holds another
        # block cannot be vectorised, nor can those around it.
        inwards = np.cumprod([loop.extent for loop in reversed(block.loops)], axis=0)
        vectorised = np.logical_and.accumulate(inwards <= limits.vector).sum(axis=0)
        last -= np.minimum(vectorised, np.where(alone, last, last - 1 - shallowest))
    for place, loop in enumerate(block.loops):
        if loop.reduces or not growing.any():
            break
        taken = growing & (place <= shallowest) & (place < last)
        length = np.where(taken, loop.extent, 1.0)
        extent = extent * length
        fused.append((loop.source, length))
        growing = taken & ~(extent > limits.parallel)
    if spatial:
        volume = np.broadcast_to(block.volume, rows)
        whole = alone & (volume > 1) & np.isin(volume, list(limits.runs))
        extent = np.where(whole, np.ceil(volume / limits.vector), extent)
    return extent, fused


def _steps(
    blocks: Sequence[Placed], depth: Floats, into: NDArray[np.intp], rows: int
) -> tuple[Floats, NDArray[np.bool_]]:
    """Iterations of each block, with those that are computed again for every outer iteration.

    And whether its innermost loop adds up, of those that have more than one iteration left.

    A block inside loops that do not walk any iterator of its own is computed anew in each. Loops of
    tiled blocks are left out: which of them walk the iterators of a producer, the trace does not
    tell.
    """
    steps = np.stack([np.broadcast_to(block.volume, rows) for block in blocks]).astype(np.float64)
    adds = np.zeros(steps.shape, dtype=np.bool_)
    for place, block in enumerate(blocks):
        for loop in block.loops:
            adds[place] = np.where(loop.extent > 1, loop.reduces, adds[place])
    again = (depth >= 0) & ~np.array([block.tiled for block in blocks])[into]
    # Loops around each block and its own: the candidates that have one there, extent, iterator.
    paths: dict[int, list[tuple[NDArray[np.bool_], Floats, int]]] = {}

    def path(place: int) -> list[tuple[NDArray[np.bool_], Floats, int]]:
        if place in paths:
            return paths[place]
        paths[place] = []  # of what moved into itself, should a damaged trace say so
        adds[place] = False
        loops = []
        own = {loop.place for loop in blocks[place].loops if not loop.reduces}
        walked: dict[int, Floats] = {}
        for other in range(len(blocks)):
            moved = again[place] & (into[place] == other)
            if other == place or not moved.any():
                continue
            before = np.zeros(rows)
            for there, extent, iterator in path(other):
                here = there & moved & (before <= depth[place])
                before += there
                if not here.any():
                    continue
                length = np.where(here, extent, 1.0)
                if iterator in own:
                    walked[iterator] = walked.get(iterator, np.ones(rows)) * length
                else:
                    steps[place] *= length
                loops.append((here, extent, iterator if iterator in own else _FOREIGN))
        block = blocks[place]
        for mask, own_loops in ((~again[place], block.loops), (again[place], block.when_moved())):
            left = dict(walked)
            for loop in own_loops:
                extent = loop.extent
                if loop.place in left and not loop.reduces:
                    # What outer loops walk already is left out of the iterator's first loops.
                    done = left[loop.place]
                    left[loop.place] = np.maximum(done / extent, 1.0)
                    extent = np.maximum(extent / done, 1.0)
                adds[place] = np.where(mask & (extent > 1), loop.reduces, adds[place])
                loops.append((mask, extent, loop.place))
        paths[place] = loops
        return loops

    for place in np.flatnonzero(again.any(axis=1)).tolist():
        path(place)
    return steps, adds


def parallel_columns(extent: Floats, cores: float, flops: Floats) -> dict[str, Floats]:
    """Columns of the parallel loop around the work; ``cores`` is NaN where it is unknown."""
    rounds = np.ceil(extent / cores)
    return {
        "parallel_extent": extent,
        "parallel_grain": flops / extent,
        **{f"parallel_fill_{n}": extent / (np.ceil(extent / n) * n) for n in PROCESSORS},
        "thread_rounds": rounds,
        "thread_balance": extent / (rounds * cores),
        "thread_work": flops * rounds / extent,
    }


def share_columns(
    tiling: Tiling, loops: Sequence[tuple[str, Floats]], extent: Floats, cores: float
) -> dict[str, Floats]:
    """Bytes that one iteration of the parallel loop touches, and the busiest thread in all of its.

    ``loops`` are those that were fused, outermost first: the role and the extent of each, 1 where a
    candidate does not fuse it.
    """
    rounds = np.ceil(extent / cores)
    task = tiling.inside(0, 0)
    elements = tiling.operation.elements
    whole = sum(elements(task)) * tiling.operation.element_bytes
    share = dict(task)
    left = rounds
    for role, length in reversed(loops):
        task[role] = task[role] / length
        # A run of iterations goes through the inner loops first.
        share[role] = share[role] / length * np.minimum(length, left)
        left = np.ceil(left / length)
    result = tiling.byte_columns("task", elements(task))
    result.update(tiling.byte_columns("thread", elements(share)))
    # What all threads touch together, over what there is: weights or inputs that several need.
    result["thread_sharing"] = result["thread_bytes"] * np.minimum(cores, extent) / whole
    return result


def region_columns(
    regions: Sequence[Region], cores: float, least: float | None
) -> dict[str, Floats]:
    """Columns of all nests of a program: how often threads are started, and what one runs alone."""
    if not regions:
        return {}
    extents = np.stack([region.extent for region in regions])
    steps = np.stack([region.steps for region in regions])
    there = steps != 0
    parallel = ~(extents <= 1) & there
    starts = parallel.sum(axis=0).astype(np.float64)
    total = np.nansum(steps, axis=0)
    busiest = np.nansum(steps * np.ceil(extents / cores) / extents, axis=0)
    busiest = np.where(np.isfinite(cores), busiest, np.nan)
    result = {
        "n_parallel": starts,
        "n_serial": (~parallel & there).sum(axis=0).astype(np.float64),
        "region_steps": np.nansum(np.where(parallel, steps, 0.0), axis=0) / starts,
        "region_steps_min": np.fmin.reduce(np.where(parallel, steps, np.inf), axis=0),
        "starts_per_step": (starts if cores > 1 else 0.0 * starts * cores) / total,
        "serial_steps": busiest,
        "serial_over_ideal": busiest * cores / total,
    }
    if least is not None:
        result["steps_over_least"] = total / least
    known = [region.chained for region in regions if region.chained is not None]
    if len(known) == len(regions):
        chained = np.stack(known)
        waits = np.nansum(chained * np.ceil(extents / cores) / extents, axis=0)
        result["chained_steps"] = np.where(np.isfinite(cores), waits, np.nan)
        result["chained_share"] = np.nansum(chained, axis=0) / total
    return result
