"""How long the resources of a GPU would be busy: rough bounds that the tiles alone imply.

Clocks of one multiprocessor, over what the task needs at the least (its arithmetic spread over all
lanes, or its operands read once), so that tasks of different sizes can be compared. They are no
prediction: caches, instruction mix and overlap are left out. What they do is multiply quantities
that a tree can only cut one at a time: the rounds of staging, say, and the waves of blocks that
each wait for them.
"""

from __future__ import annotations

import numpy as np

from toolkit.features.base import Floats
from toolkit.features.loops.nest import product
from toolkit.features.loops.tiling import Cut, Tiling
from toolkit.features.task.operation import GROUPED, REDUCTION, SPATIAL

LATENCY = 700.0
"""Clocks from a round's first copy until it has arrived in shared memory, barriers included."""

COPY = 4.0
"""Clocks in which a warp issues one element a lane of a copy: address, load, store, bounds."""

MEMORY_BYTES = 8.0
"""Bytes of device memory a clock and multiprocessor (8 on a V100, 10 on an A100)."""

CACHE_BYTES = 24.0
"""Bytes of the second-level cache a clock and multiprocessor."""


def clock_columns(
    tiling: Tiling, known: dict[str, Floats], processors: float, lanes: float
) -> dict[str, Floats]:
    """Columns of a thread's work between two rounds of staging, and of what bounds a kernel.

    ``known`` holds the columns of the operation, the tiles and the grid; ``lanes`` are the
    multiply-adds of a multiprocessor a clock.

    ``step_loads_per_fma`` counts what a thread reads of shared memory for a multiply-add when only
    one step of the reduction is held in registers, ``round_loads_per_fma`` when nothing is read
    twice between two rounds (an unrolled window of a convolution), both with bank conflicts and
    over all virtual threads. ``clocks_latency`` counts the rounds that blocks wait for one after
    the other, ``clocks_most`` and ``clocks_sum`` join it with the busiest of arithmetic and copies,
    shared memory, and cache.
    """
    result = _loads(tiling, known)
    work = known["op_points"] * known["op_depth"]
    needed = known["op_data_bytes"] + known["op_weight_bytes"] + known["op_out_bytes"]
    least = np.maximum(work / lanes, needed / MEMORY_BYTES) / processors
    blocks, warps, rounds = known["block_extent"], known["warps"], known["stage_rounds"]
    own = np.ceil(blocks / processors)
    shared = own * warps * work / (blocks * known["thread_extent"])
    shared = shared * result["round_loads_per_fma"]
    copies = own * warps * known["fetches_per_thread"] * rounds * COPY
    # Four sectors hold what 32 lanes need; more are read for nothing.
    sectors = np.maximum(known.get("copy_sectors", np.full(tiling.rows, 4.0)) / 4.0, 1.0)
    cache = own * rounds * known["staged_bytes"] * sectors / CACHE_BYTES
    busy = np.maximum.reduce([known["compute_clocks"] + copies, shared, cache]) / least
    one_after_another = np.ceil(own / np.minimum(known["resident_blocks"], own))
    # The last round's results are stored: as long as one round more.
    latency = result["clocks_latency"] = one_after_another * (rounds + 1.0) * LATENCY / least
    result["clocks_most"] = np.maximum(busy, latency)
    result["clocks_sum"] = busy + latency
    return result


def _loads(tiling: Tiling, known: dict[str, Floats]) -> dict[str, Floats]:
    """What a thread reads of shared memory."""
    operation, one = tiling.operation, np.ones(tiling.rows)
    # Virtual threads lie apart: each reads an input of its own unless they differ in channels.
    data_copies, weight_copies = one, one
    for role in SPATIAL:
        virtual = known.get(f"vthread_{role}", one)
        if role != "co" or operation.family in GROUPED:
            data_copies = data_copies * virtual
        if role == "co" or (role == "n" and operation.family == "batch_matmul"):
            weight_copies = weight_copies * virtual
    levels = max(tiling.levels(REDUCTION), 1)
    result: dict[str, Floats] = {}
    for word, level in (("step", levels), ("round", min(1, levels - 1))):
        inside = tiling.inside(Cut(word, tiling.cuts()[2].spatial, level))
        data, weight, _ = operation.elements(inside)
        data, weight = data * data_copies, weight * weight_copies
        volume = known["vthread_extent"] * product(inside.values(), tiling.rows)
        loads = data * known.get("bank_data", one) + weight * known.get("bank_weight", one)
        result[f"{word}_loads_per_fma"] = loads / volume
    result["round_volume"], result["round_operands"] = volume, data + weight
    return result
