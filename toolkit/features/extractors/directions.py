"""Columns of a mutation direction: its rule, its loop, its current value, where it can go.

Mutation models see them in addition to the candidate's own features. A knob is described by what it
does (rule, loop role, levels), not by its name, so that knobs of different templates and sketches
that do the same look the same.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

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

LARGEST_EXTENT = 1 << 40
"""Larger extents are not factorised."""


def direction_columns(knob: Knob, parts: Floats, role: str | None) -> dict[str, Floats]:
    """Columns of one knob, one value per candidate; ``parts`` is ``(n, width)``."""
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
    result["dir_divisors"] = np.full(rows, float(count_splits(int(whole), knob.width)))
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


def count_splits(extent: int, parts: int) -> int:
    """Number of ordered factorisations of an extent; 0 if it is below 1 or too large."""
    if not 1 <= extent <= LARGEST_EXTENT:
        return 0
    powers = Counter(primes(extent)).values()
    return math.prod(math.comb(power + parts - 1, parts - 1) for power in powers)


def primes(extent: int) -> Iterator[int]:
    """Prime factors of an extent, ascending, each as often as it divides it."""
    prime = 2
    while prime * prime <= extent:
        while extent % prime == 0:
            yield prime
            extent //= prime
        prime += 1
    if extent > 1:
        yield extent
