"""Columns of the thread hierarchy: warps, occupancy, waves, memory runs, staging, clocks.

Clocks are rough bounds on how long the resources of one multiprocessor are busy. They follow from
the tiles alone, and are divided by the least that the task needs, so that tasks of different sizes
can be compared. They are no prediction: caches, instruction mix and overlap are left out. They
multiply quantities that a tree can only split one at a time, for example the rounds of staging and
the waves of blocks that wait for them.
"""

from __future__ import annotations

import numpy as np

from toolkit.features.base import Floats
from toolkit.features.gpu.memory import memory_columns
from toolkit.features.loops.nest import Nest, product
from toolkit.features.loops.tiling import Tiling
from toolkit.features.task.hardware import multiprocessors, shared_limit
from toolkit.features.task.operation import GROUPED, REDUCTION, SPATIAL
from toolkit.records import Task

WARP = 32.0
MAX_THREADS = 2048.0  # resident on one multiprocessor, compute capability 7.0 and 8.0
REGISTERS = 65536.0  # 32-bit, of one multiprocessor
SHARED_BYTES = 98304.0  # usable on one multiprocessor, compute capability 7.0
LANES = 64.0  # multiply-adds of one multiprocessor a clock, single precision
RUN = 32.0  # elements of a full memory transaction, single precision
LATENCY = 700.0  # clocks from a round's first copy until it has arrived, barriers included
COPY = 4.0  # clocks in which a warp copies one element a lane: address, load, store, bounds
MEMORY_BYTES = 8.0  # of device memory, a clock and multiprocessor (8 on a V100, 10 on an A100)
CACHE_BYTES = 24.0  # of the second-level cache, a clock and multiprocessor


def grid_nest(tiling: Tiling) -> Nest:
    """Grid of a template whose spatial levels are block, vthread, thread and own tile."""
    nest = Nest(tiling.rows)
    level = tiling.thread_level
    if level is not None:
        nest.blocks, nest.threads = [tiling.over(0)], [tiling.over(level)]
        nest.vthreads = [tiling.over(1) if level > 1 else np.ones(tiling.rows)]
    return nest


def gpu_columns(
    nest: Nest, tiling: Tiling, known: dict[str, Floats], task: Task
) -> dict[str, Floats]:
    """Columns of the main kernel's grid and, summed up, of the other kernels'.

    ``known`` holds the columns of the tiles (``Tiling.columns``) and of the operation.
    """
    if not nest.threads:
        return {}
    c = dict(known)
    blocks, threads = nest.blocks[0], nest.threads[0]
    c["block_extent"], c["thread_extent"], c["vthread_extent"] = blocks, threads, nest.vthreads[0]
    c["warps"] = np.ceil(threads / WARP)
    c["warp_fill"] = threads / (c["warps"] * WARP)
    c["grid_threads"] = blocks * threads
    c["points_per_thread"] = c["op_points"] / (blocks * threads)
    c["cross_threads"] = np.broadcast_to(nest.across, tiling.rows).astype(np.float64)
    # A reduction in one thread and a convolution with too few blocks have the same problem: the
    # longest thread takes longer than the whole device would.
    work = c["op_points"] * c["op_depth"]
    c["serial_steps"] = work / (blocks * threads) if nest.serial is None else nest.serial
    ideal = np.maximum(work / (multiprocessors(task) * LANES), 1.0)
    c["serial_over_ideal"] = np.maximum(c["serial_steps"] / ideal, 1.0)
    _staging(nest, tiling, c)
    c["shared_share"] = c["staged_bytes"] / shared_limit(task)
    _occupancy(tiling, c)
    _waves(c, multiprocessors(task))
    _traffic(tiling, c)
    _runs(tiling, c)
    memory = memory_columns(tiling)
    if memory:
        c.update(memory)
        data, weight = c["stage_data_bytes"], c["stage_weight_bytes"]
        reads = c["mid_data_bytes"] * c["bank_data"] + c["mid_weight_bytes"] * c["bank_weight"]
        per_step = np.maximum(c["mid_volume"], 1.0)
        c["shared_per_fma"] = reads / (tiling.operation.element_bytes * per_step)
        sectors = data * c["sectors_data"] + weight * c["sectors_weight"]
        c["copy_sectors"] = sectors / (data + weight)
        c["sector_traffic"] = c["traffic_per_flop"] * c["copy_sectors"]
    _loads(tiling, c)
    _clocks(c, multiprocessors(task))
    if len(nest.threads) > 1:
        c["other_threads_min"] = np.min(nest.threads[1:], axis=0)
        c["other_threads_max"] = np.max(nest.threads[1:], axis=0)
        c["other_blocks_min"] = np.min(nest.blocks[1:], axis=0)
    return c


def _staging(nest: Nest, tiling: Tiling, c: dict[str, Floats]) -> None:
    """Bytes that a block stages in shared memory in one round, and how its threads copy them.

    They follow from the tiles: the sizes in Ansor's copy steps are those of the program that was
    sampled first, and mutations of its tiles do not change them.
    """
    lane = tiling.operation.element_bytes * c["thread_extent"]
    c["staged_bytes"] = c["stage_data_bytes"] + c["stage_weight_bytes"]
    c["fetches_per_thread"] = c["staged_bytes"] / lane
    for operand, length in zip(("data", "weight"), nest.fetch, strict=False):
        # The last round of a cooperative copy leaves threads idle when it does not fit.
        rounds = c[f"stage_{operand}_bytes"] / (lane * length)
        c[f"fetch_rounds_{operand}"] = rounds
        c[f"fetch_fill_{operand}"] = rounds / np.ceil(rounds)


def _occupancy(tiling: Tiling, c: dict[str, Floats]) -> None:
    """Blocks that one multiprocessor holds at a time, by warps, shared memory and registers.

    A warp that is not full takes as much room as one that is.
    """
    size, warps = tiling.operation.element_bytes, c["warps"]
    accumulators = c["mid_out_bytes"] / size * c["vthread_extent"]
    operands = (c["mid_data_bytes"] + c["mid_weight_bytes"]) / size
    c["thread_accumulators"] = accumulators
    c["thread_operands"] = operands
    c["shared_reuse"] = c["mid_volume"] / np.maximum(operands, 1.0)
    registers = np.minimum(accumulators + np.minimum(operands, 64) + 24, 255)
    limits = [
        MAX_THREADS / (warps * WARP),
        SHARED_BYTES / np.maximum(c["staged_bytes"], 1.0),
        REGISTERS / (registers * warps * WARP),
        np.full(tiling.rows, 32.0),
    ]
    resident = np.maximum(np.floor(np.minimum.reduce(limits)), 1.0)
    c["resident_blocks"] = resident
    c["occupancy"] = np.minimum(resident * warps * WARP / MAX_THREADS, 1.0)
    c["resident_warps"] = resident * warps
    # Independent multiply-adds in flight hide latency where warps are few.
    c["parallel_slack"] = resident * warps * np.minimum(accumulators, 64)


def _waves(c: dict[str, Floats], processors: float) -> None:
    """How evenly the grid fills the multiprocessors, and a lower bound of the compute time."""
    blocks, resident = c["block_extent"], c["resident_blocks"]
    rounds = np.ceil(blocks / processors)
    c["hw_multiprocessors"] = np.full(len(blocks), processors)
    c["blocks_per_processor"] = blocks / processors
    c["processor_fill"] = blocks / (processors * rounds)
    c["waves"] = np.ceil(blocks / (processors * resident))
    c["wave_fill"] = blocks / (processors * resident * c["waves"])
    lanes = np.minimum(c["warps"] * WARP, LANES)
    c["compute_clocks"] = rounds * (c["flops"] / (2.0 * blocks)) / (lanes * c["warp_fill"])
    c["compute_share"] = c["flops"] / (2.0 * processors * LANES) / c["compute_clocks"]


def _traffic(tiling: Tiling, c: dict[str, Floats]) -> None:
    """Bytes that all blocks stage over all rounds, per work and over the least traffic."""
    stage = tiling.inside(*tiling.cuts()["stage"])
    c["stage_depth"] = product((stage[role] for role in REDUCTION), tiling.rows)
    c["stage_rounds"] = c["op_depth"] / np.maximum(c["stage_depth"], 1.0)
    c["traffic_bytes"] = c["block_extent"] * c["stage_rounds"] * c["staged_bytes"]
    c["traffic_per_flop"] = c["traffic_bytes"] / c["flops"]
    least = c["op_data_bytes"] + c["op_weight_bytes"] + c["op_out_bytes"]
    c["traffic_over_least"] = (c["traffic_bytes"] + c["op_out_bytes"]) / least


def _runs(tiling: Tiling, c: dict[str, Floats]) -> None:
    """Loops that the 32 threads of a warp span, and the lengths of their memory runs.

    Threads are numbered with the last spatial loop fastest. A warp that spans few values of a loop
    reads that operand by broadcast; a thread's own tile is the stride between its neighbours.
    """
    if tiling.thread_level is None:
        return
    rest = np.full(tiling.rows, WARP)
    for role in reversed(tiling.spatial):
        lanes = np.minimum(tiling.level(role, tiling.thread_level), rest)
        rest = np.maximum(np.floor(rest / np.maximum(lanes, 1.0)), 1.0)
        c[f"warp_{role}"] = lanes
    operation, last = tiling.operation, tiling.spatial[-1]
    stage = tiling.inside(*tiling.cuts()["stage"])
    c["warp_stride"] = tiling.inside(*tiling.cuts()["mid"])[last]
    c["store_run"] = np.minimum(c[f"warp_{last}"], RUN) / c["warp_stride"]
    c["last_block"] = stage[last]
    # Contiguous elements of one staged row of each operand.
    row = stage["w"] * operation.stride[1] + stage["kw"] - 1
    c["data_run"] = np.where(stage["w"] >= operation.extent("w"), row * stage["h"], row)
    kernel = stage["kh"] * stage["kw"]
    whole = kernel >= operation.extent("kh") * operation.extent("kw")
    c["weight_run"] = np.where(whole, stage["ci"] * kernel, stage["kw"])


def _loads(tiling: Tiling, c: dict[str, Floats]) -> None:
    """Shared-memory loads of a thread per multiply-add, over all virtual threads.

    ``step_``: registers hold only one step of the reduction. ``round_``: nothing is read twice
    between two rounds of staging (an unrolled window of a convolution). Both with bank conflicts.
    """
    operation, one = tiling.operation, np.ones(tiling.rows)
    # Virtual threads lie apart: each reads an input of its own unless they differ in channels.
    data_copies, weight_copies = one, one
    for role in SPATIAL:
        virtual = c.get(f"vthread_{role}", one)
        if role != "co" or operation.family in GROUPED:
            data_copies = data_copies * virtual
        if role == "co" or (role == "n" and operation.family == "batch_matmul"):
            weight_copies = weight_copies * virtual
    levels = max(tiling.levels(REDUCTION), 1)
    for word, level in (("step", levels), ("round", min(1, levels - 1))):
        inside = tiling.inside(tiling.cuts()["mid"][0], level)
        data, weight, _ = operation.elements(inside)
        data, weight = data * data_copies, weight * weight_copies
        volume = c["vthread_extent"] * product(inside.values(), tiling.rows)
        loads = data * c.get("bank_data", one) + weight * c.get("bank_weight", one)
        c[f"{word}_loads_per_fma"] = loads / volume
    c["round_volume"], c["round_operands"] = volume, data + weight


def _clocks(c: dict[str, Floats], processors: float) -> None:
    """Clocks of rounds that blocks wait for one after the other, and of the busiest resource.

    ``clocks_most`` is the larger of both, ``clocks_sum`` their sum. Resources are arithmetic and
    copies, shared memory, and cache.
    """
    work = c["op_points"] * c["op_depth"]
    needed = c["op_data_bytes"] + c["op_weight_bytes"] + c["op_out_bytes"]
    least = np.maximum(work / LANES, needed / MEMORY_BYTES) / processors
    blocks, warps, rounds = c["block_extent"], c["warps"], c["stage_rounds"]
    own = np.ceil(blocks / processors)
    shared = own * warps * work / (blocks * c["thread_extent"]) * c["round_loads_per_fma"]
    copies = own * warps * c["fetches_per_thread"] * rounds * COPY
    # Four sectors hold what 32 lanes need; more are read for nothing.
    sectors = np.maximum(c.get("copy_sectors", np.full(len(blocks), 4.0)) / 4.0, 1.0)
    cache = own * rounds * c["staged_bytes"] * sectors / CACHE_BYTES
    busy = np.maximum.reduce([c["compute_clocks"] + copies, shared, cache]) / least
    one_after_another = np.ceil(own / np.minimum(c["resident_blocks"], own))
    # Storing the last round's results takes as long as one more round.
    c["clocks_latency"] = one_after_another * (rounds + 1.0) * LATENCY / least
    c["clocks_most"] = np.maximum(busy, c["clocks_latency"])
    c["clocks_sum"] = busy + c["clocks_latency"]
