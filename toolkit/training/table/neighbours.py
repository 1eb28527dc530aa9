"""Gains of mutation directions from recorded neighbours, for all candidates of a group at once.

Two candidates are neighbours in a knob if only that knob differs. They are found by hashing every
candidate with that knob left out and sorting: O(knobs · n log n), no pairs are compared, so a
million records take seconds. The gain of a direction is the candidate's log latency minus the mean
log latency of its recorded neighbours there: positive is faster. Directions without a recorded
neighbour are NaN, not zero; failed candidates are no neighbours.

To choose between a candidate's directions, a model only has to order neighbours correctly; it may
be wrong by any amount about the candidate itself, or the task. The objective ``neighbours``
reflects this: squared errors of differences inside each set, and a small share of the squared
error of each row, which ties the sets together. A set of neighbours of one knob is a clique of the
graph that joins candidates with one differing decision, and the sum over its pairs follows from its
mean, so the cost is linear in rows and knobs.

Where no neighbours are recorded, ``other_values`` lists the other values that a knob could take.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from toolkit.features.base import CandidateGroup
from toolkit.features.extractors.directions import LARGEST_EXTENT, count_splits, primes
from toolkit.records import Knob, Sketch, iter_ways
from toolkit.search.graph import knob_hash, knob_order
from toolkit.training.arrays import Floats, Ints

ANY, UP, DOWN = 0, 1, 2

LEVEL_SHARE = 0.1
"""Weight of the ordinary squared error beside that of differences."""


def other_decisions(sketch: Sketch, decisions: Ints) -> list[NDArray[np.uint64]]:
    """Return for each knob the hashes of all other decisions; neighbours in it share their hash."""
    hashes = [knob_hash(knob, decisions) for knob in sketch.knobs]
    whole = np.sum(hashes, axis=0, dtype=np.uint64)
    return [whole - part for part in hashes]


@dataclass(frozen=True)
class Gains:
    """Gains of mutating each candidate in each direction.

    ``gain`` and ``count`` are ``(3, n, knobs)``: mean gain over the recorded neighbours and how
    many there were; first axis ``ANY`` (to any other value), ``UP``, ``DOWN`` (only knobs that
    have an order).
    """

    gain: Floats
    count: NDArray[np.int32]


def direction_gains(sketch: Sketch, decisions: Ints, latency_s: Floats) -> Gains:
    """Compute the gains of one task and sketch; ``latency_s`` is NaN for failed candidates."""
    shape = (3, len(decisions), len(sketch.knobs))
    gain, count = np.full(shape, np.nan), np.zeros(shape, dtype=np.int32)
    good = np.flatnonzero(np.isfinite(latency_s))
    if len(good) < 2:
        return Gains(gain, count)
    log, decided = np.log(latency_s[good]), decisions[good]
    rests = other_decisions(sketch, decided)
    for k, (knob, rest) in enumerate(zip(sketch.knobs, rests, strict=True)):
        _, rank = np.unique(knob_order(knob, decided), axis=0, return_inverse=True)
        order = np.lexsort((rank.reshape(-1), rest))
        grouped, rows, value = rest[order], good[order], log[order]
        starts = np.flatnonzero(np.concatenate(([True], grouped[1:] != grouped[:-1])))
        sizes = np.diff(np.append(starts, len(order)))
        first, size = np.repeat(starts, sizes), np.repeat(sizes, sizes)
        place = np.arange(len(order)) - first
        running = np.cumsum(value) - value  # sum of all before
        before = running - running[first]
        total = np.repeat(np.add.reduceat(value, starts), sizes)
        found = {ANY: (total - value, size - 1)}
        if any(iter_ways(knob)):
            found[UP] = total - before - value, size - 1 - place
            found[DOWN] = before, place
        for way, (summed, number) in found.items():
            has = number > 0
            gain[way, rows[has], k] = value[has] - summed[has] / number[has]
            count[way, rows, k] = number
    return Gains(gain, count)


@dataclass(frozen=True)
class Cliques:
    """Neighbour sets over numbered rows.

    ``row`` and ``clique`` have one entry per membership: a row, and its set. A row is in at most
    one set per knob; sets have two or more rows. ``size`` is the number of rows of each set.
    """

    row: Ints
    clique: Ints
    size: Ints

    def excess(self, values: Floats) -> Floats:
        """Return each membership's value minus the mean of its set."""
        own = values[self.row]
        mean = np.bincount(self.clique, own, len(self.size)) / np.maximum(self.size, 1)
        return np.asarray(own - mean[self.clique])


def find_cliques(groups: Iterable[tuple[int, CandidateGroup]], rows: Ints) -> Cliques:
    """Find the neighbour sets among some rows of a table; memberships hold places in ``rows``.

    ``groups`` gives each group with its first row in the table; ``rows`` ascends.
    """
    none = np.zeros(0, dtype=np.int64)
    found, total = [(none, none, none)], 0
    for start, group in groups:
        low, high = np.searchsorted(rows, (start, start + len(group)))
        if high - low < 2:
            continue
        for rest in other_decisions(group.sketch, group.decisions[rows[low:high] - start]):
            _, number, count = np.unique(rest, return_inverse=True, return_counts=True)
            number = number.reshape(-1)
            several = np.flatnonzero(count[number] > 1)
            used, dense = np.unique(number[several], return_inverse=True)
            found.append((low + several, total + dense.reshape(-1), count[used]))
            total += len(used)
    return Cliques(*(np.concatenate(parts) for parts in zip(*found, strict=True)))


def neighbour_loss(
    predicted: Floats, target: Floats, weight: Floats, cliques: Cliques
) -> tuple[Floats, Floats]:
    """Gradient and Hessian of the objective ``neighbours``, one value per row.

    The loss is half the sum of squared excess errors over all sets, plus ``LEVEL_SHARE`` times half
    the squared error of each row. Both use the rows' weights. The Hessian is its diagonal.
    """
    error = predicted - target
    own, level = weight[cliques.row], LEVEL_SHARE * weight
    gradient = np.bincount(cliques.row, own * cliques.excess(error), len(target))
    curvature = np.bincount(cliques.row, own * (1 - 1 / cliques.size[cliques.clique]), len(target))
    return gradient + level * error, curvature + level


MAX_VALUES = 16


def other_values(knob: Knob, decisions: Ints) -> list[Ints]:
    """Return decision vectors that differ from the given one in this knob alone, at most 16.

    Tiles keep the product of all parts (the loop's extent). There are none if the extent is
    unknown, or if the knob has no known choices.
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
    """Return the ordered factorisations of an extent; if there are many, a fixed random sample."""
    factors = list(primes(extent))
    if parts ** len(factors) <= limit:
        found = {(1,) * parts}
        for prime in factors:
            found = {
                (*value[:place], value[place] * prime, *value[place + 1 :])
                for value in found
                for place in range(parts)
            }
        return tuple(sorted(found))
    drawn = set()
    draws = np.random.default_rng(extent).integers(0, parts, size=(limit // 8, len(factors)))
    for places in draws.tolist():
        value = [1] * parts
        for place, prime in zip(places, factors, strict=True):
            value[place] *= prime
        drawn.add(tuple(value))
    return tuple(sorted(drawn))


def count_values(knob: Knob, value: Ints) -> float:
    """Number of values that a knob can take, the given one included; infinite where unknown.

    ``value`` is the knob's own parts. A tile can take every ordered factorisation of its extent.
    """
    if knob.kind == "tile":
        return float(count_splits(int(np.prod(value, dtype=np.float64)), knob.width)) or np.inf
    if knob.choices is not None and knob.width == 1:
        return float(len(knob.choices))
    return np.inf
