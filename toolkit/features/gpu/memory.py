"""What the first warp of a block does to memory: bank conflicts and transactions, lane by lane.

The 32 lanes are placed in the block's tile (last spatial loop fastest), the addresses that they
touch follow from the operand's layout, and distinct banks and 32-byte sectors are counted. Layouts
are those of the operation's roles: channels first where ``co`` comes before ``h`` among the
spatial loops, else channels last, with weights ``[co, ci, kh, kw]`` or ``[kh, kw, ci, co]``. Matrix
products read ``[w, ci]`` and ``[ci, co]``; where ``co`` comes before ``w`` (``bgemm`` of Winograd's
convolution) they read ``[ci, w]`` and ``[ci, co]``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from toolkit.features.base import Floats
from toolkit.features.loops.tiling import Tiling
from toolkit.features.task.operation import GROUPED, SPATIAL

Ints = NDArray[np.int64]

WARP = 32
BANKS = 32
SECTOR = 8
"""Elements of a memory sector: 32 bytes of single precision."""


def _whole(values: Floats) -> Ints:
    """Finite positive integers: what is unknown counts as 1."""
    known = np.where(np.isfinite(values), values, 1.0)
    return np.clip(known, 1, 2**31).astype(np.int64)


def conflicts(address: Ints) -> Floats:
    """Most distinct addresses that fall into one of 32 banks, over the 32 lanes of each row."""
    ordered = np.sort(address, axis=1)
    fresh = np.ones(ordered.shape, dtype=bool)
    fresh[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    bank = ordered % BANKS + np.arange(len(address))[:, None] * BANKS
    counts = np.bincount(bank[fresh], minlength=len(address) * BANKS)
    return np.asarray(counts.reshape(len(address), BANKS).max(axis=1), dtype=np.float64)


def sectors(address: Ints) -> Floats:
    """Number of 32-byte sectors that the 32 lanes of each row touch; 4 is the least."""
    ordered = np.sort(address // SECTOR, axis=1)
    return np.asarray(1.0 + (ordered[:, 1:] != ordered[:, :-1]).sum(axis=1))


def memory_columns(tiling: Tiling) -> dict[str, Floats]:
    """Conflicts of shared loads, sectors of stores and of the cooperative copies."""
    spatial, levels = tiling.spatial, tiling.levels(SPATIAL)
    if levels < 3 or "co" not in spatial:
        return {}
    operation = tiling.operation
    own = {r: _whole(v)[:, None] for r, v in tiling.inside(tiling.cuts()[2]).items()}
    tile = {r: _whole(v)[:, None] for r, v in tiling.inside(tiling.cuts()[3]).items()}
    # Where the first 32 lanes lie along each role, in elements of the block's tile: (n, 32).
    at = {role: np.zeros((tiling.rows, WARP), dtype=np.int64) for role in SPATIAL}
    rest = np.broadcast_to(np.arange(WARP, dtype=np.int64), (tiling.rows, WARP))
    for role in reversed(spatial):
        threads = _whole(tiling.level(role, 2 if levels > 3 else 1))[:, None]
        at[role] = rest % threads * own[role]
        rest = rest // threads
    n, co, h, w = (at[role] for role in SPATIAL)
    size = {role: operation.extent(role) for role in tile}
    if operation.family in ("matmul", "batch_matmul"):
        weight = n * tile["ci"] * tile["co"] + co
        if "w" in spatial and spatial.index("co") < spatial.index("w"):
            data = n * tile["ci"] * tile["w"] + w
            data_axes, weight_axes = "n ci w", "n ci co"
            out = (n * size["co"] + co) * size["w"] + w
        else:
            data = (n * tile["w"] + w) * tile["ci"]
            data_axes, weight_axes = "n w ci", "ci co"
            out = (n * size["w"] + w) * size["co"] + co
    else:
        vertical, horizontal = operation.stride
        grouped = operation.family in GROUPED
        channel = co if grouped else np.zeros_like(co)
        y, x = h * vertical, w * horizontal
        every: tuple[dict[str, Any], ...] = (tile, size)
        for extents in every:
            extents["c"] = extents["co" if grouped else "ci"]
            extents["y"] = (extents["h"] - 1) * vertical + extents["kh"]
            extents["x"] = (extents["w"] - 1) * horizontal + extents["kw"]
        if "h" not in spatial or spatial.index("co") < spatial.index("h"):
            data = ((n * tile["c"] + channel) * tile["y"] + y) * tile["x"] + x
            weight = co * (tile["ci"] * tile["kh"] * tile["kw"])
            data_axes, weight_axes = "n c y x", "co ci kh kw"
            out = ((n * size["co"] + co) * size["h"] + h) * size["w"] + w
        else:
            data = ((n * tile["y"] + y) * tile["x"] + x) * tile["c"] + channel
            weight = co
            data_axes, weight_axes = "n y x c", "kh kw ci co"
            out = ((n * size["h"] + h) * size["w"] + w) * size["co"] + co
    return {
        "bank_data": conflicts(data),
        "bank_weight": conflicts(weight),
        "sectors_out": sectors(out),
        "sectors_data": _copy_sectors(data_axes, tile, size, tiling.rows),
        "sectors_weight": _copy_sectors(weight_axes, tile, size, tiling.rows),
    }


def _copy_sectors(
    axes: str, tile: Mapping[str, Ints], size: Mapping[str, int], rows: int
) -> Floats:
    """Sectors of the first 32 elements of a tile that neighbouring lanes copy side by side."""
    rest = np.broadcast_to(np.arange(WARP, dtype=np.int64), (rows, WARP))
    address = np.zeros((rows, WARP), dtype=np.int64)
    stride = 1
    for axis in reversed(axes.split()):
        address = address + (rest % tile[axis]) * stride
        rest = rest // tile[axis]
        stride *= size[axis]
    return sectors(address)
