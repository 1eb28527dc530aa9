"""Which records a dataset holds: their ids, 8 bytes each.

All 64 bits of every id are kept, so that two records are never confused. New ids are held in a few
sorted runs. When there are many, they move into buckets by their highest bits, one bucket after
the other, so that the index is never copied as a whole. 52 million records (TenSet) take 416 MB.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

BITS = 6
"""Ids are kept in 2**BITS buckets, by their highest bits (ids are hashes: buckets fill evenly)."""

RECENT = 2**20
"""Number of new ids at which they move into the buckets."""

Ids = NDArray[np.uint64]

_LOWS = np.arange(2**BITS, dtype=np.uint64) << np.uint64(64 - BITS)


class RecordIndex:
    """The ids of all records, as sorted arrays of 64-bit numbers."""

    def __init__(self) -> None:
        self._recent: list[Ids] = []
        self._buckets: list[Ids] = [np.zeros(0, dtype=np.uint64) for _ in _LOWS]

    def fresh(self, ids: Ids) -> NDArray[np.bool_]:
        """Mark ids that are neither known nor earlier in the same array."""
        order = np.argsort(ids)
        found = ids[order]
        if (found[1:] == found[:-1]).any():  # of equal ids the first is the fresh one
            order = np.argsort(ids, kind="stable")
        # A search for ascending numbers is several times faster.
        new = np.ones(len(ids), dtype=np.bool_)
        new[1:] = found[1:] != found[:-1]
        for run in self._recent:
            new &= ~_among(found, run)
        for number, begin, end in _cuts(found):
            new[begin:end] &= ~_among(found[begin:end], self._buckets[number])
        mask = np.empty(len(ids), dtype=np.bool_)
        mask[order] = new
        return mask

    def add(self, ids: Ids) -> None:
        """Add ids that are not known yet; runs are merged so that few remain."""
        if not len(ids):
            return
        run = np.sort(ids)
        while self._recent and len(self._recent[-1]) <= 2 * len(run):
            run = _merged(self._recent.pop(), run)
        self._recent.append(run)
        if sum(map(len, self._recent)) >= RECENT:
            run, self._recent = _merged(*self._recent), []
            for number, begin, end in _cuts(run):
                self._buckets[number] = _merged(self._buckets[number], run[begin:end])

    def remove(self, ids: Ids) -> None:
        """Forget ids."""
        gone = np.sort(ids)
        left = [run[~_among(run, gone)] for run in self._recent]
        self._recent = [run for run in left if len(run)]
        for number, begin, end in _cuts(gone):
            bucket = self._buckets[number]
            self._buckets[number] = bucket[~_among(bucket, gone[begin:end])]


def _cuts(run: Ids) -> Iterator[tuple[int, int, int]]:
    """Yield bucket, begin and end of a sorted array's ids, for each bucket that has some."""
    begins = [*np.searchsorted(run, _LOWS).tolist(), len(run)]
    for number, (begin, end) in enumerate(pairwise(begins)):
        if begin < end:
            yield number, begin, end


def _merged(*runs: Ids) -> Ids:
    """Merge sorted arrays (a stable sort is fast on sorted stretches)."""
    return np.sort(np.concatenate(runs), kind="stable")


def _among(ids: Ids, run: Ids) -> NDArray[np.bool_]:
    """Which sorted ids are in a sorted array."""
    if not len(run):
        return np.zeros(len(ids), dtype=np.bool_)
    place = np.searchsorted(run, ids)
    place[place == len(run)] = 0
    found: NDArray[np.bool_] = run[place] == ids
    return found
