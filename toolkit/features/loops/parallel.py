"""Parallel loops: the nests at the root of a program, and the cost of threads.

MetaSchedule leaves the parallel loops to a postprocessor. Its rule is followed here without TVM
(``src/s_tir/meta_schedule/postproc/rewrite_parallel_vectorize_unroll.cc``, TVM 0.27): the leading
loops of every nest are fused, up to the loop with which their product exceeds the annotated extent,
but not beyond the first loop that reduces or holds two statements. A block alone in its nest whose
loops and accesses are contiguous in memory is fused whole and cut into vectors.

TVM cuts a parallel loop into one run of ``ceil(extent / cores)`` iterations for each thread
(``src/target/llvm/codegen_cpu.cc``, ``src/runtime/thread_pool.cc``); the busiest thread has a full
run. On one core, threads cost nothing: balances and ratios are 1, starts 0. Columns that need the
number of cores are absent where it is unknown.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from toolkit.features.base import Floats
from toolkit.features.loops.executions import INLINED, Executions, Placed
from toolkit.features.loops.nest import ProgramWork, Region
from toolkit.features.loops.tiling import Tiling
from toolkit.features.loops.vectors import Vectors

PROCESSORS = (4, 8, 16, 32)
"""Numbers of processors for which the balance of a parallel loop is given."""


def root_regions(
    executions: Executions, vectors: Vectors, limit: Floats, main: int
) -> tuple[list[Region], Floats, list[tuple[str, Floats]]]:
    """Find the nests that remain at the root.

    ``limit`` is the annotated extent of parallel loops.

    Returns one region for each block that stays there in any candidate, the extent of the parallel
    loop around the block ``main``, and the loops fused into it, outermost first, with the knob that
    splits each (extent 1 where a candidate does not fuse it).
    """
    blocks, depth, steps = executions.blocks, executions.depth, executions.steps
    rows = executions.rows
    home = np.where(depth >= 0, executions.into, np.arange(len(blocks))[:, None])
    column = np.arange(rows)
    for _ in range((len(blocks) - 1).bit_length()):  # each time twice as far
        home = home[home, column]
    chained = np.where(executions.sums == 1, steps, 0.0)
    regions = []
    around = np.ones(rows)
    fused: list[tuple[str, Floats]] = []
    for place, block in enumerate(blocks):
        members = (home == place) & (depth > INLINED)
        if not members[place].any():
            continue
        inside = members & (depth >= 0)
        shallowest = np.where(inside, depth, np.inf).min(axis=0)
        last = len(block.loops) - vectors.loops[place]
        extent, loops = _parallel(block, limit, shallowest, last)
        volume = np.broadcast_to(block.volume, rows)
        extent = np.where(vectors.whole[place], np.ceil(volume / vectors.extents[place]), extent)
        own = (np.where(members, each, 0.0).sum(axis=0) for each in (steps, chained))
        regions.append(Region(np.where(members[place], extent, 1.0), *own))
        around = np.where(home[main] == place, extent, around)
        if place == main:
            fused = loops
    return regions, around, fused


def _parallel(
    block: Placed, limit: Floats, shallowest: Floats, last: Floats
) -> tuple[Floats, list[tuple[str, Floats]]]:
    """Return the extent of a root nest's parallel loop, and its fused loops.

    The extent is 1 where one thread runs the whole nest. Other blocks move in at ``shallowest``;
    loops from ``last`` on are vectorised.
    """
    extent = np.ones(len(last))
    growing = np.ones(len(last), dtype=bool)
    fused: list[tuple[str, Floats]] = []
    for place, loop in enumerate(block.loops):
        if loop.reduces or not growing.any():
            break
        taken = growing & (place <= shallowest) & (place < last)
        length = np.where(taken, loop.extent, 1.0)
        extent = extent * length
        fused.append((loop.source, length))
        growing = taken & ~(extent > limit)
    return extent, fused


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
    """Bytes touched by one iteration of the parallel loop, and by all of the busiest thread's.

    ``loops`` are those that were fused: role and extent of each, as in ``root_regions``.
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
    # Sum over all threads, over the distinct bytes: several threads may need the same data.
    result["thread_sharing"] = result["thread_bytes"] * np.minimum(cores, extent) / whole
    return result


def work_columns(work: ProgramWork) -> dict[str, Floats]:
    """Columns of the work of all iterations: ratios without a unit."""
    result = {
        "arithmetic_over_least": work.arithmetic / work.least_arithmetic,
        "branches_per_step": work.branches / work.steps,
        "calls_per_step": work.calls / work.steps,
        "waits_per_step": work.waits / work.steps,
    }
    if work.least_calls > 0:
        result["calls_over_least"] = work.calls / work.least_calls
    return result


def region_columns(
    regions: Sequence[Region], cores: float, least: float | None
) -> dict[str, Floats]:
    """Columns of all nests of a program: starts of threads, and the busiest thread's work."""
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
