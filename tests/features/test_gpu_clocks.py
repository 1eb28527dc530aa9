"""Bounds of a GPU's resources against counts by hand."""

from __future__ import annotations

import numpy as np
import pytest

from toolkit.features.gpu.gpu import gpu_columns, grid_nest
from toolkit.features.loops.tiling import Tiling
from toolkit.features.task.operation import Operation
from toolkit.records import Task

TASK = Task("t", "autotvm", "depthwise_conv2d_nchw.cuda", [], "cuda -arch=sm_70", "cuda")


def depthwise_columns(
    kernel_rounds: int, *, vthreads: int = 1, rows: int = 2, threads: int = 32
) -> dict[str, float]:
    """A 7x7 depthwise convolution; a thread owns ``rows`` points of a column.

    The window's rows are staged in ``kernel_rounds`` rounds (1 or 7).
    """
    operation = Operation("depthwise", {"n": 1, "co": 64, "h": 28, "w": 32, "kh": 7, "kw": 7})
    one = np.ones(1)
    factors = {
        "n": [one, one, one, one],
        "co": [one * 64, one, one, one],
        "h": [one * (28 // (rows * vthreads)), one * vthreads, one, one * rows],
        "w": [one * (32 // threads), one, one * threads, one],
        "kh": [one * kernel_rounds, one * (7 // kernel_rounds), one],
        "kw": [one, one, one * 7],
    }
    tiling = Tiling(operation, factors, True, 1)
    known = {k: np.full(1, v) for k, v in operation.columns().items()}
    known.update(tiling.columns(16.0))
    columns = gpu_columns(grid_nest(tiling), tiling, known, TASK)
    return {name: float(values[0]) for name, values in columns.items()}


def test_reads_of_a_window_by_step_and_by_round() -> None:
    columns = depthwise_columns(1)
    # One step: two inputs and one weight for two multiply-adds.
    assert columns["step_loads_per_fma"] == pytest.approx(3 / 2)
    # A whole window: 8 rows of 7 inputs and 49 weights for 2 * 49 multiply-adds.
    assert columns["round_volume"] == 98
    assert columns["round_operands"] == 56 + 49
    assert columns["round_loads_per_fma"] == pytest.approx((56 + 49) / 98)
    # A row of it at a time: 2 rows of inputs, 7 weights, 14 multiply-adds.
    assert depthwise_columns(7)["round_operands"] == 14 + 7


def test_virtual_threads_read_inputs_of_their_own_and_share_weights() -> None:
    columns = depthwise_columns(1, vthreads=2, rows=1)
    # 2 windows of 49 inputs that lie apart, but one set of weights.
    assert columns["round_operands"] == 2 * 49 + 49
    assert columns["round_volume"] == 98


def test_latency_counts_rounds_and_waves_one_after_another() -> None:
    whole, rowwise = depthwise_columns(1), depthwise_columns(7)
    assert (whole["stage_rounds"], rowwise["stage_rounds"]) == (1, 7)
    # 64 * 14 blocks on 80 multiprocessors: 12 each, all resident: (rounds + 1) * 700 clocks.
    assert whole["resident_blocks"] >= 12
    # The least is to move inputs (34 x 38 with the halo), outputs and weights, 8 bytes a clock.
    least = 4 * 64 * (34 * 38 + 28 * 32 + 7 * 7) / (80 * 8)
    assert least > 49 * 64 * 28 * 32 / (80 * 64)
    assert whole["clocks_latency"] == pytest.approx(2 * 700 / least)
    assert rowwise["clocks_latency"] == pytest.approx(8 * 700 / least)
    assert whole["clocks_most"] >= whole["clocks_latency"]
    assert whole["clocks_sum"] > whole["clocks_most"]


def test_a_warp_that_is_not_full_takes_the_room_of_one() -> None:
    full, half = depthwise_columns(1), depthwise_columns(1, threads=16)
    assert half["warps"] == full["warps"] == 1
    assert half["occupancy"] == full["occupancy"] == 32 / 64
