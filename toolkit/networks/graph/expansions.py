"""One function for a convolution that increases the channels and the depthwise one after it.

An inverted residual (Sandler et al., "MobileNetV2", CVPR 2018) makes six times as many channels and
convolves each of them by itself. Such networks also start like this, with an image of three
channels. For large images there are megabytes between the two convolutions: too much for the caches
of a core. Here a tile of this tensor is computed when its outputs need it. The border of a tile is
computed twice. An image in channels first is read as it is. The function is not a task: its tiles
follow from the shapes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import tvm
from tvm import relax, te, tirx
from tvm.s_tir import Schedule

from toolkit.networks.graph.chains import Chain, replace_chains
from toolkit.networks.graph.epilogues import ESTIMATED_FLOPS, Steps, finished, given_to
from toolkit.networks.graph.functions import extents

LEAST_BYTES = 4_000_000
"""Least size of the tensor between the two. For 4.8 MB, 16 to 96 channels, two functions took
0.90 ms in MobileNet-V2, one function 0.50 (two cores of a Zen 3; docs/results/networks.md)."""

LEAST_OPENING_BYTES = 1_000_000
"""The same if the first convolution has a window. For 1.6 MB, 3 to 32 channels, two functions and
the image's transpose took 0.60 ms there, one function 0.43."""

MOST_DEPTH = 32
"""Most products per sum of the first one. With more, multiplications take the time, not memory."""

TILE_BYTES = 128 * 1024
"""Most bytes of a tile of the tensor between the two: half of a small second-level cache."""

MOST_TWICE = 1.25
"""Most elements between the two that are computed, for each one that is needed."""

GROUPS = (6, 5, 4, 3)
"""Pixels whose sums stay in registers, two vectors of channels each; the first divisor is taken."""


@dataclass(frozen=True)
class Window:
    """A convolution's kernel and strides, and the padding above and left of its input."""

    kernel: tuple[int, int] = (1, 1)
    strides: tuple[int, int] = (1, 1)
    before: tuple[int, int] = (0, 0)

    def read(self, rows: int, columns: int) -> tuple[int, int]:
        """Return the rows and columns of input that this many rows and columns of output need."""
        (down, across), (high, wide) = self.strides, self.kernel
        return down * (rows - 1) + high, across * (columns - 1) + wide


@dataclass(frozen=True)
class Expansion:
    """Extents of both convolutions.

    ``source``: rows, columns and channels of the first one's input, which is in channels first if
    ``planar``. ``middle`` and ``out``: rows and columns between the two and after them.
    ``filters``: channels of both outputs.
    """

    source: tuple[int, int, int]
    first: Window
    middle: tuple[int, int]
    second: Window
    out: tuple[int, int]
    filters: int
    planar: bool = False

    @property
    def depth(self) -> int:
        """Products that are summed for an element between the two."""
        return self.source[2] * math.prod(self.first.kernel)

    @property
    def flops(self) -> int:
        """Operations of both convolutions when each is its own function."""
        taps = math.prod(self.second.kernel)
        products = math.prod(self.middle) * self.depth + math.prod(self.out) * taps
        return 2 * self.filters * products

    def group(self, columns: int) -> int | None:
        """Return the pixels of a group, for a tile of ``columns`` columns of outputs."""
        wide = self.second.read(1, columns)[1]
        return next((one for one in GROUPS if wide % one == 0), None)

    def fits(self, rows: int, columns: int) -> bool:
        """Return whether a tile of outputs fits in the cache and computes little twice."""
        pixels = math.prod(self.second.read(rows, columns))
        needed = rows * columns * math.prod(self.second.strides)
        return 4 * pixels * self.filters <= TILE_BYTES and pixels <= MOST_TWICE * needed

    def cost(self, rows: int, columns: int) -> float:
        """Return the relative cost of an output: repeated elements, and loads a multiplication."""
        pixels = math.prod(self.second.read(rows, columns)) / math.prod(self.second.strides)
        return pixels / (rows * columns) * (1 + 1 / (self.group(columns) or 1))

    def tile(self) -> tuple[int, int] | None:
        """Return the rows and columns of a tile of outputs; ``None``: no tile is good."""
        tiles = [
            (rows, columns)
            for rows in _divisors(self.out[0])
            for columns in _divisors(self.out[1])
            if self.group(columns) and self.fits(rows, columns)
        ]
        return min(tiles, key=lambda tile: self.cost(*tile), default=None)


def with_expansions(module: tvm.IRModule, lanes: int) -> tvm.IRModule:
    """Replace convolutions and the depthwise ones after them, if the tensor between is large.

    ``lanes``: float32 per vector of the processor; 1: the device is no processor, nothing is done.
    """
    if lanes == 1:
        return module

    def replace(chain: Chain, to: Any) -> Any:
        first, shape = chain.before, shape_of(chain)
        if first is None or shape is None or shape.filters % lanes or not (tile := shape.tile()):
            return None
        steps = first.epilogue.steps, chain.epilogue.steps
        function = to.builder_.add_func(expansion(shape, tile, lanes, *steps), "expansion")
        constants = [array for one in (first, chain) for array in (one.weight, *one.epilogue.given)]
        source = first.planar if shape.planar else first.source
        given = [to.visit_expr(source), *map(relax.const, constants)]
        return relax.call_tir(function, given, chain.convolution.ty)

    return replace_chains(module, replace)


def shape_of(chain: Chain) -> Expansion | None:
    """Return the extents of a depthwise convolution and the one before it; else ``None``."""
    first = chain.before
    if first is None or chain.weight.shape[2] != 1:
        return None
    images, height, width, channels = extents(first.source)
    _, rows, columns, filters = extents(first.convolution)
    _, out_rows, out_columns, last = extents(chain.convolution)
    one, other = first.convolution.attrs, chain.convolution.attrs
    plain = (
        images == int(one.groups) == 1
        and int(other.groups) == filters == last
        and _numbers(one.dilation) == _numbers(other.dilation) == [1, 1]
        and not any(first.epilogue.whole + chain.epilogue.whole)
    )
    source, middle, out = (height, width, channels), (rows, columns), (out_rows, out_columns)
    window, planar = _window(first), first.planar is not None
    shape = Expansion(source, window, middle, _window(chain), out, filters, planar)
    least = LEAST_BYTES if window == Window() else LEAST_OPENING_BYTES
    if not plain or shape.depth > MOST_DEPTH or 4 * rows * columns * filters < least:
        return None
    return shape


def _window(chain: Chain) -> Window:
    high, wide = chain.weight.shape[:2]
    attributes = chain.convolution.attrs
    (down, across), (top, left) = _numbers(attributes.strides), _numbers(attributes.padding)[:2]
    return Window((high, wide), (down, across), (top, left))


@cache
def expansion(
    shape: Expansion, tile: tuple[int, int], lanes: int, first: Steps, second: Steps
) -> Any:
    """Return the function from the image, weights and tensors of the steps to the outputs."""
    scheduled = _scheduled(Schedule(_computed(shape, first, second)), shape, tile, lanes)
    made = scheduled.mod["main"].without_attr("global_symbol")
    return made.with_attrs(
        {"tirx.is_scheduled": True, "op_pattern": 8, ESTIMATED_FLOPS: shape.flops}
    )


def _computed(shape: Expansion, first: Steps, second: Steps) -> Any:
    """Return the computation, block by block."""
    one, other = shape.first, shape.second
    rows, columns = other.read(*shape.out)
    height, width, channels = shape.source

    def place(row: Any, column: Any, channel: Any) -> tuple[Any, ...]:
        return (channel, row, column) if shape.planar else (row, column, channel)

    def within(row: Any, column: Any, rows: int, columns: int) -> Any:
        return tirx.all(row >= 0, row < rows, column >= 0, column < columns)

    x = te.placeholder((1, *place(height, width, channels)), name="x")
    weight = te.placeholder((*one.kernel, channels, shape.filters), name="weight")
    taps = te.placeholder((*other.kernel, 1, shape.filters), name="taps")
    ones, others = (
        [te.placeholder((shape.filters,), name="given") for _ in range(given_to(steps))]
        for steps in (first, second)
    )
    zero = tirx.const(0.0, "float32")
    # Offset of the first row and column that the tensor between the two (with its padding) reads.
    above, before = (
        margin + stride * zeros
        for margin, stride, zeros in zip(one.before, one.strides, other.before, strict=True)
    )

    def source(row: Any, column: Any, channel: Any) -> Any:
        row, column = row - above, column - before
        inside = within(row, column, height, width)
        return tirx.if_then_else(inside, x(0, *place(row, column, channel)), zero)

    high, wide = one.read(rows, columns)
    if shape.planar:
        padded = te.compute((channels, high, wide), lambda k, i, j: source(i, j, k), name="padded")
    else:
        padded = te.compute((high, wide, channels), source, name="padded")

    (top, left), (below, aside) = other.before, other.strides
    r, s = (te.reduce_axis((0, size), name) for size, name in zip(one.kernel, "rs", strict=True))
    k = te.reduce_axis((0, channels), "k")
    down, across = one.strides
    convolved = te.compute(
        (rows, columns, shape.filters),
        lambda i, j, c: te.sum(
            padded[place(i * down + r, j * across + s, k)] * weight[r, s, k, c], axis=[r, s, k]
        ),
        name="convolved",
    )
    between = te.compute(
        (rows, columns, shape.filters),
        lambda i, j, c: tirx.if_then_else(
            within(i - top, j - left, *shape.middle),
            finished(convolved[i, j, c], first, [one[c] for one in ones]),
            zero,
        ),
        name="between",
    )
    p, q = (te.reduce_axis((0, size), name) for size, name in zip(other.kernel, "pq", strict=True))
    depthwise = te.compute(
        (*shape.out, shape.filters),
        lambda i, j, c: te.sum(
            between[i * below + p, j * aside + q, c] * taps[p, q, 0, c], axis=[p, q]
        ),
        name="depthwise",
    )
    y = te.compute(
        (1, *shape.out, shape.filters),
        lambda _, i, j, c: finished(depthwise[i, j, c], second, [one[c] for one in others]),
        name="y",
    )
    return te.create_prim_func([x, weight, *ones, taps, *others, y])


def _scheduled(schedule: Schedule, shape: Expansion, tile: tuple[int, int], lanes: int) -> Schedule:
    """Compute tiles of outputs in parallel threads; for each tile, first the tensor in between.

    Sums stay in registers: those of one output's taps, and those of a group of pixels.
    """
    padded, convolved, between, depthwise, y = (
        schedule.get_sblock(name) for name in ("padded", "convolved", "between", "depthwise", "y")
    )
    vectors = lanes * (2 if shape.filters % (2 * lanes) == 0 else 1)
    _, row, column, channel = schedule.get_loops(y)
    down, i = schedule.split(row, [None, tile[0]])
    across, j = schedule.split(column, [None, tile[1]])
    c, lane = schedule.split(channel, [None, vectors])
    schedule.reorder(down, across, i, j, c, lane)
    schedule.vectorize(lane)
    schedule.compute_at(depthwise, c, preserve_unit_loops=True)
    *_, lane, p, q = schedule.get_loops(depthwise)
    schedule.reorder(p, q, lane)
    for tap in (p, q):
        schedule.unroll(tap)
    schedule.vectorize(lane)
    schedule.compute_at(between, across, preserve_unit_loops=True)
    *_, i, j, channel = schedule.get_loops(between)
    j, pixel = schedule.split(j, [None, shape.group(tile[1])])
    c, lane = schedule.split(channel, [None, vectors])
    schedule.reorder(i, j, c, pixel, lane)
    schedule.unroll(pixel)
    schedule.vectorize(lane)
    schedule.compute_at(convolved, c, preserve_unit_loops=True)
    *_, pixel, lane, r, s, k = schedule.get_loops(convolved)
    schedule.reorder(r, s, k, pixel, lane)
    schedule.unroll(pixel)
    schedule.vectorize(lane)
    schedule.compute_at(padded, across, preserve_unit_loops=True)
    if not shape.planar:
        schedule.vectorize(schedule.get_loops(padded)[-1])
    schedule.parallel(schedule.fuse(down, across))
    schedule.decompose_reduction(depthwise, p)
    schedule.decompose_reduction(convolved, r)
    return schedule


def _divisors(number: int) -> list[int]:
    return [one for one in range(1, number + 1) if number % one == 0]


def _numbers(values: Any) -> list[int]:
    return [int(value) for value in values]
