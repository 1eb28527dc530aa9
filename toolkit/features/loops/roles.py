"""Which loop of a tiled stage is which: roles from the order and the extents of its axes.

Neither a log's steps nor its traces name axes. Their order does not change under scheduling, and
operators come in few orders (TVM ``topi``): matrix products (rows, columns | depth), convolutions
in channels-first or channels-last layout, packed ones with a channel block.
"""

from __future__ import annotations

from collections.abc import Sequence

from toolkit.features.task.operation import Operation


def infer_operation(
    spatial: Sequence[float],
    reduction: Sequence[float],
    label: str = "",
    element_bytes: float = 4.0,
) -> tuple[Operation, list[str], list[str]]:
    """Name the roles of spatial and reduction axes (in their order) and build the operation.

    Axes of one role (a channel block) may repeat; their extents multiply.
    """
    family, s_roles, r_roles = _roles(list(spatial), list(reduction), label.lower())
    extents: dict[str, int] = {}
    for role, extent in zip([*s_roles, *r_roles], [*spatial, *reduction], strict=True):
        extents[role] = extents.get(role, 1) * max(1, round(extent))
    operation = Operation(family, extents, element_bytes=element_bytes)
    return operation, s_roles, r_roles


def _roles(
    spatial: list[float], reduction: list[float], label: str
) -> tuple[str, list[str], list[str]]:
    s, r = len(spatial), len(reduction)
    if "pool" in label and r >= 1:
        return "pool", _image(s, _last(label, reduction)), ["kh", "kw", *["ci"] * (r - 2)][:r]
    if r == 0:
        return "elementwise", _flat(s), []
    if r == 1:
        if s <= 1:
            return "reduction", ["w"] * s, ["ci"]
        if s == 2:
            return "matmul", ["w", "co"], ["ci"]
        if s == 3:
            return "batch_matmul", ["n", "w", "co"], ["ci"]
        if s == 4 and ("bgemm" in label or "winograd" in label or spatial[0] == spatial[1]):
            return "batch_matmul", ["n", "n", "co", "w"], ["ci"]
        return "batch_matmul", ["n"] * (s - 2) + ["w", "co"], ["ci"]
    if r == 2:
        if s == 3:  # one-dimensional convolution
            last = _last(label, reduction)
            roles = ["kw", "ci"] if last else ["ci", "kw"]
            return "conv", ["n", "w", "co"] if last else ["n", "co", "w"], roles
        if s >= 4:
            return "depthwise", _image(s, _last(label, reduction)), ["kh", "kw"]
        return "matmul", ["w", "co"][:s], ["ci"] * r
    if r == 3 and s >= 4:
        last = _last(label, reduction)
        return "conv", _image(s, last), ["kh", "kw", "ci"] if last else ["ci", "kh", "kw"]
    if (
        r == 4 and s == 5 and "3d" not in label
    ):  # packed: n, chunk, h, w, block | chunk, kh, kw, block
        return "conv", _image(s, False), ["ci", "kh", "kw", "ci"]
    return "other", _flat(s), ["ci"] * r


def _image(axes: int, channels_last: bool) -> list[str]:
    """Roles of an image's axes: four, or more with a channel block at the end."""
    if channels_last:
        return ["n", "h", "w", "co", *["co"] * (axes - 4)][:axes]
    return ["n", "co", "h", "w", *["co"] * (axes - 4)][:axes]


def _flat(axes: int) -> list[str]:
    return ["n"] * max(axes - 3, 0) + ["co", "h", "w"][3 - min(axes, 3) :]


def _last(label: str, reduction: list[float]) -> bool:
    """Whether channels come last: the name says so, or the kernel's extents come first."""
    if "nhwc" in label or "hwc" in label or "nwc" in label:
        return True
    if "nchw" in label or "ncw" in label:
        return False
    if len(reduction) == 3:
        if reduction[1] == reduction[2] and reduction[0] != reduction[1]:
            return False
        return reduction[0] == reduction[1] and reduction[2] != reduction[1]
    if len(reduction) == 2:
        return reduction[0] < reduction[1] and reduction[0] <= 11 < reduction[1]
    return False
