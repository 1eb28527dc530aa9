"""Rules of each kind of knob: order, mutation and crossover.

The rules are the same for records and devices; a space only says which values it has.

- *Order*. Tiles are sorted by the product of their free parts (the inner extent), then by the
  parts, outermost first. Every other kind is sorted by the place among its choices if they are
  known, else by value. Only some kinds have an up and a down (``toolkit.records.iter_ways``).
- *Mutation*. A ``Kernel`` says what one step may do to a tile: ``any-value`` takes any other
  value (AutoTVM, Ansor), ``one-divisor`` moves a divisor from one level to another
  (``mutate_tile_size.cc`` of MetaSchedule). Every other kind takes any other value with both.
- *Crossover*. At one point: the first parent's knobs before it, the second parent's from it on.

Each rule has an object form, for a space whose candidates are made one by one, and an array form,
for one that is listed; a property test checks that both agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from toolkit.records import Knob

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
FloatArray = NDArray[np.float64]

Kernel = Literal["any-value", "one-divisor"]


def knob_order(knob: Knob, decisions: IntArray) -> IntArray:
    """Sort keys ``(n, 1 + parts)`` of candidates ``(n, width)`` by one knob's value."""
    parts = decisions[:, knob.free]
    first = parts[:, 0]
    if knob.kind == "tile":
        first = parts.prod(axis=1)
    elif knob.choices is not None and knob.width == 1:
        place = {value: i for i, value in enumerate(knob.choices)}
        ranks = [place.get(value, len(place)) for value in first.tolist()]
        first = np.array(ranks, dtype=np.int64)
    return np.column_stack([first, parts])


def way_between(
    knob: Knob, before: Sequence[int], after: Sequence[int]
) -> Literal["up", "down"] | None:
    """Way from one candidate's decisions to another's in a knob; ``None`` for the same value."""
    low, high = knob_order(knob, np.array([before, after], dtype=np.int64)).tolist()
    return None if low == high else "up" if low < high else "down"


@lru_cache(maxsize=4096)
def divisors(number: int) -> tuple[int, ...]:
    """All divisors, ascending."""
    small = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return tuple(sorted({*small, *(number // d for d in small)}))


def divisor_moves(levels: Sequence[int], innermost: int) -> list[list[int]]:
    """All tiles that one ``one-divisor`` step makes from a tile, outermost factor first.

    ``innermost`` is the largest factor that the last level may have.
    """
    found = []
    for source, factor in enumerate(levels):
        for divisor in divisors(factor)[1:]:
            for target in range(len(levels)):
                if target == source:
                    continue
                moved = list(levels)
                moved[source] //= divisor
                moved[target] *= divisor
                if moved[-1] <= innermost:
                    found.append(moved)
    return found


def can_become(knob: Knob, before: IntArray, after: IntArray, kernel: Kernel) -> BoolArray:
    """Whether one mutation leads from each row of ``before`` to that of ``after``.

    Rows are free parts, ``(n, parts)``: without the outermost factor of a tile. If a single part
    changes, the other half of the step is in the outermost factor.
    """
    changed = before != after
    differs: BoolArray = changed.any(axis=1)
    if kernel == "any-value" or knob.kind != "tile":
        return differs
    larger, smaller = np.maximum(before, after), np.maximum(np.minimum(before, after), 1)
    divides = (larger % smaller == 0).all(axis=1)
    count = changed.sum(axis=1)
    exchanged = (count == 2) & (before.prod(axis=1) == after.prod(axis=1))
    return np.asarray(divides & ((count == 1) | exchanged))


def crossed(
    knobs: Sequence[Knob], first: Sequence[int], second: Sequence[int], point: int
) -> list[int]:
    """Cross two candidates of one sketch: the second's decisions from knob ``point`` on."""
    child = list(first)
    for knob in knobs[point:]:
        part = slice(knob.offset, knob.offset + knob.width)
        child[part] = second[part]
    return child


def second_parent(knobs: int, points: IntArray) -> BoolArray:
    """Array form of ``crossed``: which knobs come from the second parent, ``(n, knobs)``."""
    return np.asarray(np.arange(knobs) >= points[:, None])
