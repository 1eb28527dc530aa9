"""What a task computes, in numbers that mean the same in every format.

Convolutions and matrix products share one space of loop roles::

    out[n, co, h, w] += data[n, ci, h * stride + kh, w * stride + kw] * weight[co, ci, kh, kw]

A matrix product is a 1x1 convolution: its rows are ``w``, its columns ``co``, its depth ``ci``; a
batch is ``n``. Depthwise convolutions and pooling have ``ci`` 1 and read one channel for each that
they write. So an Ansor log of a matrix product can help a MetaSchedule task that is a convolution.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from toolkit.features.base import Floats

SPATIAL = ("n", "co", "h", "w")
REDUCTION = ("ci", "kh", "kw")
ROLES = SPATIAL + REDUCTION

FAMILIES = (
    "other", "elementwise", "reduction", "pool", "depthwise", "matmul", "batch_matmul", "conv",
)  # fmt: skip

GROUPED = ("depthwise", "pool", "elementwise")
"""Families that read one channel for each that they write."""

UNWEIGHTED = ("pool", "elementwise", "reduction")


@dataclass(frozen=True)
class Operation:
    """A loop nest's family (one of ``FAMILIES``) and its extents by role, 1 where one is absent.

    ``stride`` and ``dilation`` are along h and w; ``element_bytes`` are those of an input element.
    """

    family: str
    extents: Mapping[str, int] = field(default_factory=dict)
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    element_bytes: float = 4.0

    def extent(self, role: str) -> int:
        """Extent of a role, 1 where it is absent."""
        return self.extents.get(role, 1)

    def elements(self, tile: Mapping[str, Floats | float]) -> tuple[Any, Any, Any]:
        """Elements of input, weights and output that a tile of the loops touches.

        ``tile`` gives the size of each role inside the tile, one value or one per candidate.
        """
        n, co, h, w, ci, kh, kw = (tile.get(role, 1.0) for role in ROLES)
        rows = (h - 1) * self.stride[0] + (kh - 1) * self.dilation[0] + 1
        columns = (w - 1) * self.stride[1] + (kw - 1) * self.dilation[1] + 1
        data = n * (co if self.family in GROUPED else ci) * rows * columns
        weight = co * ci * kh * kw
        if self.family == "batch_matmul":
            weight = weight * n
        elif self.family in UNWEIGHTED:
            weight = weight * 0.0
        return data, weight, n * co * h * w

    @property
    def flops(self) -> float:
        """Floating-point operations: two per point where weights are multiplied, else one."""
        points = float(np.prod([float(self.extent(role)) for role in ROLES]))
        return points * (1.0 if self.family in UNWEIGHTED else 2.0)

    def columns(self) -> dict[str, float]:
        """Feature columns that are the same for every candidate of the task."""
        extents = {role: float(self.extent(role)) for role in ROLES}
        data, weight, out = (float(x) for x in self.elements(extents))
        total = (data + weight + out) * self.element_bytes
        depth = extents["ci"] * extents["kh"] * extents["kw"]
        return {
            **{f"op_{role}": extent for role, extent in extents.items()},
            "op_family": float(FAMILIES.index(self.family)),
            "op_stride": float(self.stride[1]),
            "op_dilation": float(self.dilation[1]),
            "op_element_bytes": self.element_bytes,
            "flops": self.flops,
            "op_data_bytes": data * self.element_bytes,
            "op_weight_bytes": weight * self.element_bytes,
            "op_out_bytes": out * self.element_bytes,
            "op_intensity": self.flops / total,
            "op_points": out,
            "op_depth": depth,
            "op_points_per_depth": out / depth,
            **{f"op_{role}_odd": _odd_part(self.extent(role)) for role in ("w", "co", "ci")},
        }


def _odd_part(extent: int) -> float:
    """An extent over the largest power of two that divides it."""
    return extent / (extent & -extent) if extent > 0 else float(extent)


def dtype_bytes(name: object) -> float:
    """Bytes of an element of a TVM data type (``float32``, ``bfloat16``, ``float8_e4m3fn``)."""
    bits = re.search(r"t(\d+)", str(name)) or re.search(r"(\d+)", str(name))
    return int(bits[1]) / 8 if bits else 4.0
