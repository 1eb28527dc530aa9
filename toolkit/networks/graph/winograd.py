"""Winograd's convolutions: 3 x 3 with fewer multiplications, where a tolerance allows them.

Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", CVPR 2016. F(m x m, 3 x 3)
computes m x m outputs from a tile of (m + 2) x (m + 2) inputs. Tiles and weights are transformed,
multiplied element by element, summed over channels, and transformed back. The sums are one product
of matrices for each of the (m + 2)^2 elements: a task like any other. The transforms of tiles need
no search: they read and write everything once, vectorised along channels. Weights are transformed
when the network is compiled. The epilogue is computed where the outputs are written.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, reduce
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from toolkit.networks.graph.chains import Chain, replace_chains
from toolkit.networks.graph.epilogues import ESTIMATED_FLOPS, Steps, finished
from toolkit.networks.graph.functions import extents

ERRORS = {2: 1e-5, 4: 1e-4}
"""By m: the error of a network's outputs to expect, as a share of their range. One convolution of
512 channels has up to 9e-7 and 2e-5 (docs/results/networks.md)."""

LANES = 16
"""Channels per step: a cache line of float32, one vector of AVX-512 or two of AVX2."""

TRANSFORM_FLOPS = 25.0
"""Cost of reading or writing an element of a transformed tile, in operations of a product. Alone it
takes 0.1 ns on two cores of 150 GFLOP/s (Zen 3): 15. In a network, with cold caches, it is more."""

MEMORY_FLOPS = 20.0
"""Cost of a byte of weights from memory, in operations of a product: two cores of a Zen 5 do 500
GFLOP/s and read 113 MB in 4 ms."""

LEAST_GAIN = 1.15
"""A convolution stays as it is if the expected speedup is below this factor."""

_INPUT = {
    2: ((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, 1, 0, -1)),
    4: (
        (4, 0, -5, 0, 1, 0), (0, -4, -4, 1, 1, 0), (0, 4, -4, -1, 1, 0),
        (0, -2, -1, 2, 1, 0), (0, 2, -1, -2, 1, 0), (0, 4, 0, -5, 0, 1),
    ),
}  # fmt: skip
_WEIGHT = {
    2: ((1, 0, 0), (1 / 2, 1 / 2, 1 / 2), (1 / 2, -1 / 2, 1 / 2), (0, 0, 1)),
    4: (
        (1 / 4, 0, 0), (-1 / 6, -1 / 6, -1 / 6), (-1 / 6, 1 / 6, -1 / 6),
        (1 / 24, 1 / 12, 1 / 6), (1 / 24, -1 / 12, 1 / 6), (0, 0, 1),
    ),
}  # fmt: skip
_OUTPUT = {
    2: ((1, 1, 1, 0), (0, 1, -1, -1)),
    4: ((1, 1, 1, 1, 1, 0), (0, 1, -1, 2, -2, 0), (0, 1, 1, 4, 4, 0), (0, 1, -1, 8, -8, 1)),
}


@dataclass(frozen=True)
class Shape:
    """A 3 x 3 convolution of stride 1: extents of its input and output, and its padding."""

    images: int
    rows: int
    columns: int
    channels: int
    out_rows: int
    out_columns: int
    filters: int
    top: int
    left: int

    def tiles(self, m: int) -> tuple[int, int]:
        """Return the rows and columns of tiles that cover the output."""
        return -(-self.out_rows // m), -(-self.out_columns // m)

    def cost(self, m: int, weights_in_cache: bool) -> float:
        """Return the expected time, in operations of a product; ``m`` = 1: without Winograd."""
        weight = 4.0 * self.channels * self.filters * (m + 2) ** 2
        memory = 0.0 if weights_in_cache else MEMORY_FLOPS * weight
        if m == 1:
            outputs = self.images * self.out_rows * self.out_columns
            return 18.0 * outputs * self.channels * self.filters + memory
        elements = (m + 2) ** 2 * self.images * math.prod(self.tiles(m))
        product = 2.0 * elements * self.channels * self.filters
        transforms = TRANSFORM_FLOPS * elements * (self.channels + self.filters)
        return product + transforms + memory

    def best_tile(self, tolerance: float, weights_in_cache: bool) -> int | None:
        """Return the m that should be fastest within a tolerance; ``None``: no Winograd."""
        allowed = [m for m, error in ERRORS.items() if error <= tolerance]
        if not allowed or self.channels % 4 or self.filters % 4:
            return None
        best = min(allowed, key=lambda m: self.cost(m, weights_in_cache))
        gain = self.cost(1, weights_in_cache) / self.cost(best, weights_in_cache)
        return best if gain >= LEAST_GAIN else None


def with_winograd(module: tvm.IRModule, tolerance: float, weights_in_cache: bool) -> tvm.IRModule:
    """Compute 3 x 3 convolutions of stride 1 in channels last by Winograd's where it is faster.

    ``tolerance`` is the largest error, as a share of the outputs' range. ``weights_in_cache``:
    whether the network's weights are still in the cache when it runs again.
    """

    def replace(chain: Chain, to: Any) -> Any:
        shape = shape_of(chain)
        if shape is None or not (m := shape.best_tile(tolerance, weights_in_cache)):
            return None
        add, emit, epilogue = to.builder_.add_func, to.builder_.emit, chain.epilogue
        elements, tiles = (m + 2) ** 2, shape.images * math.prod(shape.tiles(m))
        function = add(input_transform(shape, m), "winograd_input")
        tiled = relax.TensorType((elements, tiles, shape.channels), "float32")
        transformed = emit(relax.call_tir(function, [to.visit_expr(chain.source)], tiled))
        sums = emit(relax.op.matmul(transformed, relax.const(transformed_weight(chain.weight, m))))
        given = [
            to.visit_expr(one) if isinstance(one, relax.Var) else relax.const(one)
            for one in epilogue.given
        ]
        written = output_transform(shape, m, epilogue.steps, epilogue.whole)
        return relax.call_tir(add(written, "winograd_output"), [sums, *given], chain.convolution.ty)

    return replace_chains(module, replace)


def shape_of(chain: Chain) -> Shape | None:
    """Return the shape of a chain's convolution if it is 3 x 3 with stride 1; else ``None``."""
    attributes = chain.convolution.attrs
    plain = (
        chain.weight.shape[:2] == (3, 3)
        and int(attributes.groups) == 1
        and [int(one) for one in attributes.strides] == [1, 1]
        and [int(one) for one in attributes.dilation] == [1, 1]
    )
    if not plain:
        return None
    top, left = (int(one) for one in attributes.padding[:2])
    images, rows, columns, channels = extents(chain.source)
    _, out_rows, out_columns, filters = extents(chain.convolution)
    return Shape(images, rows, columns, channels, out_rows, out_columns, filters, top, left)


def transformed_weight(weight: Any, m: int) -> Any:
    """Transform weights (3, 3, channels, filters) to ((m + 2)^2, channels, filters)."""
    matrix = np.array(_WEIGHT[m])
    exact = np.einsum("ik,klcf,jl->ijcf", matrix, weight.astype(np.float64), matrix)
    return np.ascontiguousarray(exact.reshape(-1, *weight.shape[2:]).astype(np.float32))


@cache
def input_transform(shape: Shape, m: int) -> Any:
    """Return a function from (images, rows, columns, channels) to ((m + 2)^2, tiles, channels)."""
    size, tiles = m + 2, shape.images * math.prod(shape.tiles(m))
    lanes = math.gcd(LANES, shape.channels)

    def emit(image: Any, down: Any, across: Any, number: Any, x: Any, v: Any) -> None:
        top, left = T.bind(down * m - shape.top), T.bind(across * m - shape.left)
        d = T.buffer_proxy(T.alloc_buffer((size, lanes), scope="local"))
        t = T.buffer_proxy(T.alloc_buffer((size**2, lanes), scope="local"))

        def load(q: int, channel: Any, lane: Any, border: bool) -> list[Any]:
            column = left + q
            for k in range(size):
                row = top + k
                value = x[image, row, column, channel]
                if border:
                    ends = (row >= 0, row < shape.rows, column >= 0, column < shape.columns)
                    value = T.if_then_else(reduce(T.And, ends), value, T.float32(0))
                d[k, lane] = value
            return [d[k, lane] for k in range(size)]

        def body(channel: Any, lane: Any, border: bool) -> None:
            results = _both_sides(_INPUT[m], t, lane, lambda q: load(q, channel, lane, border))
            for (i, j), value in results:
                T.buffer_store(v, value, [i * size + j, number, channel])

        ends = (top >= 0, top + size <= shape.rows, left >= 0, left + size <= shape.columns)
        _either(reduce(T.And, ends), body, shape.channels // lanes, lanes)

    source = (shape.images, shape.rows, shape.columns, shape.channels)
    return _function([source, (size**2, tiles, shape.channels)], shape, m, emit)


@cache
def output_transform(shape: Shape, m: int, steps: Steps, whole: tuple[bool, ...]) -> Any:
    """Return a function from sums ((m + 2)^2, tiles, filters) and the steps' tensors to outputs.

    ``whole``: for each of these tensors, whether it has the output's shape.
    """
    size, tiles = m + 2, shape.images * math.prod(shape.tiles(m))
    lanes = math.gcd(LANES, shape.filters)
    out = (shape.images, shape.out_rows, shape.out_columns, shape.filters)
    others = [out if one else (shape.filters,) for one in whole]

    def emit(image: Any, down: Any, across: Any, number: Any, s: Any, *given_and_y: Any) -> None:
        *given, y = given_and_y
        top, left = T.bind(down * m), T.bind(across * m)
        t = T.buffer_proxy(T.alloc_buffer((m * size, lanes), scope="local"))

        def output(value: Any, place: list[Any]) -> Any:
            elements = [
                array[tuple(place)] if one else array[place[-1]]
                for array, one in zip(given, whole, strict=True)
            ]
            return finished(value, steps, elements)

        def body(channel: Any, lane: Any, border: bool) -> None:
            def sums(q: int) -> list[Any]:
                return [s[k * size + q, number, channel] for k in range(size)]

            for (i, j), value in _both_sides(_OUTPUT[m], t, lane, sums):
                row, column = top + i, left + j
                place = [image, row, column, channel]
                if not border:
                    T.buffer_store(y, output(value, place), place)
                    continue
                with T.If(T.And(row < shape.out_rows, column < shape.out_columns)), T.Then():
                    T.buffer_store(y, output(value, place), place)

        inside = T.And(top + m <= shape.out_rows, left + m <= shape.out_columns)
        _either(inside, body, shape.filters // lanes, lanes)

    # TVM cannot count these operations.
    elements = tiles * shape.filters
    flops = elements * ((size + m) * _operations(_OUTPUT[m]) + m**2 * len(steps))
    buffers = [(size**2, tiles, shape.filters), *others, out]
    return _function(buffers, shape, m, emit, **{ESTIMATED_FLOPS: flops})


def _both_sides(
    matrix: Sequence[Sequence[float]], t: Any, lane: Any, column: Callable[[int], list[Any]]
) -> list[tuple[tuple[int, int], Any]]:
    """Multiply a square of values by a matrix from the left, and by its transpose from the right.

    ``column`` returns the elements of a column. The first product is stored in ``t``. Returns the
    elements of the second one by row and column.
    """
    size = len(matrix[0])
    for q in range(size):
        values = column(q)
        for i, row in enumerate(matrix):
            t[i * size + q, lane] = _sum(row, values)
    results = []
    for i in range(len(matrix)):
        first = [t[i * size + q, lane] for q in range(size)]
        results += [((i, j), _sum(row, first)) for j, row in enumerate(matrix)]
    return results


def _either(
    condition: Any, body: Callable[[Any, Any, bool], None], chunks: int, lanes: int
) -> None:
    """Loop over channels, with one body for tiles that lie inside and one for the others."""
    with T.If(condition):
        for frame, border in ((T.Then, False), (T.Else, True)):
            with frame(), T.serial(0, chunks) as chunk, T.vectorized(0, lanes) as lane:
                body(chunk * lanes + lane, lane, border)


def _sum(factors: Sequence[float], values: Sequence[Any]) -> Any:
    """Return a sum of products with known numbers; factors 0 and 1 cost nothing."""
    found: Any = None
    for factor, value in zip(factors, values, strict=True):
        if not factor:
            continue
        product = value if abs(factor) == 1 else value * T.float32(abs(factor))
        if found is None:
            # A leading minus would become a multiplication by -1.
            found = product if factor > 0 else T.float32(0) - product
        else:
            found = found + product if factor > 0 else found - product
    return found


def _operations(matrix: Sequence[Sequence[float]]) -> int:
    """Return the operations of a product of this matrix and a vector, as ``_sum`` does it."""
    factors = [abs(factor) for row in matrix for factor in row if factor]
    return len(factors) - len(matrix) + sum(factor != 1 for factor in factors)


def _function(
    buffers: Sequence[Sequence[int]], shape: Shape, m: int, emit: Callable[..., None], **known: int
) -> Any:
    """Return a function that runs ``emit`` for every tile; its last buffer is the result.

    ``emit`` gets the tile's image, its row and column of tiles there, its number among all tiles,
    and the buffers. The function counts as scheduled: nothing fuses with it, and it is not a task.
    It is made by the builder, since TVM's script parser takes a second for each. ``known`` are more
    attributes of the function.
    """
    rows, across = shape.tiles(m)
    with IRBuilder() as builder:
        with T.prim_func(private=True, s_tir=True):
            T.func_name("winograd")
            scheduled = {"tirx.is_scheduled": True, "tirx.noalias": True, "op_pattern": 8}
            T.func_attr({**scheduled, **known})
            arrays = [
                T.arg(f"p{number}", T.buffer(extent, "float32", layout=None))
                for number, extent in enumerate(buffers)
            ]
            with (
                T.parallel(0, shape.images * rows) as i,
                T.serial(0, across) as j,
                T.sblock("tile"),
            ):
                down, along = T.axis.remap("SS", [i, j])
                regions = [
                    array[tuple(slice(0, one) for one in extent)]
                    for array, extent in zip(arrays, buffers, strict=True)
                ]
                T.reads(*regions[:-1])
                T.writes(regions[-1])
                image, number = T.bind(down // rows), T.bind(down * across + along)
                emit(image, down % rows, along, number, *arrays)
        return builder.get()
