"""What a limit of parallel loops can be: TVM fuses the outer spatial loops of a block up to it.

The annotation ``meta_schedule.parallel`` names how many parallel iterations there may be at most.
Two limits differ where they let another number of loops be fused, so the products of the outer
loops' extents are all there are (``mutate_parallel.cc``, TVM 0.27). They are computed here from the
loops: asking TVM's mutator for one applies the whole trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
from tvm.tirx.analysis import undefined_vars

_DATA_PARALLEL = 0
"""TVM's number for an iteration whose steps may run in any order."""


def parallel_limits(module: tvm.IRModule, most: int) -> tuple[int, ...]:
    """Limits up to ``most`` that fuse different numbers of a scheduled program's loops, rising."""
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
    """Whether two limits fuse the same loops."""
    low, high = sorted((one, other))
    return not any(low < limit <= high for limit in limits)


def _products(nest: list[Any], ordered: set[int], most: int) -> list[int]:
    """Products of the extents of a block's outer loops, as many as are spatial."""
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
    """Append, for every block right below a scope, its loops from the outside and the block."""
    if hasattr(node, "iter_values"):
        nests.append([*loops, node])
    elif hasattr(node, "loop_var"):
        _collect(node.body, [*loops, node], nests)
    elif hasattr(node, "seq"):
        for part in node.seq:
            _collect(part, loops, nests)
    elif hasattr(node, "body"):
        _collect(node.body, loops, nests)
