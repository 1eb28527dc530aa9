"""Extractor ``relations``: AutoTVM's context-relation features, from loop nests of three formats.

Every loop of the tiled nest has a *context*: elements of an operand that it and the loops inside
touch, their reuse (iterations over elements), and the product of the loops outside. A relation
gives one entry where another stays under a threshold (Chen et al. 2018, "Learning to Optimize
Tensor Programs", section 4)::

    R_t[i, j] = max over loops k with Z[k, j] < beta_t of Z[k, i]

Such a curve has the same length for a nest of any depth, and names neither loop nor operator.
Thresholds and curves are those of AutoTVM (TVM 0.7 ``src/autotvm/touch_extractor.cc``,
``GetCurveSampleFeatureFlatten``): beta is 1, 2, 4, ... 2^19, logarithms have base 2, the innermost
statement is a point of every curve, and a point on the threshold counts. What differs:

- TVM reads the lowered program. Here the nest is rebuilt from tiles, in the order of multi-level
  tiling. Copies to caches and stages that are attached have no curves; their loops are unknown.
- Elements are those of a footprint. TVM multiplies the loops that index an operand, and so counts
  a convolution's overlapping windows several times.
- Reuse by elements and elements by reuse are maxima. The product outside shrinks where elements
  grow: its maximum would be the same for all candidates. So the two curves of that pair are
  minima. They tell how often the largest tile of at most 2^t elements is entered, and the smallest
  tile that is entered at most 2^t times. TVM sorts both sequences each by itself, and so pairs the
  entries of different loops.
- TVM gives the distance to each threshold too, and its cost model adds knobs that are no tiles.
  Both are left out here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from toolkit.features.base import CandidateGroup, Floats
from toolkit.features.extractors.columns import ColumnsExtractor
from toolkit.features.extractors.knobs import knob_tiling
from toolkit.features.extractors.primitives import nest_of
from toolkit.features.loops.roles import assign_roles
from toolkit.features.loops.tiling import Tiling
from toolkit.features.task.hardware import is_gpu
from toolkit.features.task.operation import REDUCTION, ROLES, SPATIAL
from toolkit.records import Task

OPERANDS = ("data", "weight", "out")

SAMPLES = 20
"""Thresholds of a curve: 2^0 to 2^19."""


class RelationsExtractor(ColumnsExtractor):
    """Loop nests of AutoTVM, Ansor and MetaSchedule → sampled relations of their contexts.

    Four curves for each of three operands, 20 values each, all logarithms to base 2. An operand
    that the operation does not read is absent, and so are values that depend on an unknown extent.
    """

    name = "relations"
    version = 1

    def supports(self, task: Task) -> bool:
        """AutoTVM, Ansor and MetaSchedule tasks."""
        return task.format in ("autotvm", "ansor", "metaschedule")

    def columns(self, group: CandidateGroup) -> dict[str, Floats]:
        """Rebuild the nest, and sample the relations of its contexts."""
        touched, reuse, outside = contexts(tiling_of(group))
        result: dict[str, Floats] = {}
        for place, operand in enumerate(OPERANDS):
            own, again = touched[place], reuse[place]
            curves = {
                "reuse_by_touched": sample(own, again, np.max),
                "touched_by_reuse": sample(again, own, np.max),
                "outside_by_touched": sample(own, outside, np.min),
                "touched_by_outside": sample(outside, own, np.min),
            }
            for name, curve in curves.items():
                for t, value in enumerate(curve):
                    result[f"{operand}_{name}_{t:02}"] = value
        return result


def tiling_of(group: CandidateGroup) -> Tiling:
    """Return the tiles of a group; a role that is not tiled is one loop, unless it is unknown."""
    task = group.task
    if task.format == "autotvm":
        tiling, _ = knob_tiling(group)
        # On a processor, templates loop over channels last: these are vectorised.
        order = ROLES if tiling.gpu else ("n", "h", "w", "co", *REDUCTION)
        known = {role: tiling.factors[role] for role in order if role in tiling.factors}
        return replace(tiling, factors=known, packed=None)
    operation, factors, _ = assign_roles(task, nest_of(group))
    if not factors:
        factors = {r: [np.full(len(group), float(e))] for r, e in operation.extents.items()}
    return Tiling(operation, factors, is_gpu(task), len(group))


def loop_order(tiling: Tiling) -> list[tuple[str, int]]:
    """Role and level of each loop, outermost first.

    ``SSRSRS`` on a processor and ``SSSRRSRS`` on a GPU (TVM ``auto_scheduler`` and
    ``meta_schedule``); fewer levels leave out middle ones, as AutoTVM's templates do.
    """
    s, r = tiling.levels(SPATIAL), tiling.levels(REDUCTION)
    leading = max(1, min(3 if tiling.gpu else s - 2, s - 1))
    bands: list[tuple[tuple[str, ...], int]] = [(SPATIAL, level) for level in range(leading)]
    bands += [(REDUCTION, level) for level in range(r - 1)]
    bands += [(SPATIAL, level) for level in range(leading, s - 1)]
    bands += [(REDUCTION, r - 1)] + [(SPATIAL, s - 1)] * (s > 1)
    if tiling.vector in REDUCTION:  # partial sums lie side by side
        bands[-2:] = bands[:-3:-1]
    return [
        (role, level)
        for roles, level in bands
        for role, levels in tiling.factors.items()
        if role in roles and level < len(levels)
    ]


def contexts(tiling: Tiling) -> tuple[Floats, Floats, Floats]:
    """Elements touched, their reuse, and the product of the loops outside, of every loop.

    Elements and reuse are ``(3 operands, 1 + loops, rows)``, the product ``(1 + loops, rows)``: the
    statement first, then the loops from the innermost outwards. NaN: not known. An operand that
    is not read is NaN, and so is everything where no loop is known.
    """
    order, rows = loop_order(tiling), tiling.rows
    extents = [tiling.factors[role][level] for role, level in order]
    statement = np.full(rows, 1.0 if order else np.nan)
    steps, outside = (np.multiply.accumulate([statement, *x]) for x in (extents[::-1], extents))
    sizes: dict[str, Floats | float] = dict.fromkeys(ROLES, statement)
    touched = [tiling.operation.elements(sizes)]
    for (role, _), extent in zip(order[::-1], extents[::-1], strict=True):
        sizes[role] = sizes[role] * extent
        touched.append(tiling.operation.elements(sizes))
    operands = zip(*touched, strict=True)
    elements = np.array([[np.broadcast_to(x, rows) for x in operand] for operand in operands])
    elements[elements <= 0] = np.nan
    return elements, steps / elements, outside[::-1]


def sample(by: Floats, of: Floats, pick: Callable[..., Any]) -> Floats:
    """Largest or smallest entry among the loops whose other entry is at most 2^t.

    ``by`` and ``of`` are ``(loops, rows)``, NaN where a loop's entry is unknown. ``by`` is
    monotonic through the nest: if a loop is above the threshold, the unknown ones beyond it are
    too. ``pick`` is ``numpy.max`` or ``numpy.min``. Returns logarithms to base 2,
    ``(SAMPLES, rows)``; NaN where no loop is below the threshold, or an unknown one may be.
    """
    neutral = -np.inf if pick is np.max else np.inf
    lost = np.isnan(by).any(axis=0)
    result = np.full((SAMPLES, by.shape[1]), np.nan)
    for t in range(SAMPLES):
        found = pick(np.where(by <= 2.0**t, of, neutral), axis=0)
        known = np.isfinite(found) & ~(lost & ~(by > 2.0**t).any(axis=0))
        result[t] = np.log2(np.where(known, found, np.nan))
    return result
