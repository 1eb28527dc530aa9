"""What running in parallel costs: balance, shares of threads, starts, serial parts.

TVM cuts a parallel loop into one run of ``ceil(extent / cores)`` iterations for each thread
(``src/target/llvm/codegen_cpu.cc``, ``src/runtime/thread_pool.cc``); the busiest thread has a whole
one. On one core nothing of this costs anything: balances and ratios are 1, starts 0. Where nothing
says how many cores there are, what needs them is absent.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from toolkit.features.base import Floats
from toolkit.features.loops.nest import Region
from toolkit.features.loops.tiling import Cut, Tiling

PROCESSORS = (4, 8, 16, 32)
"""Numbers of processors for which the balance of a parallel loop is given."""


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
    task = tiling.inside(Cut("all", 0, 0))
    whole = sum(tiling.operation.elements(task)) * tiling.operation.element_bytes
    share = dict(task)
    left = rounds
    for role, length in reversed(loops):
        task[role] = task[role] / length
        # A run of iterations goes through the inner loops first.
        share[role] = share[role] / length * np.minimum(length, left)
        left = np.ceil(left / length)
    result = {**tiling.byte_columns("task", task), **tiling.byte_columns("thread", share)}
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
    return result
