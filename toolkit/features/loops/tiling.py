"""Multi-level tiles by loop role, and what follows from them: footprints, reuse, grain.

A ``Tiling`` is format-free: AutoTVM knobs, Ansor splits and MetaSchedule traces all fill one. Its
*cuts* are places in the loop nest, from the innermost tile outwards; what lies inside a cut is a
tile of the operation, and its footprint, work and reuse are features:

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

import numpy as np
from numpy.typing import NDArray

from toolkit.features.task.operation import REDUCTION, SPATIAL, Operation

Floats = NDArray[np.float64]

CUTS = ("reg", "core", "mid", "stage", "outer")

VECTOR_BITS = (128, 256, 512)


@dataclass(frozen=True)
class Cut:
    """Which levels lie inside: spatial ones from ``spatial`` on, reduction from ``reduction``.

    A level beyond the last means that none lies inside.
    """

    name: str
    spatial: int
    reduction: int


def cuts_of(spatial_levels: int, reduction_levels: int, gpu: bool) -> tuple[Cut, ...]:
    """Return the five cuts of a nest with so many levels, outermost level 0."""
    s, r = spatial_levels, reduction_levels
    if gpu:
        # block, vthread, thread, inner...: a thread's tile begins behind the thread level
        own = min(3, s - 1) if s > 3 else s - 1
        return (
            Cut("reg", s - 1, r),
            Cut("core", s - 1, max(r - 1, 0)),
            Cut("mid", own, max(r - 1, 0)),
            Cut("stage", min(1, s - 1), min(1, max(r - 1, 0))),
            Cut("outer", min(1, s - 1), 0),
        )
    return (
        Cut("reg", s - 1, r),
        Cut("core", s - 1, max(r - 1, 0)),
        Cut("mid", max(s - 2, min(1, s - 1)), max(r - 1, 0)),
        Cut("stage", max(s - 2, min(1, s - 1)), 0),
        Cut("outer", min(1, s - 1), 0),
    )


@dataclass(frozen=True)
class Tiling:
    """Tile factors of one group of candidates, by role, outermost level first.

    ``factors[role][level]`` has one value a candidate, NaN where it is not known. Roles may have
    several levels or one (not tiled). ``vector`` is the role along whose innermost factor the
    lanes of a vector lie: the output's channels, or the depth where partial sums are kept side by
    side and added up at the end. ``packed`` is the block of channels in which the input lies, where
    that is no tile of the depth (depthwise convolutions have none).
    """

    operation: Operation
    factors: Mapping[str, Sequence[Floats]]
    gpu: bool
    rows: int
    vector: str = "co"
    packed: Floats | None = None

    def inside(self, cut: Cut) -> dict[str, Floats]:
        """Size of each role inside a cut."""
        result = {}
        for role, levels in self.factors.items():
            first = cut.spatial if role in SPATIAL else cut.reduction
            result[role] = _product(levels[first:], self.rows)
        return result

    def levels(self, roles: Sequence[str]) -> int:
        """Most levels that any of the roles has."""
        return max((len(self.factors.get(role, ())) for role in roles), default=0)

    def cuts(self) -> tuple[Cut, ...]:
        """The five cuts of this nest."""
        return cuts_of(max(self.levels(SPATIAL), 1), max(self.levels(REDUCTION), 1), self.gpu)

    def over(self, roles: Sequence[str], level: int) -> Floats:
        """Product over roles of one level's factors (1 where a role has no such level)."""
        own = [self.factors[r][level] for r in roles if len(self.factors.get(r, ())) > level]
        return _product(own, self.rows)

    def columns(self, vector_bytes: float) -> dict[str, Floats]:
        """Feature columns of the tiles; ``vector_bytes`` is the width of a vector register."""
        result: dict[str, Floats] = {}
        size = self.operation.element_bytes
        lanes = max(vector_bytes / size, 1.0)
        for role, levels in self.factors.items():
            if len(levels) < 2:
                continue
            result[f"tile_{role}_l0"] = levels[0]
            result[f"tile_{role}_reg"] = levels[-1]
            result[f"tile_{role}_block"] = _product(levels[1:], self.rows)
            if len(levels) > 2:
                result[f"tile_{role}_mid"] = _product(levels[1:-1], self.rows)
        if self.gpu and self.levels(SPATIAL) >= 4:
            for word, level in (("block", 0), ("vthread", 1), ("thread", 2)):
                result[f"{word}_extent"] = self.over(SPATIAL, level)
                for role in ("co", "h", "w", "n"):
                    if len(self.factors.get(role, ())) > level:
                        result[f"{word}_{role}"] = self.factors[role][level]
        for cut in self.cuts():
            result.update(self._cut_columns(cut, size))
        reg = self.inside(self.cuts()[0])
        along, aside = self._vector_tile(reg)
        w = reg.get("w", np.ones(self.rows)) * reg.get("h", np.ones(self.rows))
        result["reg_accumulators"] = np.ceil(along / lanes) * aside
        result["reg_vector_fill"] = along / (np.ceil(along / lanes) * lanes)
        result["reg_w_fill"] = w / (np.ceil(w / lanes) * lanes)
        result["outer_extent"] = self.over(SPATIAL, 0)
        result["ragged"] = self.ragged()
        if not self.gpu:
            result.update(self._processor_columns(reg, size))
        last = next((role for role in reversed(list(self.factors)) if role in SPATIAL), None)
        if self.vector in REDUCTION:
            innermost, others = along, aside
        elif last is not None:
            innermost = reg.get(last, np.ones(self.rows))
            others = _product([v for r, v in reg.items() if r in SPATIAL and r != last], self.rows)
        else:
            return result
        result["last_reg"] = innermost
        result["last_fill"] = innermost / (np.ceil(innermost / lanes) * lanes)
        result["last_accumulators"] = np.ceil(innermost / lanes) * others
        return result

    def _vector_tile(self, reg: Mapping[str, Floats]) -> tuple[Floats, Floats]:
        """Innermost tile along the vector, and the number of such rows of lanes in it."""
        spatial = {role: size for role, size in reg.items() if role in SPATIAL}
        along = spatial.pop(self.vector, np.ones(self.rows))
        if self.vector in REDUCTION:
            along = self.factors.get(self.vector, [along])[-1]
        return along, _product(list(spatial.values()), self.rows)

    def _processor_columns(self, reg: Mapping[str, Floats], size: float) -> dict[str, Floats]:
        """Registers and loads of the innermost tile for each width a vector register may have.

        A target often does not say how wide vectors are (``llvm`` without ``-mcpu``); so all of
        them are given, 128 to 512 bits.
        """
        co = reg.get("co", np.ones(self.rows))
        points = reg.get("w", np.ones(self.rows)) * reg.get("h", np.ones(self.rows))
        points = points * reg.get("n", np.ones(self.rows))
        along, aside = self._vector_tile(reg)
        result: dict[str, Floats] = {}
        for bits in VECTOR_BITS:
            lanes = max(bits / 8 / size, 1.0)
            vectors = np.ceil(along / lanes)
            result[f"accumulators_{bits}"] = vectors * aside
            # Vectors of weights, and of inputs (broadcast where lanes are channels), that a step
            # of the reduction loads.
            weights = co if self.vector in REDUCTION else vectors
            result[f"loads_per_fma_{bits}"] = (weights + points) / (weights * points)
        ci = self.packed
        if ci is None:
            ci = self.inside(self.cuts()[1]).get("ci", np.ones(self.rows))
        # Packed layouts: unequal blocks are gathered (depthwise), points lie this far apart.
        result["ci_over_co_reg"] = ci / co
        result["point_stride_bytes"] = ci * size * self.operation.stride[1]
        # One block of channels of the whole image: each block of outputs that reads another part
        # of it comes back to it, from whichever cache still holds it.
        image = {role: float(self.operation.extent(role)) for role in ("h", "w", "kh", "kw")}
        plane = ci * size * self.operation.elements(image)[0]
        result["plane_bytes"] = plane
        # Nothing comes back to the plane of a depthwise block that is one block of outputs.
        depthwise = self.operation.family == "depthwise"
        readers = ci / co if depthwise else float(self.operation.extent("co")) / co
        result["shared_plane_bytes"] = np.where(readers > 1, plane, 0.0)
        return result

    def ragged(self) -> Floats:
        """Work with padding over work without: tiles that do not divide their loop overhang."""
        result = np.ones(self.rows)
        for role, levels in self.factors.items():
            result = result * _product(levels, self.rows) / float(self.operation.extent(role))
        return result

    def _cut_columns(self, cut: Cut, size: float) -> dict[str, Floats]:
        inside = self.inside(cut)
        data, weight, out = (np.broadcast_to(x, self.rows) for x in self.operation.elements(inside))
        volume = _product(list(inside.values()), self.rows)
        total = data + weight + out
        prefix = f"{cut.name}_"
        return {
            f"{prefix}volume": volume,
            f"{prefix}data_bytes": data * size,
            f"{prefix}weight_bytes": weight * size,
            f"{prefix}out_bytes": out * size,
            f"{prefix}bytes": total * size,
            f"{prefix}reuse": volume / total,
        }


def complete(levels: list[Floats], extent: float | None) -> list[Floats]:
    """Fill an unknown outermost factor (0) from the extent: rounded up, NaN without one."""
    inner = _product(levels[1:], len(levels[0]))
    with np.errstate(divide="ignore", invalid="ignore"):
        derived = np.ceil(extent / inner) if extent is not None else np.full_like(inner, np.nan)
    first = np.where(levels[0] > 0, levels[0], derived)
    return [np.where(np.isfinite(first), first, np.nan), *levels[1:]]


def _product(levels: Sequence[Floats], rows: int) -> Floats:
    result = levels[0] if levels else np.ones(rows)
    for level in levels[1:]:
        result = result * level
    return result
