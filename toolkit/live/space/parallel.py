"""Possible limits of parallel loops: TVM fuses a block's outer spatial loops up to the limit.

The annotation ``meta_schedule.parallel`` is the largest number of parallel iterations. Two limits
differ if they fuse different numbers of loops, so the products of the outer loops' extents are the
only useful limits (``mutate_parallel.cc``, TVM 0.27). They are computed here from the loops. TVM's
mutator would have to apply the whole trace for each one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
from tvm.tirx.analysis import undefined_vars

_DATA_PARALLEL = 0
"""TVM's number for a data-parallel iteration: its steps may run in any order."""


def parallel_limits(module: tvm.IRModule, most: int) -> tuple[int, ...]:
    """Return the limits up to ``most`` that fuse different numbers of loops, in rising order."""
    nests: list[list[Any]] = []
    _collect(module["main"].body.block.body, [], nests)
    ordered = {
        variable
        for *_, realised in nests
        for one, value in zip(realised.block.iter_vars, realised.iter_values, strict=True)
        if int(one.iter_type) != _DATA_PARALLEL
        for variable in map(hash, undefined_vars(value))
    }
    return tuple(sorted({found for nest in nests for found in _products(nest, ordered, most)}))


def same_plan(limits: Sequence[int], one: int, other: int) -> bool:
    """Return whether two limits fuse the same loops."""
    low, high = sorted((one, other))
    return not any(low < limit <= high for limit in limits)


def _products(nest: list[Any], ordered: set[int], most: int) -> list[int]:
    """Return the products of the extents of a block's outer loops, as far as they are spatial."""
    found, product = [], 1
    for loop in nest[:-1]:
        extent = getattr(loop.extent, "value", None)
        if extent is None or hash(loop.loop_var) in ordered:
            break
        product *= int(extent)
        if product > most:
            break
        found.append(product)
    return found


def _collect(node: Any, loops: list[Any], nests: list[list[Any]]) -> None:
    """Append, for each block directly below a scope, its loops (outermost first) and the block."""
    if hasattr(node, "iter_values"):
        nests.append([*loops, node])
    elif hasattr(node, "loop_var"):
        _collect(node.body, [*loops, node], nests)
    elif hasattr(node, "seq"):
        for part in node.seq:
            _collect(part, loops, nests)
    elif hasattr(node, "body"):
        _collect(node.body, loops, nests)
