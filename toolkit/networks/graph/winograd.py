"""Winograd's convolutions: 3 x 3 with fewer multiplications, where a tolerance allows.

Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", CVPR 2016. F(m x m, 3 x 3)
computes m x m outputs from a tile of (m + 2) x (m + 2) inputs: tiles and weights are transformed,
multiplied element by element and summed over channels, and transformed back. The sums are a product
of matrices for each of the (m + 2)^2 elements: a task like any other. The transforms of tiles need
no search: they read and write everything once, vectorised along channels. Weights are transformed
when the network is compiled. What followed the convolution is done where outputs are written.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import tvm
from tvm import relax

from toolkit.networks.graph.chains import (
    ADD,
    CLIP,
    RELU,
    Chain,
    Elementwise,
    Rewriter,
    extents,
    replace_chains,
)

ERRORS = {2: 1e-5, 4: 1e-4}
"""By m: error of a network's outputs, as a share of their range, that is to be reckoned with. One
convolution of 512 channels has up to 9e-7 and 2e-5 (docs/results/networks.md)."""

LANES = 16
"""Channels at a time: a cache line of float32, one vector of AVX-512 or two of AVX2."""

TRANSFORM_FLOPS = 25.0
"""What reading or writing an element of a transformed tile costs, in operations of a product.
Alone it is 0.1 ns on two cores of 150 GFLOP/s (Zen 3): 15; in a network, with cold caches, more."""

MEMORY_FLOPS = 20.0
"""What a byte of weights from memory costs, in operations of a product: two cores of a Zen 5 do
500 GFLOP/s and read 113 MB in 4 ms."""

LEAST_GAIN = 1.15
"""A convolution is left when less than this factor is expected."""

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
    """A 3 x 3 convolution of stride 1: extents of its input and output, and zeros around it."""

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
        """Rows and columns of tiles that cover the output."""
        return -(-self.out_rows // m), -(-self.out_columns // m)

    def cost(self, m: int, weights_in_cache: bool) -> float:
        """Expected time, in operations of a product; ``m`` = 1: the convolution as it is."""
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
        """The m that is expected to be fastest within a tolerance; ``None``: leave it."""
        allowed = [m for m, error in ERRORS.items() if error <= tolerance]
        if not allowed or self.channels % 4 or self.filters % 4:
            return None
        best = min(allowed, key=lambda m: self.cost(m, weights_in_cache))
        gain = self.cost(1, weights_in_cache) / self.cost(best, weights_in_cache)
        return best if gain >= LEAST_GAIN else None


def with_winograd(module: tvm.IRModule, tolerance: float, weights_in_cache: bool) -> tvm.IRModule:
    """Compute 3 x 3 convolutions of stride 1 in channels last by Winograd's where it pays.

    Parameters
    ----------
    tolerance
        Greatest error, as a share of the outputs' range.
    weights_in_cache
        Whether a run finds the weights of the network where the run before left them.
    """

    def replace(chain: Chain, find: Any, to: Rewriter) -> Any:
        shape = shape_of(chain)
        m = None if shape is None else shape.best_tile(tolerance, weights_in_cache)
        if shape is None or m is None:
            return None
        elements, tiles = (m + 2) ** 2, shape.images * math.prod(shape.tiles(m))
        function = to.add(input_transform(shape, m), "winograd_input")
        tiled = relax.TensorType((elements, tiles, shape.channels), "float32")
        transformed = to.emit(relax.call_tir(function, [find(chain.source)], tiled))
        weight = relax.const(transformed_weight(chain.weight, m))
        sums = to.emit(relax.op.matmul(transformed, weight))
        function = to.add(output_transform(shape, m, chain.epilogue), "winograd_output")
        added = [each.other for each in chain.epilogue if each.operator == ADD]
        others = [
            find(each) if isinstance(each, relax.Var) else relax.const(each) for each in added
        ]
        return relax.call_tir(function, [sums, *others], chain.type)

    return replace_chains(module, replace)


def shape_of(chain: Chain) -> Shape | None:
    """The shape of a chain's convolution when it is one of 3 x 3 and stride 1; else ``None``."""
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
    """Function from inputs (images, rows, columns, channels) to ((m + 2)^2, tiles, channels)."""
    rows, size, tiles = shape.tiles(m)[0], m + 2, shape.images * math.prod(shape.tiles(m))
    lanes = math.gcd(LANES, shape.channels)
    at = f"c * {lanes} + lane"

    def loaded(q: int, border: bool) -> list[str]:
        lines = []
        for k in range(size):
            row, column = f"top + {k}", f"left + {q}"
            value = f"x[n, {row}, {column}, {at}]"
            if border:
                inside = (
                    f"{row} >= 0 and {row} < {shape.rows} and "
                    f"{column} >= 0 and {column} < {shape.columns}"
                )
                value = f"T.if_then_else({inside}, {value}, T.float32(0))"
            lines.append(f"d[{k}, lane] = {value}")
        return lines

    def body(border: bool) -> list[str]:
        lines, results = _both_sides(
            _INPUT[m], lambda k, q: f"d[{k}, lane]", lambda q: loaded(q, border)
        )
        stores = [f"v[{i * size + j}, tile, {at}] = {value}" for (i, j), value in results.items()]
        return lines + stores

    inside = " and ".join(
        f"{first} >= 0 and {first} + {size} <= {extent}"
        for first, extent in (("top", shape.rows), ("left", shape.columns))
    )
    source = (shape.images, shape.rows, shape.columns, shape.channels)
    tiled = (size**2, tiles, shape.channels)
    buffers: dict[str, Sequence[int]] = {"x": source, "v": tiled}
    lines = [
        f"top: T.let = down % {rows} * {m} - {shape.top}",
        f"left: T.let = across * {m} - {shape.left}",
        f"d = T.alloc_buffer(({size}, {lanes}), scope='local')",
        f"t = T.alloc_buffer(({size**2}, {lanes}), scope='local')",
        *_either(inside, body(False), body(True), shape.channels // lanes, lanes),
    ]
    return _function(buffers, shape, m, lines)


def output_transform(shape: Shape, m: int, epilogue: Sequence[Elementwise]) -> Any:
    """Function from sums ((m + 2)^2, tiles, filters), and what is added, to the outputs."""
    kinds = [(each.operator, isinstance(each.other, relax.Var), each.bounds) for each in epilogue]
    return _output_transform(shape, m, tuple(kinds))


@cache
def _output_transform(shape: Shape, m: int, epilogue: Sequence[Any]) -> Any:
    """``epilogue``: operator, whether it adds a whole tensor, and bounds of each."""
    rows, size, tiles = shape.tiles(m)[0], m + 2, shape.images * math.prod(shape.tiles(m))
    lanes = math.gcd(LANES, shape.filters)
    at = f"c * {lanes} + lane"
    out = (shape.images, shape.out_rows, shape.out_columns, shape.filters)
    buffers: dict[str, Sequence[int]] = {"s": (size**2, tiles, shape.filters)}
    for number, (operator, whole, _) in enumerate(epilogue):
        if operator == ADD:
            buffers[f"other{number}"] = out if whole else (shape.filters,)
    buffers["y"] = out

    def finished(value: str, place: str) -> str:
        for number, (operator, _, bounds) in enumerate(epilogue):
            if operator == ADD:
                index = f"{place}, {at}" if len(buffers[f"other{number}"]) == 4 else at
                value = f"{value} + other{number}[{index}]"
            elif operator == RELU:
                value = f"T.max({value}, T.float32(0))"
            elif operator == CLIP:
                low, high = (repr(bound) for bound in bounds)
                value = f"T.min(T.max({value}, T.float32({low})), T.float32({high}))"
        return value

    def body(border: bool) -> list[str]:
        lines, results = _both_sides(_OUTPUT[m], lambda k, q: f"s[{k * size + q}, tile, {at}]")
        for (i, j), value in results.items():
            row, column = f"top + {i}", f"left + {j}"
            place = f"n, {row}, {column}"
            store = f"y[{place}, {at}] = {finished(value, place)}"
            if border:
                lines.append(f"if {row} < {shape.out_rows} and {column} < {shape.out_columns}:")
                store = "    " + store
            lines.append(store)
        return lines

    inside = f"top + {m} <= {shape.out_rows} and left + {m} <= {shape.out_columns}"
    lines = [
        f"top: T.let = down % {rows} * {m}",
        f"left: T.let = across * {m}",
        f"t = T.alloc_buffer(({m * size}, {lanes}), scope='local')",
        *_either(inside, body(False), body(True), shape.filters // lanes, lanes),
    ]
    return _function(buffers, shape, m, lines)


def _both_sides(
    matrix: Sequence[Sequence[float]],
    value: Callable[[int, int], str],
    before: Callable[[int], list[str]] = lambda _: [],
) -> tuple[list[str], dict[tuple[int, int], str]]:
    """Multiply a square of values by a matrix from the left, and by its transpose from the right.

    ``value`` gives the element of a row and a column, ``before`` lines that a column needs first.
    Returns lines that put the first product into ``t``, and the elements of the second one.
    """
    size, lines = len(matrix[0]), []
    for q in range(size):
        column = [value(k, q) for k in range(size)]
        lines += before(q)
        lines += [f"t[{i * size + q}, lane] = {_sum(row, column)}" for i, row in enumerate(matrix)]
    results = {}
    for i in range(len(matrix)):
        first = [f"t[{i * size + q}, lane]" for q in range(size)]
        results.update({(i, j): _sum(row, first) for j, row in enumerate(matrix)})
    return lines, results


def _either(
    condition: str, inside: list[str], border: list[str], chunks: int, lanes: int
) -> list[str]:
    """Loops over channels with one body for tiles that lie inside, and one for the others."""
    lines = []
    for test, body in ((f"if {condition}:", inside), ("else:", border)):
        lines += [
            test,
            f"  for c in range({chunks}):",
            f"    for lane in T.vectorized({lanes}):",
            *(f"      {line}" for line in body),
        ]
    return lines


def _sum(factors: Sequence[float], values: Sequence[str]) -> str:
    """A sum of products with numbers that are known, written without those by 0 and 1."""
    text = ""
    for factor, value in zip(factors, values, strict=True):
        if factor:
            size = abs(factor)
            product = value if size == 1 else f"{value} * T.float32({size!r})"
            sign = "-" if factor < 0 else "+"
            text = f"{text} {sign} {product}" if text else product if factor > 0 else f"-{product}"
    # A leading minus would be a multiplication by -1.
    return text if not text.startswith("-") else f"T.float32(0) {text[:1]} {text[1:]}"


def _function(buffers: dict[str, Sequence[int]], shape: Shape, m: int, lines: list[str]) -> Any:
    """A function that does ``lines`` for every tile; its last buffer is the result.

    It counts as scheduled: nothing is fused into it, and it is no task.
    """
    rows, across = shape.tiles(m)
    arguments = ", ".join(
        f'{name}: T.Buffer({tuple(extent)}, "float32")' for name, extent in buffers.items()
    )
    regions = [
        f"{name}[{', '.join(f'0:{extent}' for extent in whole)}]" for name, whole in buffers.items()
    ]
    head = [
        "@T.prim_func(private=True, s_tir=True)",
        f"def winograd({arguments}):",
        '  T.func_attr({"tirx.is_scheduled": True, "tirx.noalias": True, "op_pattern": 8})',
        f"  for i in T.parallel({shape.images * rows}):",
        f"    for j in range({across}):",
        '      with T.sblock("tile"):',
        '        down, across = T.axis.remap("SS", [i, j])',
        f"        T.reads({', '.join(regions[:-1])})",
        f"        T.writes({regions[-1]})",
        f"        n: T.let = down // {rows}",
        f"        tile: T.let = down * {across} + across",
    ]
    return tvm.script.from_source("\n".join([*head, *(f"        {line}" for line in lines)]))
