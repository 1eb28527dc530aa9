"""Thread-hierarchy features against counts made lane by lane in plain Python."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolkit.features.gpu.gpu import gpu_columns, grid_nest
from toolkit.features.gpu.memory import conflicts, memory_columns, sectors
from toolkit.features.loops.tiling import Tiling
from toolkit.features.task.hardware import multiprocessors
from toolkit.features.task.operation import Operation
from toolkit.records import Task

lanes = st.lists(st.integers(0, 4096), min_size=32, max_size=32)


@given(st.lists(lanes, min_size=1, max_size=4))
def test_conflicts_and_sectors_are_counted_over_distinct_addresses(rows: list[list[int]]) -> None:
    address = np.array(rows)
    for row, most, touched in zip(rows, conflicts(address), sectors(address), strict=True):
        banks: dict[int, set[int]] = {}
        for a in row:
            banks.setdefault(a % 32, set()).add(a)
        assert most == max(len(found) for found in banks.values())
        assert touched == len({a // 8 for a in row})


def conv_tiling(*threads: int, own: int = 1) -> Tiling:
    """A 1x1 convolution, channels first; threads along co, h, w; each owns ``own`` columns."""
    operation = Operation("conv", {"n": 1, "co": 64, "h": 32, "w": 32, "ci": 16})
    one = np.ones(1)

    def levels(extent: int, thread: int, inner: int) -> list[np.ndarray]:
        return [one * (extent // (thread * inner)), one, one * thread, one * inner]

    factors = {
        "n": [one, one, one, one],
        "co": levels(64, threads[0], 1),
        "h": levels(32, threads[1], 1),
        "w": levels(32, threads[2], own),
        "ci": [one * 4, one * 4],
    }
    return Tiling(operation, factors, True, 1)


@pytest.mark.parametrize(
    ("threads", "own", "stores", "weights"),
    [
        ((1, 1, 32), 1, 4, 1),  # one row of 32: four full sectors, one weight for all
        ((1, 1, 8), 4, 4, 1),  # eight threads of four columns: one row again
        ((32, 1, 1), 1, 32, 4),  # 32 channels: a sector each; weights lie 4 apart, 8 banks
    ],
)
def test_stores_and_weight_loads_of_a_warp(
    threads: tuple[int, int, int], own: int, stores: int, weights: int
) -> None:
    columns = memory_columns(conv_tiling(*threads, own=own))
    assert columns["sectors_out"] == [stores]
    assert columns["bank_weight"] == [weights]


def test_waves_and_occupancy() -> None:
    tiling = conv_tiling(8, 1, 32)
    task = Task("t", "autotvm", "conv2d_nchw.cuda", [], "cuda -arch=sm_70", "cuda")
    known = {k: np.full(1, v) for k, v in tiling.operation.columns().items()}
    known.update(tiling.columns(16.0))
    columns = gpu_columns(grid_nest(tiling), tiling, known, task)
    assert columns["thread_extent"] == [256]
    assert columns["block_extent"] == [8 * 32 * 1]
    assert columns["warp_fill"] == [1.0]
    assert columns["processor_fill"] == pytest.approx(256 / (80 * 4))
    assert columns["stage_rounds"] == [4]
    # 1 accumulator, 8 operands and 24 others: 33 registers of 256 threads fit 7 times
    assert columns["occupancy"] == [7 * 256 / 2048]


@pytest.mark.parametrize(
    ("machine", "target", "count"),
    [
        ("Tesla V100-SXM2", "cuda", 80),
        ("nvidia a100 40GB", "cuda", 108),
        (None, "cuda -keys=cuda,gpu -model=2080ti", 68),
        (None, "cuda -arch=sm_86", 82),
        (None, "cuda", 80),
        ("RTX 2080 Ti", "cuda", 68),
    ],
)
def test_multiprocessors_by_name_or_architecture(
    machine: str | None, target: str, count: int
) -> None:
    task = Task("t", "ansor", "x", [], target, "cuda", machine=machine)
    assert multiprocessors(task) == count
