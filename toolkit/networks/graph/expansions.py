"""A pointwise convolution that makes many channels, and the depthwise one after it: one function.

An inverted residual (Sandler et al., "MobileNetV2", CVPR 2018) makes six times as many channels and
convolves each of them by itself. On large images megabytes lie between the two: too much for the
caches of a core. Here a tile of them is made when its outputs need it; its border is made twice.
The function is no task: its tiles follow from the shapes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import tvm
from tvm import relax, te, tirx
from tvm.s_tir import Schedule

from toolkit.networks.graph.chains import Chain, Rewriter, replace_chains
from toolkit.networks.graph.epilogues import ESTIMATED_FLOPS, Steps, finished, given_to
from toolkit.networks.graph.functions import extents

LEAST_BYTES = 4_000_000
"""Size of what lies between, at least. Of 4.8 MB, 16 to 96 channels, the two took 0.90 ms in
MobileNet-V2, as one 0.50 (two cores of a Zen 3; docs/results/networks.md)."""

MOST_CHANNELS = 32
"""Of the input. With more the time goes into multiplications, not into memory."""

TILE_BYTES = 128 * 1024
"""Of a tile that lies between: half of a small second cache."""

MOST_TWICE = 1.25
"""Elements between the two that are made, at most, for each that is needed."""

GROUPS = (6, 5, 4, 3)
"""Pixels whose sums stay in registers, two vectors of channels each; the first that divides."""


@dataclass(frozen=True)
class Expansion:
    """Extents of both convolutions, and zeros above and left of the second one's input."""

    rows: int
    columns: int
    channels: int
    filters: int
    kernel: tuple[int, int]
    strides: tuple[int, int]
    top: int
    left: int
    out_rows: int
    out_columns: int

    @property
    def flops(self) -> int:
        """Operations of both convolutions, as a network does them that has them apart."""
        between, out = self.rows * self.columns, self.out_rows * self.out_columns
        return 2 * self.filters * (between * self.channels + out * math.prod(self.kernel))

    def between(self, rows: int, columns: int) -> tuple[int, int]:
        """Rows and columns of what lies between, for so many of the outputs'."""
        (down, across), (high, wide) = self.strides, self.kernel
        return down * (rows - 1) + high, across * (columns - 1) + wide

    def group(self, columns: int) -> int | None:
        """Pixels of a group, for a tile of so many columns of outputs."""
        wide = self.between(1, columns)[1]
        return next((one for one in GROUPS if wide % one == 0), None)

    def fits(self, rows: int, columns: int) -> bool:
        """Whether a tile of so many outputs stays in the cache, and makes little twice."""
        pixels = math.prod(self.between(rows, columns))
        needed = rows * columns * math.prod(self.strides)
        return 4 * pixels * self.filters <= TILE_BYTES and pixels <= MOST_TWICE * needed

    def cost(self, rows: int, columns: int) -> float:
        """Expected cost of an output, relative: what is made twice, and loads a multiplication."""
        pixels = math.prod(self.between(rows, columns)) / math.prod(self.strides)
        return pixels / (rows * columns) * (1 + 1 / (self.group(columns) or 1))

    def tile(self) -> tuple[int, int] | None:
        """Rows and columns of outputs that are made at a time; ``None``: none is good."""
        tiles = [
            (rows, columns)
            for rows in _divisors(self.out_rows)
            for columns in _divisors(self.out_columns)
            if self.group(columns) and self.fits(rows, columns)
        ]
        return min(tiles, key=lambda tile: self.cost(*tile), default=None)


def with_expansions(module: tvm.IRModule, lanes: int) -> tvm.IRModule:
    """Make pointwise and depthwise convolutions by tiles where much lies between them.

    Parameters
    ----------
    lanes
        How many float32 a vector of the processor holds; 1: it is no processor, and none is made.
    """
    if lanes == 1:
        return module

    def replace(chain: Chain, find: Any, to: Rewriter) -> Any:
        shape = shape_of(chain)
        if shape is None or chain.before is None or shape.filters % lanes:
            return None
        tile = shape.tile()
        if tile is None:
            return None
        both = chain.before, chain
        steps = [one.epilogue.steps for one in both]
        function = to.add(expansion(shape, tile, lanes, *steps), "expansion")
        constants = [array for one in both for array in (one.weight, *one.epilogue.given)]
        given = [find(chain.before.source), *map(relax.const, constants)]
        return relax.call_tir(function, given, chain.type)

    return replace_chains(module, replace)


def shape_of(chain: Chain) -> Expansion | None:
    """Extents of a depthwise convolution and the pointwise one before it; else ``None``."""
    first = chain.before
    if first is None or first.weight.shape[:2] != (1, 1) or chain.weight.shape[2] != 1:
        return None
    images, rows, columns, channels = extents(first.source)
    filters = first.weight.shape[3]
    _, out_rows, out_columns, last = extents(chain.convolution)
    one, other = first.convolution.attrs, chain.convolution.attrs
    plain = (
        images == int(one.groups) == 1
        and int(other.groups) == filters == last
        and _numbers(one.strides) == _numbers(other.dilation) == [1, 1]
        and not any(_numbers(one.padding))
        and not any(first.epilogue.whole + chain.epilogue.whole)
    )
    if not plain or channels > MOST_CHANNELS or 4 * rows * columns * filters < LEAST_BYTES:
        return None
    top, left = _numbers(other.padding)[:2]
    down, across = _numbers(other.strides)
    kernel = (int(chain.weight.shape[0]), int(chain.weight.shape[1]))
    places = (top, left, out_rows, out_columns)
    return Expansion(rows, columns, channels, filters, kernel, (down, across), *places)


@cache
def expansion(
    shape: Expansion, tile: tuple[int, int], lanes: int, first: Steps, second: Steps
) -> Any:
    """Function from the image, and weights and what the steps are given of each, to the outputs."""
    scheduled = _scheduled(Schedule(_computed(shape, first, second)), shape, tile, lanes)
    made = scheduled.mod["main"].without_attr("global_symbol")
    return made.with_attrs(
        {"tirx.is_scheduled": True, "op_pattern": 8, ESTIMATED_FLOPS: shape.flops}
    )


def _computed(shape: Expansion, first: Steps, second: Steps) -> Any:
    """What is computed, block by block."""
    (high, wide), (down, across) = shape.kernel, shape.strides
    rows, columns = shape.between(shape.out_rows, shape.out_columns)
    x = te.placeholder((1, shape.rows, shape.columns, shape.channels), name="x")
    weight = te.placeholder((1, 1, shape.channels, shape.filters), name="weight")
    taps = te.placeholder((high, wide, 1, shape.filters), name="taps")
    ones, others = (
        [te.placeholder((shape.filters,), name="given") for _ in range(given_to(steps))]
        for steps in (first, second)
    )
    zero = tirx.const(0.0, "float32")

    def inside(row: Any, column: Any) -> Any:
        row, column = row - shape.top, column - shape.left
        return tirx.all(row >= 0, row < shape.rows, column >= 0, column < shape.columns)

    padded = te.compute(
        (rows, columns, shape.channels),
        lambda i, j, k: tirx.if_then_else(
            inside(i, j), x[0, i - shape.top, j - shape.left, k], zero
        ),
        name="padded",
    )
    k = te.reduce_axis((0, shape.channels), "k")
    pointwise = te.compute(
        (rows, columns, shape.filters),
        lambda i, j, c: te.sum(padded[i, j, k] * weight[0, 0, k, c], axis=k),
        name="pointwise",
    )
    between = te.compute(
        (rows, columns, shape.filters),
        lambda i, j, c: tirx.if_then_else(
            inside(i, j), finished(pointwise[i, j, c], first, [one[c] for one in ones]), zero
        ),
        name="between",
    )
    r, s = te.reduce_axis((0, high), "r"), te.reduce_axis((0, wide), "s")
    depthwise = te.compute(
        (shape.out_rows, shape.out_columns, shape.filters),
        lambda i, j, c: te.sum(
            between[i * down + r, j * across + s, c] * taps[r, s, 0, c], axis=[r, s]
        ),
        name="depthwise",
    )
    y = te.compute(
        (1, shape.out_rows, shape.out_columns, shape.filters),
        lambda _, i, j, c: finished(depthwise[i, j, c], second, [one[c] for one in others]),
        name="y",
    )
    return te.create_prim_func([x, weight, *ones, taps, *others, y])


def _scheduled(schedule: Schedule, shape: Expansion, tile: tuple[int, int], lanes: int) -> Schedule:
    """Outputs by tiles, shared among threads; of each tile first what lies between, then the rest.

    Sums stay in registers: of one output's taps, and of a group of pixels.
    """
    padded, pointwise, between, depthwise, y = (
        schedule.get_sblock(name) for name in ("padded", "pointwise", "between", "depthwise", "y")
    )
    vectors = lanes * (2 if shape.filters % (2 * lanes) == 0 else 1)
    _, row, column, channel = schedule.get_loops(y)
    down, i = schedule.split(row, [None, tile[0]])
    across, j = schedule.split(column, [None, tile[1]])
    c, lane = schedule.split(channel, [None, vectors])
    schedule.reorder(down, across, i, j, c, lane)
    schedule.vectorize(lane)
    schedule.compute_at(depthwise, c, preserve_unit_loops=True)
    *_, lane, r, s = schedule.get_loops(depthwise)
    schedule.reorder(r, s, lane)
    for tap in (r, s):
        schedule.unroll(tap)
    schedule.vectorize(lane)
    schedule.compute_at(between, across, preserve_unit_loops=True)
    *_, i, j, channel = schedule.get_loops(between)
    j, pixel = schedule.split(j, [None, shape.group(tile[1])])
    c, lane = schedule.split(channel, [None, vectors])
    schedule.reorder(i, j, c, pixel, lane)
    schedule.unroll(pixel)
    schedule.vectorize(lane)
    schedule.compute_at(pointwise, c, preserve_unit_loops=True)
    *_, pixel, lane, k = schedule.get_loops(pointwise)
    schedule.reorder(k, pixel, lane)
    schedule.unroll(pixel)
    schedule.vectorize(lane)
    schedule.compute_at(padded, across, preserve_unit_loops=True)
    schedule.vectorize(schedule.get_loops(padded)[-1])
    schedule.parallel(schedule.fuse(down, across))
    schedule.decompose_reduction(depthwise, r)
    schedule.decompose_reduction(pointwise, k)
    return schedule


def _divisors(number: int) -> list[int]:
    return [one for one in range(1, number + 1) if number % one == 0]


def _numbers(values: Any) -> list[int]:
    return [int(value) for value in values]
