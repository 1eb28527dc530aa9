"""Columns of the thread hierarchy: warps, occupancy, waves, memory runs, staging."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from toolkit.features.gpu.clocks import clock_columns
from toolkit.features.gpu.memory import memory_columns
from toolkit.features.loops.nest import Nest
from toolkit.features.loops.tiling import Tiling
from toolkit.features.task.hardware import multiprocessors, shared_limit
from toolkit.features.task.operation import REDUCTION, SPATIAL
from toolkit.records import Task

Floats = NDArray[np.float64]

WARP = 32.0
MAX_THREADS = 2048.0  # resident on one multiprocessor, compute capability 7.0 and 8.0
REGISTERS = 65536.0  # 32-bit, of one multiprocessor
SHARED_BYTES = 98304.0  # usable on one multiprocessor, compute capability 7.0
LANES = 64.0  # multiply-adds of one multiprocessor a clock, single precision
RUN = 32.0  # elements of a full memory transaction, single precision


def grid_nest(tiling: Tiling) -> Nest:
    """Grid of a template whose spatial levels are block, vthread, thread and own tile."""
    nest = Nest(tiling.rows)
    levels = tiling.levels(SPATIAL)
    if levels >= 3:
        nest.blocks = [tiling.over(SPATIAL, 0)]
        nest.vthreads = [tiling.over(SPATIAL, 1) if levels > 3 else np.ones(tiling.rows)]
        nest.threads = [tiling.over(SPATIAL, 2 if levels > 3 else 1)]
    return nest


def gpu_columns(
    nest: Nest, tiling: Tiling, known: dict[str, Floats], task: Task
) -> dict[str, Floats]:
    """Columns of the main kernel's grid and, summed up, of the other kernels'.

    ``known`` holds the columns of the tiles (``Tiling.columns``) and of the operation.
    """
    result: dict[str, Floats] = {}
    if not nest.threads:
        return result
    blocks, threads, vthreads = nest.blocks[0], nest.threads[0], nest.vthreads[0]
    result["block_extent"], result["thread_extent"] = blocks, threads
    result["vthread_extent"] = vthreads
    warps = np.ceil(threads / WARP)
    result["warps"] = warps
    result["warp_fill"] = threads / (warps * WARP)
    result["grid_threads"] = blocks * threads
    result["points_per_thread"] = known["op_points"] / (blocks * threads)
    result["cross_threads"] = np.broadcast_to(nest.across, tiling.rows).astype(np.float64)
    _serial(nest, known, task, result)
    staged = _staging(nest, tiling, known, threads, result)
    result["staged_bytes"] = staged
    result["shared_share"] = staged / shared_limit(task)
    resident = _occupancy(tiling, known, warps, vthreads, staged, result)
    _waves(known, task, blocks, threads, resident, result)
    _traffic(tiling, known, blocks, staged, result)
    result.update(_runs(tiling))
    memory = memory_columns(tiling)
    if memory:
        result.update(memory)
        per_step = np.maximum(known["mid_volume"], 1.0)
        size = tiling.operation.element_bytes
        result["shared_per_fma"] = (
            known["mid_data_bytes"] * memory["bank_data"]
            + known["mid_weight_bytes"] * memory["bank_weight"]
        ) / (size * per_step)
        result["copy_sectors"] = (
            known["stage_data_bytes"] * memory["sectors_data"]
            + known["stage_weight_bytes"] * memory["sectors_weight"]
        ) / (known["stage_data_bytes"] + known["stage_weight_bytes"])
        result["sector_traffic"] = result["traffic_per_flop"] * result["copy_sectors"]
    result.update(clock_columns(tiling, {**known, **result}, multiprocessors(task), LANES))
    if len(nest.threads) > 1:
        others_threads = np.stack(nest.threads[1:])
        others_blocks = np.stack(nest.blocks[1:])
        result["other_threads_min"] = others_threads.min(axis=0)
        result["other_threads_max"] = others_threads.max(axis=0)
        result["other_blocks_min"] = others_blocks.min(axis=0)
    return result


def _serial(nest: Nest, known: dict[str, Floats], task: Task, result: dict[str, Floats]) -> None:
    """Iterations of the busiest thread, and how far they are from an even spread over all lanes.

    What starves a reduction (one thread that adds everything up) and a convolution with too few
    blocks is the same: the longest thread takes longer than the whole device would.
    """
    work = known["op_points"] * known["op_depth"]
    serial = nest.serial
    if serial is None:
        serial = work / (nest.blocks[0] * nest.threads[0])
    ideal = np.maximum(work / (multiprocessors(task) * LANES), 1.0)
    result["serial_steps"] = serial
    result["serial_over_ideal"] = np.maximum(serial / ideal, 1.0)


def _staging(
    nest: Nest, tiling: Tiling, known: dict[str, Floats], threads: Floats, result: dict[str, Floats]
) -> Floats:
    """Bytes that a block stages in shared memory in one round, and how its threads copy them.

    They follow from the tiles: the sizes in Ansor's copy steps are those of the program that was
    sampled first, and mutations of its tiles do not change them.
    """
    size = tiling.operation.element_bytes
    staged = known["stage_data_bytes"] + known["stage_weight_bytes"]
    result["fetches_per_thread"] = staged / (size * threads)
    for operand, length in zip(("data", "weight"), nest.fetch, strict=False):
        # The last round of a cooperative copy leaves threads idle when it does not fit.
        rounds = known[f"stage_{operand}_bytes"] / (size * threads * length)
        result[f"fetch_rounds_{operand}"] = rounds
        result[f"fetch_fill_{operand}"] = rounds / np.ceil(rounds)
    return np.asarray(staged)


def _occupancy(
    tiling: Tiling,
    known: dict[str, Floats],
    warps: Floats,
    vthreads: Floats,
    staged: Floats,
    result: dict[str, Floats],
) -> Floats:
    """Blocks that one multiprocessor holds at a time, by warps, shared memory and registers.

    A warp that is not full takes as much room as one that is.
    """
    size = tiling.operation.element_bytes
    accumulators = known["mid_out_bytes"] / size * vthreads
    operands = (known["mid_data_bytes"] + known["mid_weight_bytes"]) / size
    result["thread_accumulators"] = accumulators
    result["thread_operands"] = operands
    result["shared_reuse"] = known["mid_volume"] / np.maximum(operands, 1.0)
    registers = np.minimum(accumulators + np.minimum(operands, 64) + 24, 255)
    limits = [
        MAX_THREADS / (warps * WARP),
        SHARED_BYTES / np.maximum(staged, 1.0),
        REGISTERS / (registers * warps * WARP),
        np.full(tiling.rows, 32.0),
    ]
    resident = np.maximum(np.floor(np.minimum.reduce(limits)), 1.0)
    result["resident_blocks"] = resident
    result["occupancy"] = np.minimum(resident * warps * WARP / MAX_THREADS, 1.0)
    result["resident_warps"] = resident * warps
    # Independent multiply-adds in flight hide latency where warps are few.
    result["parallel_slack"] = resident * warps * np.minimum(accumulators, 64)
    return np.asarray(resident)


def _waves(
    known: dict[str, Floats],
    task: Task,
    blocks: Floats,
    threads: Floats,
    resident: Floats,
    result: dict[str, Floats],
) -> None:
    """How evenly the grid fills the multiprocessors, and a lower bound of the compute time."""
    processors = multiprocessors(task)
    rounds = np.ceil(blocks / processors)
    waves = np.ceil(blocks / (processors * resident))
    result["hw_multiprocessors"] = np.full(len(blocks), processors)
    result["blocks_per_processor"] = blocks / processors
    result["processor_fill"] = blocks / (processors * rounds)
    result["wave_fill"] = blocks / (processors * resident * waves)
    result["waves"] = waves
    per_block = known["flops"] / (2.0 * blocks)
    lanes = np.minimum(np.ceil(threads / WARP) * WARP, LANES)
    useful = threads / (np.ceil(threads / WARP) * WARP)
    result["compute_clocks"] = rounds * per_block / (lanes * useful)
    ideal = known["flops"] / (2.0 * processors * LANES)
    result["compute_share"] = ideal / result["compute_clocks"]


def _traffic(
    tiling: Tiling,
    known: dict[str, Floats],
    blocks: Floats,
    staged: Floats,
    result: dict[str, Floats],
) -> None:
    """Bytes that all blocks stage over all rounds, beside the work and what must be read."""
    per_round = tiling.inside(tiling.cuts()[3])
    inside = np.ones(tiling.rows)
    for role in REDUCTION:
        inside = inside * per_round.get(role, 1.0)
    rounds = known["op_depth"] / np.maximum(inside, 1.0)
    result["stage_rounds"] = rounds
    result["stage_depth"] = inside
    result["traffic_bytes"] = blocks * rounds * staged
    result["traffic_per_flop"] = result["traffic_bytes"] / known["flops"]
    least = known["op_data_bytes"] + known["op_weight_bytes"] + known["op_out_bytes"]
    result["traffic_over_least"] = (result["traffic_bytes"] + known["op_out_bytes"]) / least


def _runs(tiling: Tiling) -> dict[str, Floats]:
    """What the 32 threads of a warp do side by side, and how long their memory runs are.

    Threads are numbered with the last spatial loop fastest. A warp that spans few values of a loop
    reads that operand by broadcast; a thread's own tile is the stride between its neighbours.
    """
    roles = [role for role in tiling.factors if role in SPATIAL]
    levels = tiling.levels(SPATIAL)
    if levels < 3:
        return {}
    level = 2 if levels > 3 else 1
    rest = np.full(tiling.rows, WARP)
    result: dict[str, Floats] = {}
    own = tiling.inside(tiling.cuts()[2])
    stage = tiling.inside(tiling.cuts()[3])
    for role in reversed(roles):
        factors = tiling.factors[role]
        extent = factors[level] if len(factors) > level else np.ones(tiling.rows)
        lanes = np.minimum(extent, rest)
        rest = np.maximum(np.floor(rest / np.maximum(lanes, 1.0)), 1.0)
        result[f"warp_{role}"] = lanes
    last = roles[-1] if roles else "w"
    stride = own.get(last, np.ones(tiling.rows))
    result["warp_stride"] = stride
    result["store_run"] = np.minimum(result.get(f"warp_{last}", stride), RUN) / stride
    result["last_block"] = stage.get(last, np.ones(tiling.rows))
    # Contiguous elements of one staged row of each operand.
    width = stage.get("w", 1.0) * 1.0
    whole_w = stage.get("w", np.ones(tiling.rows)) >= tiling.operation.extent("w")
    data_run = width * tiling.operation.stride[1] + stage.get("kw", 1.0) - 1
    data_run = np.where(whole_w, data_run * stage.get("h", 1.0), data_run)
    result["data_run"] = data_run * np.ones(tiling.rows)
    kernel = stage.get("kh", 1.0) * stage.get("kw", 1.0)
    whole = float(tiling.operation.extent("kh") * tiling.operation.extent("kw"))
    weight_run = np.where(kernel >= whole, stage.get("ci", 1.0) * kernel, stage.get("kw", 1.0))
    result["weight_run"] = weight_run * np.ones(tiling.rows)
    return result
