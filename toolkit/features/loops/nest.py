"""A schedule's loop nest as both step languages tell it: what ``primitives`` computes from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from toolkit.features.base import CandidateGroup
from toolkit.records import Knob

Floats = NDArray[np.float64]


@dataclass
class Axis:
    """One split loop of the main stage: the knob that splits it, its levels outermost first.

    ``reduces`` where it is known to be added up; else the number of its levels tells.
    """

    knob: str
    levels: list[Floats]
    reduces: bool = False

    @property
    def extent(self) -> float:
        """Extent of the loop: the product of its levels (their median, should padding differ).

        1 where no candidate tells it.
        """
        products = self.levels[0]
        for level in self.levels[1:]:
            products = products * level
        if len(products) and (products == products[0]).all():
            return float(products[0])
        known = products[np.isfinite(products)]
        return float(np.median(known)) if len(known) else 1.0


@dataclass(frozen=True)
class Region:
    """A loop nest at the root of a CPU program: one start of the thread pool, or a serial part.

    Attributes
    ----------
    extent
        Of its parallel loop; 1 where one thread runs it, NaN where it is unknown.
    steps
        Iterations of all its blocks; 0 for candidates that have no such nest, NaN unknown.
    """

    extent: Floats
    steps: Floats


@dataclass
class Nest:
    """What the steps or the trace of one sketch say, one value a candidate everywhere.

    Attributes
    ----------
    axes
        Split loops of the stage that does the work, in the order of its iterators.
    label
        Name of that stage or of the workload, for a hint at what it computes.
    blocks, threads, vthreads
        Extents bound to the grid, of each kernel in program order (GPU).
    parallel, vector
        Extent of the parallel loop around the main stage, and of the vectorised loops (CPU).
    fused
        The loops that the parallel one was fused of, outermost first: the knob that splits each
        (empty: none does), and its extent, 1 where a candidate does not fuse it.
    regions
        Nests at the root of the program (CPU).
    least
        Iterations of the program where no block is inlined and nothing is computed twice.
    unroll
        Largest step of automatic unrolling.
    fetch
        Vector length of each staged operand's copy: input first, then weights.
    located
        Depth at which each movable stage is attached (-1 root, -2 inlined).
    across
        Threads that reduce together, 1 where none do.
    serial
        Iterations of the busiest thread, over all kernels; ``None``: the main stage tells them.
    inlined, cached
        How many stages were inlined, and how many cache stages were added.
    """

    rows: int
    axes: list[Axis] = field(default_factory=list)
    label: str = ""
    blocks: list[Floats] = field(default_factory=list)
    threads: list[Floats] = field(default_factory=list)
    vthreads: list[Floats] = field(default_factory=list)
    parallel: Floats | None = None
    vector: Floats | None = None
    fused: list[tuple[str, Floats]] = field(default_factory=list)
    regions: list[Region] = field(default_factory=list)
    least: float | None = None
    unroll: Floats | None = None
    fetch: list[Floats] = field(default_factory=list)
    located: list[Floats] = field(default_factory=list)
    across: Floats | float = 1.0
    serial: Floats | None = None
    inlined: int = 0
    cached: int = 0


def knob_parts(group: CandidateGroup, knob: Knob) -> list[Floats]:
    """Parts of a knob, one vector each; a factor that the log does not tell (0) is NaN."""
    parts = group.decisions[:, knob.offset : knob.offset + knob.width].astype(np.float64)
    if knob.kind == "tile":
        parts[parts <= 0] = np.nan
    return list(parts.T)


def product(levels: Sequence[Floats | None], rows: int) -> Floats | None:
    """Product of loop extents; ``None`` as soon as one of them is unknown."""
    result = np.ones(rows)
    for level in levels:
        if level is None:
            return None
        result = result * level
    return result


def running_product(levels: Sequence[Floats | None], count: Floats, rows: int) -> Floats:
    """Product of the first ``count`` levels, which differs between candidates; NaN: unknown."""
    result = np.ones(rows)
    for place, level in enumerate(levels):
        inside = count > place
        factor = np.full(rows, np.nan) if level is None else level
        result = np.where(inside, result * factor, result)
    return result


def bounded_product(levels: Sequence[Floats | None], limit: Floats, rows: int) -> Floats:
    """Product of leading levels as long as it stays within a limit (TVM's rule of fusing).

    TVM ``src/meta_schedule/postproc/rewrite_parallel_vectorize_unroll.cc``: loops are fused one
    by one while the product does not exceed the annotated maximal extent.
    """
    result = np.ones(rows)
    growing = np.ones(rows, dtype=bool)
    for level in levels:
        if level is None:
            break
        growing &= result * level <= limit
        result = np.where(growing, result * level, result)
    return result
