"""Memory accesses of a block's first warp: bank conflicts and transactions, lane by lane.

The 32 lanes are placed in the block's tile (last spatial loop fastest), the addresses that they
touch follow from the operand's layout, and distinct banks and 32-byte sectors are counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from toolkit.features.base import Floats
from toolkit.features.loops.tiling import Tiling
from toolkit.features.task.operation import GROUPED, ROLES

Ints = NDArray[np.int64]

WARP = 32
BANKS = 32
SECTOR = 8
"""Elements of a memory sector: 32 bytes of single precision."""

# Layouts of the operation's roles: axes of the input, of the weights as they are read and as they
# are copied, and of the output, outermost first. ``c`` is the input's channel, ``y`` and ``x`` are
# its rows and columns, the window included.
_CHANNELS_FIRST = ("n c y x", "co ci kh kw", "co ci kh kw", "n co h w")
_CHANNELS_LAST = ("n y x c", "kh kw ci co", "kh kw ci co", "n h w co")
_MATRIX = ("n w ci", "n ci co", "ci co", "n w co")
# Where ``co`` comes before ``w``: ``bgemm`` of Winograd's convolution.
_COLUMNS_FIRST = ("n ci w", "n ci co", "n ci co", "n co w")


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
    spatial, operation = tiling.spatial, tiling.operation
    if tiling.thread_level is None or "co" not in spatial:
        return {}
    own = {r: _whole(v) for r, v in tiling.inside(*tiling.cuts()["mid"]).items()}
    tile = {r: _whole(v) for r, v in tiling.inside(*tiling.cuts()["stage"]).items()}
    size = {role: operation.extent(role) for role in ROLES}
    lane = np.broadcast_to(np.arange(WARP, dtype=np.int64), (tiling.rows, WARP))
    # Where the lanes lie along each role, in elements of the block's tile: (n, 32).
    place = dict.fromkeys(ROLES, np.zeros_like(lane))
    rest = lane
    for role in reversed(spatial):
        threads = _whole(tiling.level(role, tiling.thread_level))
        place[role] = rest % threads * own[role]
        rest = rest // threads
    channel = "co" if operation.family in GROUPED else "ci"
    vertical, horizontal = operation.stride
    both: tuple[dict[str, Any], ...] = (tile, size)
    for extents in both:
        extents["c"] = extents[channel]
        extents["y"] = (extents["h"] - 1) * vertical + extents["kh"]
        extents["x"] = (extents["w"] - 1) * horizontal + extents["kw"]
    place.update(c=place[channel], y=place["h"] * vertical, x=place["w"] * horizontal)
    later = spatial[spatial.index("co") :]
    if operation.family in ("matmul", "batch_matmul"):
        layout = _COLUMNS_FIRST if "w" in later else _MATRIX
    else:
        layout = _CHANNELS_FIRST if "h" in later or "h" not in spatial else _CHANNELS_LAST
    data, weight, copied, out = layout
    return {
        "bank_data": conflicts(_address(data, place, tile)),
        "bank_weight": conflicts(_address(weight, place, tile)),
        "sectors_out": sectors(_address(out, place, size)),
        "sectors_data": _copy_sectors(data, lane, tile, size),
        "sectors_weight": _copy_sectors(copied, lane, tile, size),
    }


def _whole(values: Floats) -> Ints:
    """Finite positive integers, ``(n, 1)``; unknown values count as 1."""
    known = np.where(np.isfinite(values), values, 1.0)
    return np.clip(known, 1, 2**31).astype(np.int64)[:, None]


def _address(axes: str, place: Mapping[str, Ints], extents: Mapping[str, Any]) -> Ints:
    """Addresses of places in an array of these extents."""
    first, *others = axes.split()
    address = place[first]
    for axis in others:
        address = address * extents[axis] + place[axis]
    return address


def _copy_sectors(
    axes: str, lane: Ints, tile: Mapping[str, Ints], size: Mapping[str, int]
) -> Floats:
    """Sectors of the first 32 elements of a tile that neighbouring lanes copy side by side."""
    rest = lane
    place = {}
    for axis in reversed(axes.split()):
        place[axis] = rest % tile[axis]
        rest = rest // tile[axis]
    return sectors(_address(axes, place, size))
