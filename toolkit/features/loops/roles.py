"""Roles of a tiled stage's loops, from the order and the extents of its axes.

Neither Ansor's steps nor MetaSchedule's traces name axes. Scheduling does not change their order,
and operators have few orders (TVM ``topi``): matrix products (rows, columns | depth), convolutions
in channels-first or channels-last layout, packed ones with a channel block.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from toolkit.features.base import Floats
from toolkit.features.loops.nest import Nest
from toolkit.features.loops.trace_nest import workload_blocks
from toolkit.features.task.operation import Operation, dtype_bytes
from toolkit.records import Task


def infer_operation(
    spatial: Sequence[float],
    reduction: Sequence[float],
    label: str = "",
    element_bytes: float = 4.0,
) -> tuple[Operation, list[str], list[str]]:
    """Name the roles of spatial and reduction axes (in their order) and build the operation.

    Axes of one role (a channel block) may repeat; their extents multiply.
    """
    family, s_roles, r_roles = _roles(spatial, reduction, label.lower())
    extents: dict[str, int] = {}
    for role, extent in zip([*s_roles, *r_roles], [*spatial, *reduction], strict=True):
        extents[role] = extents.get(role, 1) * max(1, round(extent))
    return Operation(family, extents, element_bytes=element_bytes), s_roles, r_roles


def _roles(
    spatial: Sequence[float], reduction: Sequence[float], label: str
) -> tuple[str, list[str], list[str]]:
    s, r = len(spatial), len(reduction)
    last = _channels_last(label, reduction)
    # An image has four axes, or more with a channel block at the end.
    image = ["n", "h", "w", "co"] if last else ["n", "co", "h", "w"]
    image = [*image, *["co"] * (s - 4)][:s]
    flat = ["n"] * (s - 3) + ["co", "h", "w"][max(3 - s, 0) :]
    if "pool" in label and r >= 1:
        return "pool", image, ["kh", "kw", *["ci"] * (r - 2)][:r]
    if r == 0:
        return "elementwise", flat, []
    if r == 1:
        if s <= 1:
            return "reduction", ["w"] * s, ["ci"]
        if s == 2:
            return "matmul", ["w", "co"], ["ci"]
        if s == 4 and ("bgemm" in label or "winograd" in label or spatial[0] == spatial[1]):
            return "batch_matmul", ["n", "n", "co", "w"], ["ci"]
        return "batch_matmul", ["n"] * (s - 2) + ["w", "co"], ["ci"]
    if r == 2:
        if s == 3:  # one-dimensional convolution
            roles = (["n", "w", "co"], ["kw", "ci"]) if last else (["n", "co", "w"], ["ci", "kw"])
            return "conv", *roles
        if s >= 4:
            return "depthwise", image, ["kh", "kw"]
        return "matmul", ["w", "co"][:s], ["ci"] * r
    if r == 3 and s >= 4:
        return "conv", image, ["kh", "kw", "ci"] if last else ["ci", "kh", "kw"]
    if r == 4 and s == 5 and "3d" not in label:  # packed: block last, of both channels
        return "conv", ["n", "co", "h", "w", "co"], ["ci", "kh", "kw", "ci"]
    return "other", flat, ["ci"] * r


def _channels_last(label: str, reduction: Sequence[float]) -> bool:
    """Whether channels come last: the name says so, or the kernel's extents come first."""
    if "hwc" in label or "nwc" in label:
        return True
    if "nchw" in label or "ncw" in label:
        return False
    if len(reduction) == 3:
        return reduction[0] == reduction[1] != reduction[2]
    return len(reduction) == 2 and reduction[0] <= 11 < reduction[1]


def assign_roles(
    task: Task, nest: Nest
) -> tuple[Operation, dict[str, list[Floats]], dict[str, str]]:
    """Find the operation, the tile factors by role, and the role of each knob that splits one.

    Multi-level tiling gives spatial loops more levels than reductions (``SSRSRS``: 4 and 2;
    ``SSSRRSRS``: 5 and 3). If all have the same number, those not known to reduce are spatial.
    Factors of axes that share a role are multiplied.
    """
    deepest = max((len(axis.levels) for axis in nest.axes), default=0)
    spatial = [axis for axis in nest.axes if len(axis.levels) == deepest and not axis.reduces]
    reduction = [axis for axis in nest.axes if len(axis.levels) != deepest or axis.reduces]
    label = nest.label
    if task.format == "metaschedule" and workload_blocks(task):
        if not spatial:
            return _untiled(task), {}, {}
        if not any(word in label for word in ("conv", "pool")):
            label = f"{label} {workload_blocks(task)[0].name}"
    operation, s_roles, r_roles = infer_operation(
        [axis.extent for axis in spatial],
        [axis.extent for axis in reduction],
        label,
        _element_bytes(task),
    )
    if task.format == "ansor" and operation.family == "elementwise" and nest.unroll is not None:
        # Ansor sets a limit of unrolling only for stages that reduce (TVM
        # ``sketch_policy_rules.cc``, ``InitUnroll``), even if no step names the reduction.
        operation = replace(operation, family="reduction")
    stride = _stride(task, operation)
    operation = replace(operation, stride=(stride, stride))
    factors: dict[str, list[Floats]] = {}
    knob_roles: dict[str, str] = {}
    for role, axis in zip([*s_roles, *r_roles], [*spatial, *reduction], strict=True):
        knob_roles[axis.knob] = role
        levels = factors.get(role, [np.ones(nest.rows)] * len(axis.levels))
        factors[role] = [a * b for a, b in zip(levels, axis.levels, strict=True)]
    return operation, factors, knob_roles


def _untiled(task: Task) -> Operation:
    """Return the operation of a workload whose sketch tiles no loop: that of its largest block.

    Products and convolutions are always tiled. So a reduction here, except pooling, is over the
    last axes (softmax, norms, means).
    """
    block = max(workload_blocks(task), key=lambda block: block.volume)
    pairs = list(zip(block.extents, block.reductions, strict=True))
    spatial = [float(max(extent, 1)) for extent, reduces in pairs if not reduces]
    reduction = [float(max(extent, 1)) for extent, reduces in pairs if reduces]
    operation = infer_operation(spatial, reduction, block.name, _element_bytes(task))[0]
    if not reduction or operation.family == "pool":
        return operation
    rows, depth = (max(1, round(float(np.prod(sizes)))) for sizes in (spatial, reduction))
    return replace(operation, family="reduction", extents={"w": rows, "ci": depth})


def _element_bytes(task: Task) -> float:
    """Bytes of an element, from MetaSchedule's ``["TENSOR", dtype, shape]``; else 4."""
    for argument in task.arguments if isinstance(task.arguments, list) else []:
        if isinstance(argument, list) and len(argument) == 3 and argument[0] == "TENSOR":
            return dtype_bytes(argument[1])
    return 4.0


def _stride(task: Task, operation: Operation) -> int:
    """Return a convolution's stride, from the image extents of its arguments and its output.

    Arguments hold the input's height and width one after the other (a shape, or plain numbers). The
    first such pair that a stride from 1 to 4 explains, up to padding, gives the stride; else 1.
    """
    h, w = operation.extent("h"), operation.extent("w")
    kernel = operation.extent("kh")
    if h * w > 1:
        for height, width in itertools.pairwise(_integers(task.arguments)):
            for stride in (1, 2, 3, 4):
                slack = (height - h * stride, width - w * stride)
                if all(-stride < s <= kernel + stride for s in slack):
                    return stride
    return 1


def _integers(value: object) -> Iterator[int]:
    """All integers of nested lists, in order."""
    if type(value) is int:
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _integers(item)
