"""The decisions of a MetaSchedule trace, and the other values that each can have.

Traces are JSON (``[instructions, decisions]``). Values of tile sizes and categories are listed
here. Compute locations and parallel extents depend on the loops that exist at their instruction,
so TVM's own mutators propose them (``mutate_compute_location.cc``, ``mutate_parallel.cc``).
Mutations follow ``toolkit.search.moves.knobs``; the list of all factorisations is for enumeration.
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
    """One decision: its position in the trace, its kind, and its value in the trace's form."""

    position: int
    kind: KnobKind
    value: Any
    limits: tuple[int, ...] = ()


_Slot = tuple[int, KnobKind, tuple[int, ...]]
_SLOTS: dict[int, tuple[list[Any], tuple[_Slot, ...]]] = {}
_MOST_SLOTS = 1024


def choices(trace: Trace) -> list[Choice]:
    """Return the decisions of a trace in their order, without those of postprocessors."""
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
    """Return position, kind and limits of each decision; cached, as many traces share a list."""
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
    # The list is kept alive, so that its id stays unique.
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
    """Return all ordered factorisations, outermost first, within the limit of the innermost."""
    if levels == 1:
        return ((extent,),) if extent <= max_innermost else ()
    return tuple(
        (first, *rest)
        for first in divisors(extent)
        for rest in factorisations(extent // first, levels - 1, max_innermost)
    )


def all_values(choice: Choice) -> Iterator[Any]:
    """Yield all values of a tile or category; all compute locations that a loop nest can have."""
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
    """Return the values of a mutation: ``one-divisor`` of ``toolkit.search.moves.knobs``."""
    if choice.kind == "tile":
        return divisor_moves(choice.value, choice.limits[1])
    return [value for value in all_values(choice) if value != choice.value]


def with_value(trace: Trace, choice: Choice, value: Any) -> Trace:
    """Return a copy of the trace with one decision changed, without postprocessors."""
    instructions, decisions = without_postprocessors(trace)
    if choice.kind == "parallel":
        kind, inputs, attributes, outputs = instructions[choice.position]
        instructions = list(instructions)
        instructions[choice.position] = [kind, [inputs[0], value], attributes, outputs]
        return [instructions, decisions]
    return [instructions, [[p, value if p == choice.position else v] for p, v in decisions]]


def without_postprocessors(trace: Trace) -> Trace:
    """Return the trace up to ``EnterPostproc``. It may share its lists with ``trace``."""
    instructions, decisions = trace
    for position, instruction in enumerate(instructions):
        if instruction[0] == "EnterPostproc":
            return [instructions[:position], [d for d in decisions if d[0] < position]]
    return [instructions, decisions]


def redrawn(trace: Trace, rng: np.random.Generator) -> Trace:
    """Return a copy in which every tile and category is drawn again, uniformly.

    Compute locations and parallel extents stay: their possible values depend on the loops.
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
