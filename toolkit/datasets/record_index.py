"""Which records a dataset holds: their ids, 8 bytes each."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class RecordIndex:
    """The ids of all records, as few sorted runs of 64-bit numbers."""

    def __init__(self) -> None:
        self._runs: list[NDArray[np.uint64]] = []

    def fresh(self, ids: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Mark ids that are neither known nor earlier in the same array."""
        mask = np.zeros(len(ids), dtype=np.bool_)
        mask[np.unique(ids, return_index=True)[1]] = True
        for run in self._runs:
            place = np.searchsorted(run, ids)
            place[place == len(run)] = 0
            mask &= run[place] != ids
        return mask

    def add(self, ids: NDArray[np.uint64]) -> None:
        """Learn ids; runs are merged so that few remain."""
        if not len(ids):
            return
        run = np.sort(ids)
        while self._runs and len(self._runs[-1]) <= 2 * len(run):
            run = np.sort(np.concatenate([self._runs.pop(), run]), kind="stable")
        self._runs.append(run)

    def remove(self, ids: NDArray[np.uint64]) -> None:
        """Forget ids."""
        runs = [run[~np.isin(run, ids)] for run in self._runs]
        self._runs = [run for run in runs if len(run)]
