"""Other values that a knob could take: what a mutation may lead to where no record says it."""

from __future__ import annotations

from functools import lru_cache
from math import comb

import numpy as np

from toolkit.records import Knob
from toolkit.training.arrays import Ints

MAX_VALUES = 16
LARGEST_EXTENT = 1 << 40


def other_values(knob: Knob, decisions: Ints) -> list[Ints]:
    """Whole decision vectors that differ from the given one in this knob alone, at most 16.

    Tiles keep the product of all parts (the loop's extent); where the extent is unknown, and for
    knobs without known choices, there are none.
    """
    here = decisions[knob.offset : knob.offset + knob.width]
    if knob.kind == "tile":
        extent = int(np.prod(here, dtype=np.float64))
        if not 2 <= extent <= LARGEST_EXTENT:
            return []
        found = _factorisations(extent, knob.width)
    elif knob.choices is not None and knob.width == 1:
        found = tuple((choice,) for choice in knob.choices)
    else:
        return []
    # The first part of a tile follows from the others.
    told = slice(1 if knob.width > 1 else 0, None)
    current = tuple(here.tolist())
    others = [value for value in found if value[told] != current[told]]
    if len(others) > MAX_VALUES:
        step = len(others) / MAX_VALUES
        others = [others[int(i * step)] for i in range(MAX_VALUES)]
    result = []
    for value in others:
        changed = decisions.copy()
        changed[knob.offset : knob.offset + knob.width] = value
        result.append(changed)
    return result


@lru_cache(maxsize=4096)
def _factorisations(extent: int, parts: int, limit: int = 4096) -> tuple[tuple[int, ...], ...]:
    """Ordered factorisations of an extent, at most ``limit`` drawn with a fixed seed."""
    primes = _primes(extent)
    if parts ** len(primes) <= limit:
        found = {(1,) * parts}
        for prime in primes:
            found = {
                (*value[:place], value[place] * prime, *value[place + 1 :])
                for value in found
                for place in range(parts)
            }
        return tuple(sorted(found))
    drawn = set()
    draws = np.random.default_rng(extent).integers(0, parts, size=(limit // 8, len(primes)))
    for places in draws.tolist():
        value = [1] * parts
        for place, prime in zip(places, primes, strict=True):
            value[place] *= prime
        drawn.add(tuple(value))
    return tuple(sorted(drawn))


def _primes(extent: int) -> list[int]:
    found, prime = [], 2
    while prime * prime <= extent:
        while extent % prime == 0:
            found.append(prime)
            extent //= prime
        prime += 1
    return [*found, extent] if extent > 1 else found


def count_values(knob: Knob, value: Ints) -> float:
    """Number of values that a knob can take, the given one included; infinite: not known.

    ``value`` is the knob's own parts. A tile can take every ordered factorisation of its extent.
    """
    if knob.kind == "tile":
        extent = int(np.prod(value, dtype=np.float64))
        if not 1 <= extent <= LARGEST_EXTENT:
            return np.inf
        primes, total = _primes(extent), 1
        for prime in set(primes):
            total *= comb(primes.count(prime) + knob.width - 1, knob.width - 1)
        return float(total)
    if knob.choices is not None and knob.width == 1:
        return float(len(knob.choices))
    return np.inf
