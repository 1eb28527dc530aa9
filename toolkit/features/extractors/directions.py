"""What a mutation direction is, in columns: its rule, its loop, its value now, where it can go.

They stand beside the candidate's own features in the training of mutation models. A knob is told by
what it does (rule, loop role, levels), not by its name, so that knobs of other templates and
sketches are alike where they do alike.
"""

from __future__ import annotations

import math

import numpy as np

from toolkit.features.base import CandidateGroup, Floats
from toolkit.features.extractors.knobs import knob_role
from toolkit.features.extractors.primitives import nest_of
from toolkit.features.loops.roles import assign_roles
from toolkit.features.task.autotvm_operation import autotvm_operation
from toolkit.features.task.operation import ROLES
from toolkit.records import Knob

KINDS = (
    "tile", "unroll", "vectorize", "parallel", "compute_location", "thread_binding", "categorical",
)  # fmt: skip

MAX_LEVELS = 5


def direction_columns(knob: Knob, parts: Floats, role: str | None) -> dict[str, Floats]:
    """Columns of one knob, one value a candidate; ``parts`` is ``(n, width)``."""
    rows = len(parts)
    result = {
        "dir_rule": np.full(rows, float(KINDS.index(knob.kind))),
        "dir_role": np.full(rows, float(ROLES.index(role)) if role else -1.0),
        "dir_levels": np.full(rows, float(knob.width)),
        "dir_choices": np.full(rows, float(len(knob.choices)) if knob.choices else np.nan),
    }
    if knob.kind != "tile":
        result["dir_value"] = parts[:, 0]
        return result
    known = np.where(parts > 0, parts, np.nan)
    inner = np.prod(known[:, 1:], axis=1)
    extent = inner * known[:, 0]
    whole = np.nanmax(np.where(np.isfinite(extent), extent, -np.inf), initial=1.0)
    result["dir_value"] = inner
    result["dir_extent"] = extent
    result["dir_outermost"] = known[:, 0]
    result["dir_innermost"] = known[:, -1]
    result["dir_share"] = np.log(inner) / np.log(max(whole, 2.0))
    result["dir_divisors"] = np.full(rows, float(_splits(int(whole), knob.width - 1)))
    result["dir_ones"] = (parts[:, 1:] == 1).sum(axis=1).astype(np.float64)
    for level in range(1, min(knob.width, MAX_LEVELS)):
        result[f"dir_l{level}"] = known[:, -level]
    return result


def knob_roles(group: CandidateGroup) -> dict[str, str]:
    """Loop role of each knob that splits a loop of the main stage, by the knob's name."""
    if group.task.format == "autotvm":
        operation = autotvm_operation(group.task)
        template = group.task.workload
        found = {k.name: knob_role(operation, k.name, template) for k in group.sketch.knobs}
        return {name: role for name, role in found.items() if role}
    if group.task.format in ("ansor", "metaschedule"):
        return assign_roles(group.task, nest_of(group))[2]
    return {}


def _splits(extent: int, factors: int) -> int:
    """Number of ways to choose so many inner factors of an extent: the size of a tile's choice."""
    if extent < 1 or extent > 1 << 40:
        return 0
    total, rest, prime = 1, extent, 2
    while prime * prime <= rest:
        power = 0
        while rest % prime == 0:
            rest //= prime
            power += 1
        total *= math.comb(power + factors, factors)
        prime += 1
    return total * (math.comb(1 + factors, factors) if rest > 1 else 1)
