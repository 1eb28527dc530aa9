"""The decisions of a MetaSchedule trace and what else each could be.

Works on traces as JSON (``[instructions, decisions]``). Tile sizes and categories are listed
here; compute locations and parallel extents depend on the loops that exist when they are
decided, so TVM's own mutators propose those (``mutate_compute_location.cc``,
``mutate_parallel.cc``). What a decision may become is said in ``toolkit.search.moves.knobs``; the
whole list of factorisations serves enumeration.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from toolkit.records import KnobKind
from toolkit.search.moves.knobs import divisor_moves, divisors

Trace = list[Any]


@dataclass(frozen=True, slots=True)
class Choice:
    """One decision: where it stands in the trace, its kind, its value as the trace has it."""

    position: int
    kind: KnobKind
    value: Any
    limits: tuple[int, ...] = ()


_Slot = tuple[int, KnobKind, tuple[int, ...]]
_SLOTS: dict[int, tuple[list[Any], tuple[_Slot, ...]]] = {}
_MOST_SLOTS = 1024


def choices(trace: Trace) -> list[Choice]:
    """Decisions of a trace in the order in which they are made, postprocessors left out."""
    instructions, decisions = trace
    decided = dict(decisions)
    return [
        Choice(
            position,
            kind,
            instructions[position][1][1] if kind == "parallel" else decided[position],
            limits,
        )
        for position, kind, limits in _slots(instructions)
    ]


def _slots(instructions: list[Any]) -> tuple[_Slot, ...]:
    """Position, kind and limits of each decision: read once of a list that many traces share."""
    known = _SLOTS.get(id(instructions))
    if known is not None and known[0] is instructions:
        return known[1]
    found: list[_Slot] = []
    for position, (kind, _, attributes, outputs) in enumerate(instructions):
        if kind == "EnterPostproc":
            break
        if kind == "SamplePerfectTile":
            found.append((position, "tile", (int(attributes[0]), int(attributes[1]))))
        elif kind == "SampleCategorical":
            values = tuple(int(value) for value in attributes[0])
            found.append((position, _categorical_role(instructions, outputs[0]), values))
        elif kind == "SampleComputeLocation":
            found.append((position, "compute_location", ()))
        elif kind == "Annotate" and attributes == ["meta_schedule.parallel"]:
            found.append((position, "parallel", ()))
    if len(_SLOTS) >= _MOST_SLOTS:
        _SLOTS.clear()
    slots = tuple(found)
    # The list is kept, so that its id stays its own.
    _SLOTS[id(instructions)] = (instructions, slots)
    return slots


def _categorical_role(instructions: list[Any], variable: str) -> KnobKind:
    for kind, inputs, attributes, _ in instructions:
        if kind == "Annotate" and inputs[1] == variable:
            if "unroll" in attributes[0]:
                return "unroll"
            if attributes[0] == "meta_schedule.cooperative_fetch":
                return "vectorize"
    return "categorical"


@lru_cache(maxsize=4096)
def factorisations(extent: int, levels: int, max_innermost: int) -> tuple[tuple[int, ...], ...]:
    """All ordered factorisations, outermost first, the innermost not above its limit."""
    if levels == 1:
        return ((extent,),) if extent <= max_innermost else ()
    found: list[tuple[int, ...]] = []
    for first in divisors(extent):
        if levels == 2:
            if extent // first <= max_innermost:
                found.append((first, extent // first))
        else:
            rest = factorisations(extent // first, levels - 1, max_innermost)
            found.extend((first, *tail) for tail in rest)
    return tuple(found)


def all_values(choice: Choice) -> Iterator[Any]:
    """Every value of a tile or a category; compute locations as far as a loop nest can go."""
    if choice.kind == "tile":
        for factors in factorisations(math.prod(choice.value), choice.limits[0], choice.limits[1]):
            yield list(factors)
    elif choice.kind == "compute_location":
        yield from range(-2, 24)
    elif choice.kind == "parallel":
        yield choice.value
    else:
        yield from range(len(choice.limits))


def other_values(choice: Choice) -> list[Any]:
    """Values that a mutation may give: ``one-divisor`` of ``toolkit.search.moves.knobs``."""
    if choice.kind == "tile":
        return divisor_moves(choice.value, choice.limits[1])
    return [value for value in all_values(choice) if value != choice.value]


def with_value(trace: Trace, choice: Choice, value: Any) -> Trace:
    """A copy of the trace with one decision changed, postprocessors cut off."""
    instructions, decisions = without_postprocessors(trace)
    if choice.kind == "parallel":
        kind, inputs, attributes, outputs = instructions[choice.position]
        instructions = list(instructions)
        instructions[choice.position] = [kind, [inputs[0], value], attributes, outputs]
        return [instructions, decisions]
    return [instructions, [[p, value if p == choice.position else v] for p, v in decisions]]


def without_postprocessors(trace: Trace) -> Trace:
    """The trace up to ``EnterPostproc``: what was chosen. It may share its lists with the trace."""
    instructions, decisions = trace
    for position, instruction in enumerate(instructions):
        if instruction[0] == "EnterPostproc":
            return [instructions[:position], [d for d in decisions if d[0] < position]]
    return [instructions, decisions]


def redrawn(trace: Trace, rng: np.random.Generator) -> Trace:
    """A copy with every tile and category drawn anew, uniformly over its values.

    Compute locations and parallel extents stay: what they can be depends on the loops.
    """
    instructions, decisions = without_postprocessors(trace)
    drawn: dict[int, Any] = {}
    for choice in choices([instructions, decisions]):
        if choice.kind == "tile":
            options = factorisations(math.prod(choice.value), choice.limits[0], choice.limits[1])
            drawn[choice.position] = list(options[int(rng.integers(len(options)))])
        elif choice.kind not in ("compute_location", "parallel"):
            drawn[choice.position] = int(rng.integers(len(choice.limits)))
    return [instructions, [[p, drawn.get(p, value)] for p, value in decisions]]
