"""Logs that tests write themselves: AutoTVM convolutions whose run times follow a formula."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import orjson

SHAPES = [(32, 64, 14), (64, 64, 14), (64, 128, 28), (128, 128, 7), (32, 32, 28), (64, 32, 7)]


def divisors(extent: int) -> list[int]:
    """Divisors of an extent, ascending."""
    return [d for d in range(1, extent + 1) if extent % d == 0]


def run_time(ci: int, co: int, size: int, tile: tuple[int, int, int], unroll: bool) -> float:
    """Seconds of a made-up machine: vectors of 8, 16 registers, a penalty for small tiles."""
    tile_ic, tile_oc, tile_ow = tile
    work = ci * co * size * size * 9 * 1e-10
    fill = tile_oc / (8 * -(-tile_oc // 8))
    registers = -(-tile_oc // 8) * tile_ow
    spill = 1 + max(0, registers - 14) / 14
    starve = 1 + 2 / registers
    return work / fill * spill * starve * (1 + 0.3 / tile_ic) * (0.97 if unroll else 1.0)


def write_autotvm(
    path: Path,
    shapes: list[tuple[int, int, int]] = SHAPES,
    *,
    seed: int = 0,
    noise: float = 0.0,
    factors: dict[tuple[int, int, int], float] | None = None,
    occasions: int = 1,
    failing: float = 0.0,
) -> int:
    """Write the whole space of each shape (input channels, output channels, size).

    ``factors`` multiplies the run times of a shape by random numbers with that spread: what a
    poisoned task looks like. Returns the number of lines.
    """
    rng = np.random.default_rng(seed)
    lines = []
    for ci, co, size in shapes:
        arguments = [
            ["TENSOR", [1, ci, size, size], "float32"],
            ["TENSOR", [co, ci, 3, 3], "float32"],
            [1, 1],
            [1, 1, 1, 1],
            [1, 1],
            "NCHW",
            "NCHW",
            "float32",
        ]
        space = itertools.product(divisors(ci), divisors(co), divisors(size), (False, True))
        for index, (ic, oc, ow, unroll) in enumerate(space):
            for occasion in range(occasions):
                seconds = run_time(ci, co, size, (ic, oc, ow), unroll)
                seconds *= float(np.exp(noise * rng.standard_normal()))
                if factors and (ci, co, size) in factors:
                    seconds *= float(np.exp(factors[ci, co, size] * rng.standard_normal()))
                failed = rng.random() < failing
                entity = [
                    ["tile_ic", "sp", [-1, ic]],
                    ["tile_oc", "sp", [-1, oc]],
                    ["tile_ow", "sp", [-1, ow]],
                    ["unroll_kw", "ot", unroll],
                ]
                lines.append(
                    {
                        "input": ["llvm -keys=cpu ", "conv2d_NCHWc.x86", arguments, {}],
                        "config": {"index": index, "code_hash": None, "entity": entity},
                        "result": [
                            [1e9] if failed else [seconds] * 3,
                            4 if failed else 0,
                            0.5,
                            1.6e9 + len(lines) + occasion / 10,
                        ],
                        "version": 0.2,
                        "tvm_version": "0.10.0",
                    }
                )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))
    return len(lines)
