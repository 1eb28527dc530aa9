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

Floats = NDArray[np.float64]

ANY, UP, DOWN = 0, 1, 2


@dataclass(frozen=True)
class Gains:
    """What mutating each candidate in each direction gained.

    Attributes
    ----------
    gain, count
        ``(3, n, knobs)``: mean gain over the recorded neighbours and how many there were; first
        axis ``ANY`` (to any other value), ``UP``, ``DOWN`` (only knobs that have an order).
    best
        ``(n, knobs)``: gain to the best recorded value of the knob.
    """

    gain: Floats
    count: NDArray[np.int32]
    best: Floats


def direction_gains(sketch: Sketch, decisions: NDArray[np.int64], latency_s: Floats) -> Gains:
    """Compute the gains of one task and sketch; ``latency_s`` is NaN for failed candidates."""
    n, knobs = len(decisions), len(sketch.knobs)
    gain = np.full((3, n, knobs), np.nan)
    count = np.zeros((3, n, knobs), dtype=np.int32)
    best = np.full((n, knobs), np.nan)
    good = np.flatnonzero(np.isfinite(latency_s))
    if len(good) < 2:
        return Gains(gain, count, best)
    log = np.log(latency_s[good])
    decided = decisions[good]
    hashes = [knob_hash(knob, decided) for knob in sketch.knobs]
    whole = np.sum(hashes, axis=0, dtype=np.uint64) if hashes else np.zeros(len(good), np.uint64)
    for k, knob in enumerate(sketch.knobs):
        rest = whole - hashes[k]
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
        fastest = np.repeat(np.minimum.reduceat(value, starts), sizes)
        sums = {ANY: total - value}
        counts = {ANY: size - 1}
        if any(True for _ in iter_ways(knob)):
            sums[UP], counts[UP] = total - before - value, size - 1 - place
            sums[DOWN], counts[DOWN] = before, place
        for way, summed in sums.items():
            number = counts[way]
            has = number > 0
            gain[way, rows[has], k] = value[has] - summed[has] / number[has]
            count[way, rows, k] = number
        several = size > 1
        best[rows[several], k] = (value - fastest)[several]
    return Gains(gain, count, best)
