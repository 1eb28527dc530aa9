"""Random workloads of realistic shapes, to measure logs for training.

Adams et al. 2019 ("Learning to Optimize Halide with Tree Search and Random Programs") train their
cost model on random programs, so that it favours no operator. Here the kinds of operators are drawn
in turn, so that reductions and memory-bound operators are as frequent as matrix products. Extents
are random: most as in networks, some odd. A drawn workload has a usual name
(``conv2d_bias_relu:1,28,28,96,96,3,1,1``), with which it can be measured again.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

MOST_OPERATIONS = 1.5e9
"""Limit on the operations, so that a random program runs in milliseconds and not in seconds."""
LEAST_ELEMENTS, MOST_ELEMENTS = 1 << 10, 1 << 23
"""Limits on the elements of the largest tensor."""
ODD = 0.2
"""Share of extents that are drawn as any number."""

_SIDES = (7, 8, 10, 13, 14, 16, 20, 26, 27, 28, 32, 40, 55, 56, 64, 80, 112)
_ROWS = (1, 8, 16, 32, 49, 64, 100, 128, 196, 197, 256, 384, 512)
_KERNELS = (1, 1, 1, 3, 3, 3, 3, 5, 7)


class _Draw:
    """The random numbers of the workloads."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng

    def one_of(self, values: tuple[int, ...]) -> int:
        return int(self.rng.choice(values))

    def usual(self, values: tuple[int, ...]) -> int:
        """One of the usual extents, or any number between the least and the largest."""
        if self.rng.random() < ODD:
            return int(self.rng.integers(min(values), max(values) + 1))
        return self.one_of(values)

    def wide(self, least: int, most: int, step: int = 8) -> int:
        """Return a log-uniform extent; a multiple of ``step``, except for the share ``ODD``."""
        value = math.exp(self.rng.uniform(math.log(least), math.log(most)))
        if self.rng.random() < ODD:
            return max(1, round(value))
        return max(step, step * round(value / step))

    def window(self) -> tuple[int, int, int]:
        """Return kernel, stride and padding."""
        kernel = self.one_of(_KERNELS)
        stride = 2 if self.rng.random() < 0.25 else 1
        padding = 0 if self.rng.random() < 0.15 else kernel // 2
        return kernel, stride, padding


_Drawn = tuple[list[int], float, int]
"""Arguments, number of operations, and elements of the largest tensor."""


def _conv2d(draw: _Draw) -> _Drawn:
    side, inputs, outputs = draw.usual(_SIDES), draw.wide(3, 768), draw.wide(16, 1024, 16)
    kernel, stride, padding = draw.window()
    out = (side + 2 * padding - kernel) // stride + 1
    operations = 2.0 * out * out * outputs * inputs * kernel * kernel
    largest = max(side * side * inputs, out * out * outputs, kernel * kernel * inputs * outputs)
    return [1, side, side, inputs, outputs, kernel, stride, padding], operations, largest


def _grouped(draw: _Draw) -> _Drawn:
    (batch, side, _, *channels, kernel, stride, padding), operations, largest = _conv2d(draw)
    groups = draw.one_of((2, 4, 8))
    grouped = [groups * max(1, count // groups) for count in channels]
    arguments = [batch, side, side, *grouped, kernel, stride, padding, 1, groups]
    return arguments, operations / groups, largest


def _conv1d(draw: _Draw) -> _Drawn:
    length, inputs, outputs = draw.wide(32, 1024), draw.wide(16, 512), draw.wide(16, 512)
    kernel, stride, padding = draw.window()
    out = (length + 2 * padding - kernel) // stride + 1
    operations = 2.0 * out * outputs * inputs * kernel
    largest = max(length * inputs, out * outputs)
    return [1, length, inputs, outputs, kernel, stride, padding], operations, largest


def _depthwise(draw: _Draw) -> _Drawn:
    side, channels = draw.usual(_SIDES), draw.wide(16, 1024)
    kernel, stride, padding = draw.one_of((3, 3, 3, 5, 7)), draw.one_of((1, 1, 2)), 1
    out = (side + 2 * padding - kernel) // stride + 1
    operations = 2.0 * out * out * channels * kernel * kernel
    return [1, side, side, channels, kernel, stride, padding], operations, side * side * channels


def _dense(draw: _Draw) -> _Drawn:
    rows, outputs, inputs = draw.usual(_ROWS), draw.wide(16, 4096, 16), draw.wide(16, 4096, 16)
    largest = max(outputs * inputs, rows * outputs, rows * inputs)
    return [rows, outputs, inputs], 2.0 * rows * outputs * inputs, largest


def _products(draw: _Draw) -> _Drawn:
    heads, rows = draw.one_of((1, 4, 6, 8, 12, 16)), draw.usual(_ROWS)
    columns, inner = draw.wide(16, 512), draw.wide(16, 256)
    largest = heads * max(rows * inner, inner * columns, rows * columns)
    return [heads, rows, columns, inner], 2.0 * heads * rows * columns * inner, largest


def _attention(draw: _Draw) -> _Drawn:
    heads, rows, columns = draw.one_of((1, 1, 4, 8, 12)), draw.usual(_ROWS), draw.wide(10, 4096)
    size = heads * rows * columns
    shape = [rows, columns] if heads == 1 else [heads, rows, columns]
    return shape, 12.0 * size, size


def _matrix(draw: _Draw) -> _Drawn:
    rows, columns = draw.usual(_ROWS), draw.wide(64, 4096)
    return [rows, columns], 8.0 * rows * columns, rows * columns


def _cube(draw: _Draw) -> _Drawn:
    shape = [draw.usual(_ROWS), draw.one_of((4, 8, 12, 16)), draw.one_of((32, 64, 128))]
    return shape, float(math.prod(shape)), math.prod(shape)


def _image(draw: _Draw) -> _Drawn:
    side, channels = draw.usual(_SIDES), draw.wide(16, 2048)
    size = side * side * channels
    return [1, side, side, channels], 2.0 * size, size


def _pool(draw: _Draw) -> _Drawn:
    arguments, operations, largest = _image(draw)
    kernel = draw.one_of((2, 3, 3, 5))
    return [*arguments, kernel, draw.one_of((1, 2, 2)), kernel // 2], operations * kernel, largest


KINDS: tuple[tuple[tuple[str, ...], Callable[[_Draw], _Drawn]], ...] = (
    (("conv2d_bias_relu", "conv2d_bias_add_relu", "conv2d_bias", "conv2d_bias_add"), _conv2d),
    (("depthwise_bias_relu6", "depthwise_conv2d_nhwc"), _depthwise),
    (("dense_bias", "dense_bias_gelu", "matmul"), _dense),
    (("softmax",), _attention),
    (("batch_matmul_nkkm",), _products),
    (("layer_norm", "row_sum", "add_gelu"), _matrix),
    (("conv2d_nhwc",), _grouped),
    (("max_pool2d",), _pool),
    (("conv1d_nlc",), _conv1d),
    (("global_mean", "add_relu"), _image),
    (("transpose",), _cube),
)
"""Names of workloads with the same arguments, and the function that draws these arguments."""


def draw_workloads(count: int, seed: int = 0) -> list[str]:
    """Draw names of distinct workloads, one kind of operator after the other.

    With the same seed, a larger ``count`` returns the same workloads first, then further ones.
    """
    draw = _Draw(np.random.default_rng(seed))
    found: dict[str, None] = {}
    turn = 0
    while len(found) < count:
        names, arguments_of = KINDS[turn % len(KINDS)]
        arguments, operations, largest = arguments_of(draw)
        name = str(draw.rng.choice(names))
        text = f"{name}:{','.join(map(str, arguments))}"
        sound = operations <= MOST_OPERATIONS and LEAST_ELEMENTS <= largest <= MOST_ELEMENTS
        if sound and min(arguments[:4]) > 0 and text not in found:
            found[text] = None
            turn += 1
    return list(found)
