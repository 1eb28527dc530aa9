"""Gains of mutation directions from recorded neighbours, for all candidates of a group at once.

Two candidates are neighbours in a knob when all else agrees. They are found by hashing every
candidate with that knob left out and sorting: O(knobs · n log n), no pairs are compared, so a
million records take seconds. The gain of a direction is the candidate's log latency minus the mean
log latency of its recorded neighbours there: positive is faster. Directions without a recorded
neighbour are NaN, not zero; failed candidates are no neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from toolkit.records import Sketch, iter_ways
from toolkit.search.graph import knob_hash, knob_order
from toolkit.training.arrays import Floats, Ints

ANY, UP, DOWN = 0, 1, 2


def other_decisions(sketch: Sketch, decisions: Ints) -> list[NDArray[np.uint64]]:
    """Hashes of all decisions but one knob's, by knob: neighbours in a knob have theirs alike."""
    hashes = [knob_hash(knob, decisions) for knob in sketch.knobs]
    whole = np.sum(hashes, axis=0, dtype=np.uint64)
    return [whole - part for part in hashes]


@dataclass(frozen=True)
class Gains:
    """What mutating each candidate in each direction gained.

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
