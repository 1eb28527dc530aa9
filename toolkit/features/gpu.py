"""Columns of the thread hierarchy: warps, occupancy limits, staging in shared memory."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from toolkit.features.hardware import target_options
from toolkit.features.nest import Nest
from toolkit.features.tiling import Tiling
from toolkit.records import Task

Floats = NDArray[np.float64]

WARP = 32.0
MAX_THREADS = 2048.0  # resident on one multiprocessor, compute capability 7.0 and 8.0
REGISTERS = 65536.0  # 32-bit, of one multiprocessor
SHARED_BYTES = 98304.0  # usable on one multiprocessor, compute capability 7.0


def gpu_columns(
    nest: Nest, tiling: Tiling, known: dict[str, Floats], task: Task
) -> dict[str, Floats]:
    """Columns of the main kernel's grid and, summed up, of the other kernels'."""
    result: dict[str, Floats] = {}
    if not nest.threads:
        return result
    size = tiling.operation.element_bytes
    blocks, threads, vthreads = nest.blocks[0], nest.threads[0], nest.vthreads[0]
    result["block_extent"], result["thread_extent"] = blocks, threads
    result["vthread_extent"] = vthreads
    warps = np.ceil(threads / WARP)
    result["warps"] = warps
    result["warp_fill"] = threads / (warps * WARP)
    result["grid_threads"] = blocks * threads
    result["points_per_thread"] = known["op_points"] / (blocks * threads)
    staged = known["stage_data_bytes"] + known["stage_weight_bytes"]
    result["staged_bytes"] = staged
    if nest.shared:
        measured = np.sum(nest.shared, axis=0) * size
        result["shared_bytes"] = measured
        result["fetches_per_thread"] = measured / (size * threads)
        result["shared_of_staged"] = measured / staged
        staged = measured
        for place, elements in enumerate(nest.shared[:2]):
            length = nest.fetch[place] if place < len(nest.fetch) else np.ones(nest.rows)
            result[f"shared_bytes_{place}"] = elements * size
            # The last round of a cooperative copy leaves threads idle when it does not fit.
            rounds = elements / (threads * length)
            result[f"fetch_rounds_{place}"] = rounds
            result[f"fetch_fill_{place}"] = rounds / np.ceil(rounds)
    limit = target_options(task).get("max_shared_memory_per_block", 49152)
    result["shared_share"] = staged / float(
        limit if isinstance(limit, int) and limit > 0 else 49152
    )
    accumulators = known["mid_out_bytes"] / size * vthreads
    operands = (known["mid_data_bytes"] + known["mid_weight_bytes"]) / size
    result["thread_accumulators"] = accumulators
    result["thread_operands"] = operands
    registers = np.minimum(accumulators + np.minimum(operands, 64) + 24, 255)
    resident = np.floor(
        np.minimum.reduce(
            [
                MAX_THREADS / np.maximum(threads, WARP),
                SHARED_BYTES / np.maximum(staged, 1.0),
                REGISTERS / (registers * warps * WARP),
                np.full(nest.rows, 32.0),
            ]
        )
    )
    result["resident_blocks"] = resident
    result["occupancy"] = np.minimum(resident * threads / MAX_THREADS, 1.0)
    result["resident_grid"] = blocks / np.maximum(resident, 1.0)
    # Bytes from memory for each operation: what a block stages, over all blocks and rounds.
    depth = known["op_depth"]
    per_round = tiling.inside(tiling.cuts()[3])
    rounds = depth / np.maximum(
        per_round.get("ci", np.ones(1))
        * per_round.get("kh", np.ones(1))
        * per_round.get("kw", np.ones(1)),
        1.0,
    )
    result["stage_rounds"] = rounds
    result["traffic_bytes"] = blocks * rounds * staged
    result["traffic_per_flop"] = result["traffic_bytes"] / known["flops"]
    result["shared_reuse"] = known["mid_volume"] / np.maximum(operands, 1.0)
    if len(nest.threads) > 1:
        others_threads = np.stack(nest.threads[1:])
        others_blocks = np.stack(nest.blocks[1:])
        result["other_threads_min"] = others_threads.min(axis=0)
        result["other_threads_max"] = others_threads.max(axis=0)
        result["other_blocks_min"] = others_blocks.min(axis=0)
    return result
