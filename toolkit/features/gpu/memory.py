"""What the first warp of a block does to memory: bank conflicts and transactions, lane by lane.

The 32 lanes are placed in the block's tile (last spatial loop fastest), the addresses that they
touch follow from the operand's layout, and distinct banks and 32-byte sectors are counted. Layouts
are those of the operation's roles: channels first where ``co`` comes before ``h`` among the
spatial loops, else channels last, with weights ``[co, ci, kh, kw]`` or ``[kh, kw, ci, co]``. Matrix
products read ``[w, ci]`` and ``[ci, co]``; where ``co`` comes before ``w`` (``bgemm`` of Winograd's
convolution) they read ``[ci, w]`` and ``[ci, co]``.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from toolkit.features.loops.tiling import Tiling
from toolkit.features.task.operation import SPATIAL

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

WARP = 32
BANKS = 32
SECTOR = 8
"""Elements of a memory sector: 32 bytes of single precision."""


def lane_places(tiling: Tiling) -> dict[str, Ints]:
    """Thread coordinates of the first 32 lanes along each spatial role, ``(n, 32)``."""
    level = 2 if tiling.levels(SPATIAL) > 3 else 1
    rest = np.broadcast_to(np.arange(WARP, dtype=np.int64), (tiling.rows, WARP))
    places: dict[str, Ints] = {}
    for role in reversed([role for role in tiling.factors if role in SPATIAL]):
        factors = tiling.factors[role]
        extent = _whole(factors[level] if len(factors) > level else np.ones(tiling.rows))
        places[role] = rest % extent[:, None]
        rest = rest // extent[:, None]
    return places


def _whole(values: Floats) -> Ints:
    """Finite positive integers: what is unknown counts as 1."""
    known = np.where(np.isfinite(values), values, 1.0)
    return np.clip(known, 1, 2**31).astype(np.int64)


def conflicts(address: Ints) -> Floats:
    """Most distinct addresses that fall into one of 32 banks, over the 32 lanes of each row."""
    ordered = np.sort(address, axis=1)
    fresh = np.ones(ordered.shape, dtype=bool)
    fresh[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    bank = ordered % BANKS
    rows = np.repeat(np.arange(len(address)), WARP).reshape(ordered.shape)
    counts = np.bincount(
        (rows[fresh] * BANKS + bank[fresh]).ravel(), minlength=len(address) * BANKS
    )
    most = counts.reshape(len(address), BANKS).max(axis=1)
    return np.asarray(most, dtype=np.float64)


def sectors(address: Ints) -> Floats:
    """Number of 32-byte sectors that the 32 lanes of each row touch; 4 is the least."""
    ordered = np.sort(address // SECTOR, axis=1)
    return np.asarray(1.0 + (ordered[:, 1:] != ordered[:, :-1]).sum(axis=1))


def memory_columns(tiling: Tiling) -> dict[str, Floats]:
    """Conflicts of shared loads, sectors of stores and of the cooperative copies."""
    spatial = [role for role in tiling.factors if role in SPATIAL]
    if tiling.levels(SPATIAL) < 3 or "co" not in spatial:
        return {}
    operation = tiling.operation
    lanes = lane_places(tiling)
    zero = np.zeros((tiling.rows, WARP), dtype=np.int64)
    own = {r: _whole(v)[:, None] for r, v in tiling.inside(tiling.cuts()[2]).items()}
    stage = {r: _whole(v)[:, None] for r, v in tiling.inside(tiling.cuts()[3]).items()}
    one = np.ones((tiling.rows, 1), dtype=np.int64)
    matrix = operation.family in ("matmul", "batch_matmul")
    columns_first = "w" in spatial and spatial.index("co") < spatial.index("w")
    first = "h" not in spatial or spatial.index("co") < spatial.index("h")

    def at(role: str) -> Ints:
        return lanes.get(role, zero) * own.get(role, one)

    def tile(role: str) -> Ints:
        return stage.get(role, one)

    grouped = operation.family in ("depthwise", "pool", "elementwise")
    rows = (tile("h") - 1) * operation.stride[0] + tile("kh")
    columns = (tile("w") - 1) * operation.stride[1] + tile("kw")
    channels = tile("co") if grouped else tile("ci")
    channel = at("co") if grouped else zero
    y, x = at("h") * operation.stride[0], at("w") * operation.stride[1]
    if matrix and columns_first:
        data = at("n") * tile("ci") * tile("w") + at("w")
        data_shape = [(tile("n"), "n"), (tile("ci"), "ci"), (tile("w"), "w")]
        weight = at("n") * tile("ci") * tile("co") + at("co")
        weight_shape = [(tile("n"), "n"), (tile("ci"), "ci"), (tile("co"), "co")]
        out = (at("n") * operation.extent("co") + at("co")) * operation.extent("w") + at("w")
    elif matrix:
        data = (at("n") * tile("w") + at("w")) * tile("ci")
        data_shape = [(tile("n"), "n"), (tile("w"), "w"), (tile("ci"), "ci")]
        weight = at("co") + at("n") * tile("ci") * tile("co")
        weight_shape = [(tile("ci"), "ci"), (tile("co"), "co")]
        out = (at("n") * operation.extent("w") + at("w")) * operation.extent("co") + at("co")
    elif first:
        data = ((at("n") * channels + channel) * rows + y) * columns + x
        data_shape = [(tile("n"), "n"), (channels, "c"), (rows, "y"), (columns, "x")]
        weight = at("co") * (tile("ci") * tile("kh") * tile("kw"))
        weight_shape = [(tile(r), r) for r in ("co", "ci", "kh", "kw")]
        image = operation.extent("h") * operation.extent("w")
        out = (at("n") * operation.extent("co") + at("co")) * image
        out = out + at("h") * operation.extent("w") + at("w")
    else:
        data = ((at("n") * rows + y) * columns + x) * channels + channel
        data_shape = [(tile("n"), "n"), (rows, "y"), (columns, "x"), (channels, "c")]
        weight = at("co")
        weight_shape = [(tile(r), r) for r in ("kh", "kw", "ci", "co")]
        out = (at("n") * operation.extent("h") + at("h")) * operation.extent("w") + at("w")
        out = out * operation.extent("co") + at("co")
    sizes = _sizes(tiling, grouped)
    return {
        "bank_data": conflicts(data),
        "bank_weight": conflicts(weight),
        "sectors_out": sectors(out),
        "sectors_data": _copy_sectors(data_shape, sizes, tiling.rows),
        "sectors_weight": _copy_sectors(weight_shape, sizes, tiling.rows),
    }


def _sizes(tiling: Tiling, grouped: bool) -> dict[str, int]:
    """Extents of the whole operands' axes."""
    operation = tiling.operation
    found = {role: operation.extent(role) for role in ("n", "w", "ci", "co", "kh", "kw")}
    found["c"] = operation.extent("co" if grouped else "ci")
    found["y"] = (operation.extent("h") - 1) * operation.stride[0] + operation.extent("kh")
    found["x"] = (operation.extent("w") - 1) * operation.stride[1] + operation.extent("kw")
    return found


def _copy_sectors(shape: list[tuple[Ints, str]], sizes: dict[str, int], rows: int) -> Floats:
    """Sectors of the first 32 elements of a tile that neighbouring lanes copy side by side."""
    rest = np.broadcast_to(np.arange(WARP, dtype=np.int64), (rows, WARP))
    address = np.zeros((rows, WARP), dtype=np.int64)
    stride = 1
    for extent, name in reversed(shape):
        address = address + (rest % extent) * stride
        rest = rest // extent
        stride *= sizes[name]
    return sectors(address)
