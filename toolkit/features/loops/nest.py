"""A schedule's loop nest, from Ansor steps or a MetaSchedule trace: the input of ``primitives``.

Extents that a log does not give are NaN.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from toolkit.features.base import CandidateGroup, Floats


@dataclass(eq=False)
class Loop:
    """A loop of a block or stage: its extent, one value per candidate, and whether it reduces.

    ``place`` is the number of the block's iterator that it runs over. Consumers and producers are
    assumed to number theirs in the same order, which holds from the front if reductions come last.
    ``source`` names the knob that splits it, ``block`` its block.
    """

    extent: Floats
    place: int = 0
    reduces: bool = False
    source: str = ""
    block: str = ""


@dataclass
class Axis:
    """One split loop of the main stage: the knob that splits it, its levels outermost first.

    ``reduces`` is true for a known reduction; otherwise the number of its levels decides.
    """

    knob: str
    levels: list[Floats]
    reduces: bool = False

    @property
    def extent(self) -> float:
        """Product of its levels (their median, if padding differs); 1 where it is unknown."""
        products = math.prod(self.levels[1:], start=self.levels[0])
        if len(products) and (products == products[0]).all():
            return float(products[0])
        known = products[np.isfinite(products)]
        return float(np.median(known)) if len(known) else 1.0


@dataclass(frozen=True)
class Region:
    """A loop nest at the root of a CPU program: one start of the thread pool, or a serial part.

    ``extent`` is that of its parallel loop, 1 where one thread runs it; ``steps`` are the
    iterations of all its blocks, 0 for candidates that have no such nest. ``chained`` are the
    iterations of blocks whose innermost loop reduces: each addition waits for the previous one, and
    no vector does several (``None``: not known).
    """

    extent: Floats
    steps: Floats
    chained: Floats | None = None


@dataclass(frozen=True)
class ProgramWork:
    """Work of all iterations of a CPU program's blocks, one value per candidate.

    ``steps`` are the iterations, ``arithmetic`` their instructions, ``calls`` their calls of
    functions such as ``exp``, ``branches`` their conditions on the place (a padding's border).
    ``waits`` are the additions that wait for the previous one: with several sums in turn, one of
    so many. ``least_*`` are the figures of a program in which no block is computed twice.
    """

    steps: Floats
    arithmetic: Floats
    calls: Floats
    branches: Floats
    waits: Floats
    least_arithmetic: float
    least_calls: float


@dataclass
class Nest:
    """Content of the steps or the trace of one sketch; arrays have one value per candidate."""

    rows: int
    # Split loops of the stage that does the work, in the order of its iterators; ``label``, that
    # stage's or the workload's name, hints at the computation.
    axes: list[Axis] = field(default_factory=list)
    label: str = ""
    # GPU: extents bound to the grid, of each kernel; threads that reduce together; iterations of
    # the busiest thread over all kernels (``None``: the main stage tells them).
    blocks: list[Floats] = field(default_factory=list)
    threads: list[Floats] = field(default_factory=list)
    vthreads: list[Floats] = field(default_factory=list)
    across: Floats | float = 1.0
    serial: Floats | None = None
    # CPU: the vectorised loops; the parallel loop around the main stage, and the loops that it was
    # fused of, outermost first: the knob that splits each (empty: none does) and its extent, 1
    # where a candidate does not fuse it; the nests at the root of the program.
    vector: Floats | None = None
    parallel: Floats | None = None
    fused: list[tuple[str, Floats]] = field(default_factory=list)
    regions: list[Region] = field(default_factory=list)
    # Iterations of the program where no block is inlined and nothing is computed twice.
    least: float | None = None
    work: ProgramWork | None = None
    # Largest step of automatic unrolling; vector lengths of the copies of input and weights.
    unroll: Floats | None = None
    fetch: list[Floats] = field(default_factory=list)
    # CPU, where the main stage is tiled: vector registers of sums that it adds to in turn, and the
    # additions to each before it is stored.
    sums: tuple[Floats, Floats] | None = None
    # Depth at which each movable stage is attached (-1 root, -2 inlined); stages that were inlined,
    # and cache stages that were added.
    located: list[Floats] = field(default_factory=list)
    inlined: int = 0
    cached: int = 0


class Replay:
    """State of a group's schedule during replay: its nest, and the remaining knobs."""

    def __init__(self, group: CandidateGroup) -> None:
        self.group, self.rows = group, len(group)
        self.nest = Nest(self.rows)
        self.unknown = np.full(self.rows, np.nan)
        self._knobs = iter(group.sketch.knobs)

    def decide(self) -> tuple[str, list[Floats]]:
        """Return the next knob's name and its parts; a factor unknown to the log (0) is NaN."""
        knob = next(self._knobs)
        place = slice(knob.offset, knob.offset + knob.width)
        parts = self.group.decisions[:, place].astype(np.float64)
        if knob.kind == "tile":
            parts[parts <= 0] = np.nan
        return knob.name, list(parts.T)


def product(levels: Iterable[Floats], rows: int) -> Floats:
    """Product of loop extents."""
    first, *others = [*levels] or [np.ones(rows)]
    return math.prod(others, start=first)


def running_product(levels: Sequence[Floats], count: Floats, rows: int) -> Floats:
    """Product of the first ``count`` levels, which differs between candidates."""
    return product((np.where(count > place, x, 1.0) for place, x in enumerate(levels)), rows)
