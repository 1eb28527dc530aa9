"""Multi-level tiles by loop role, and their features: footprints, reuse, grain.

A ``Tiling`` does not depend on the format: AutoTVM knobs, Ansor splits and MetaSchedule traces all
give one. Its *cuts* are places in the loop nest, from the innermost tile outwards; what lies inside
a cut is a tile of the operation, and its footprint, work and reuse are features:

========== ===================================== =======================================
cut        CPU (``SSRSRS`` or template)          GPU (``SSSRRSRS`` or template)
========== ===================================== =======================================
``reg``    innermost spatial tile                innermost spatial tile
``core``   that, over the innermost reduction    that, over the innermost reduction
``mid``    one spatial tile further out          a thread's own tile (without vthreads)
``stage``  that, over the whole reduction        a block's tile, over one staged reduction
``outer``  all but the outermost spatial loops   a block's tile, over the whole reduction
========== ===================================== =======================================
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from toolkit.features.base import Floats
from toolkit.features.loops.nest import product
from toolkit.features.task.operation import REDUCTION, ROLES, SPATIAL, Operation

VECTOR_BITS = (128, 256, 512)


@dataclass(frozen=True)
class Tiling:
    """Tile factors of one group of candidates, by role, outermost level first.

    ``factors[role][level]`` has one value per candidate, NaN where it is not known; a role of one
    level is not tiled. ``vector`` is the role that is vectorised along its innermost factor: the
    output's channels, or the depth where partial sums are kept side by side. ``packed`` is the
    input's block of channels, if that is no tile of the depth (depthwise).
    """

    operation: Operation
    factors: Mapping[str, Sequence[Floats]]
    gpu: bool
    rows: int
    vector: str = "co"
    packed: Floats | None = None

    @property
    def spatial(self) -> list[str]:
        """Spatial roles in the order of their loops."""
        return [role for role in self.factors if role in SPATIAL]

    @property
    def thread_level(self) -> int | None:
        """Level of the threads on a GPU: after the blocks and the vthreads, if any."""
        levels = self.levels(SPATIAL)
        return None if levels < 3 else 2 if levels > 3 else 1

    def inside(self, spatial: int, reduction: int) -> dict[str, Floats]:
        """Size of each role inside these levels, 1 where it is absent or has no such level."""
        result = {}
        for role, levels in self.factors.items():
            result[role] = product(levels[spatial if role in SPATIAL else reduction :], self.rows)
        absent = [role for role in ROLES if role not in self.factors]
        return result | dict.fromkeys(absent, np.ones(self.rows))

    def levels(self, roles: Sequence[str]) -> int:
        """Most levels that any of the roles has."""
        return max((len(self.factors.get(role, ())) for role in roles), default=0)

    def cuts(self) -> dict[str, tuple[int, int]]:
        """First spatial and first reduction level inside each cut, outermost level 0."""
        s, r = max(self.levels(SPATIAL), 1), max(self.levels(REDUCTION), 1)
        outer = min(1, s - 1)
        if self.gpu:
            # block, vthread, thread, inner...: a thread's tile begins after the thread level
            mid, stage = (min(3, s - 1), r - 1), (outer, min(1, r - 1))
        else:
            mid, stage = (max(s - 2, outer), r - 1), (max(s - 2, outer), 0)
        core = (s - 1, r - 1)
        return {"reg": (s - 1, r), "core": core, "mid": mid, "stage": stage, "outer": (outer, 0)}

    def level(self, role: str, level: int) -> Floats:
        """Factors of a role's level, 1 where there is none."""
        levels = self.factors.get(role, ())
        return levels[level] if len(levels) > level else np.ones(self.rows)

    def over(self, level: int) -> Floats:
        """Product over the spatial roles of one level's factors."""
        return product((self.level(role, level) for role in SPATIAL), self.rows)

    def columns(self, vector_bytes: float) -> dict[str, Floats]:
        """Feature columns of the tiles; ``vector_bytes`` is the width of a vector register."""
        result: dict[str, Floats] = {}
        lanes = max(vector_bytes / self.operation.element_bytes, 1.0)
        for role, levels in self.factors.items():
            if len(levels) > 1:
                result[f"tile_{role}_l0"] = levels[0]
                result[f"tile_{role}_reg"] = levels[-1]
                result[f"tile_{role}_block"] = product(levels[1:], self.rows)
            if len(levels) > 2:
                result[f"tile_{role}_mid"] = product(levels[1:-1], self.rows)
        if self.gpu and self.levels(SPATIAL) >= 4:
            for level, word in enumerate(("block", "vthread", "thread")):
                result[f"{word}_extent"] = self.over(level)
                for role in SPATIAL:
                    if len(self.factors.get(role, ())) > level:
                        result[f"{word}_{role}"] = self.factors[role][level]
        for name, cut in self.cuts().items():
            inside = self.inside(*cut)
            touched = self.operation.elements(inside)
            result[f"{name}_volume"] = product(inside.values(), self.rows)
            result[f"{name}_reuse"] = result[f"{name}_volume"] / sum(touched)
            result.update(self.byte_columns(name, touched))
        reg = self.inside(*self.cuts()["reg"])
        # The innermost tile's size along the vector, and its size in the other roles.
        depth = self.factors.get(self.vector) if self.vector in REDUCTION else None
        along = depth[-1] if depth else reg[self.vector]
        aside = product((reg[role] for role in self.spatial if role != self.vector), self.rows)
        w = reg["w"] * reg["h"]
        result["reg_accumulators"] = np.ceil(along / lanes) * aside
        result["reg_vector_fill"] = along / (np.ceil(along / lanes) * lanes)
        result["reg_w_fill"] = w / (np.ceil(w / lanes) * lanes)
        result["outer_extent"] = self.over(0)
        # Work with padding over work without: tiles that do not divide their loop overhang.
        result["ragged"] = np.ones(self.rows)
        for role, levels in self.factors.items():
            whole = product(levels, self.rows)
            result["ragged"] = result["ragged"] * whole / float(self.operation.extent(role))
        if not self.gpu:
            result.update(self._processor_columns(reg, along, aside))
        if self.vector not in REDUCTION:
            if not self.spatial:
                return result
            last = self.spatial[-1]
            along = reg[last]
            aside = product((reg[role] for role in self.spatial[:-1]), self.rows)
        result["last_reg"] = along
        result["last_fill"] = along / (np.ceil(along / lanes) * lanes)
        result["last_accumulators"] = np.ceil(along / lanes) * aside
        return result

    def byte_columns(self, word: str, touched: tuple[Any, Any, Any]) -> dict[str, Floats]:
        """Bytes of input, weights, output and all of them, from their elements."""
        data, weight, out = touched
        size = self.operation.element_bytes
        return {
            f"{word}_data_bytes": data * size,
            f"{word}_weight_bytes": weight * size,
            f"{word}_out_bytes": out * size,
            f"{word}_bytes": (data + weight + out) * size,
        }

    def _processor_columns(
        self, reg: Mapping[str, Floats], along: Floats, aside: Floats
    ) -> dict[str, Floats]:
        """Registers and loads of the innermost tile for each width a vector register may have.

        A target often does not say how wide vectors are (``llvm`` without ``-mcpu``); so all of
        them are given, 128 to 512 bits.
        """
        size, co = self.operation.element_bytes, reg["co"]
        points = reg["w"] * reg["h"] * reg["n"]
        result: dict[str, Floats] = {}
        for bits in VECTOR_BITS:
            vectors = np.ceil(along / max(bits / 8 / size, 1.0))
            result[f"accumulators_{bits}"] = vectors * aside
            # Vectors of weights, and of inputs (broadcast where lanes are channels), that a step
            # of the reduction loads.
            weights = co if self.vector in REDUCTION else vectors
            result[f"loads_per_fma_{bits}"] = (weights + points) / (weights * points)
        ci = self.inside(*self.cuts()["core"])["ci"] if self.packed is None else self.packed
        # Packed layouts: unequal blocks are gathered (depthwise); points are this far apart.
        result["ci_over_co_reg"] = ci / co
        result["point_stride_bytes"] = ci * size * self.operation.stride[1]
        # One block of channels of the whole image: each block of outputs that reads another part
        # of it comes back to it, from whichever cache still holds it.
        image = {role: float(self.operation.extent(role)) for role in ("h", "w", "kh", "kw")}
        plane = ci * size * self.operation.elements(image)[0]
        result["plane_bytes"] = plane
        # A depthwise plane with one block of outputs is not read again.
        depthwise = self.operation.family == "depthwise"
        readers = ci / co if depthwise else float(self.operation.extent("co")) / co
        result["shared_plane_bytes"] = np.where(readers > 1, plane, 0.0)
        return result


def complete(levels: list[Floats], extent: float | None) -> list[Floats]:
    """Fill an unknown outermost factor (0) from the extent: rounded up, NaN if it is unknown."""
    inner = product(levels[1:], len(levels[0]))
    with np.errstate(divide="ignore", invalid="ignore"):
        derived = np.ceil((np.nan if extent is None else extent) / inner)
    first = np.where(levels[0] > 0, levels[0], derived)
    return [np.where(np.isfinite(first), first, np.nan), *levels[1:]]
