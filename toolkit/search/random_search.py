"""Uniform random search without replacement."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from toolkit.errors import SearchError
from toolkit.records import Candidate
from toolkit.search.strategy import BaseStrategy, sample_unseen


class RandomSearch(BaseStrategy):
    """Candidates in a uniformly random order, each once.

    A finite space is shuffled once; any other is sampled, and what was proposed is left out.
    """

    name = "random"
    source = "AutoTVM, RandomTuner (TVM 0.16, autotvm/tuner/index_based_tuner.py)"

    def setup(self) -> None:
        """Shuffle a finite space."""
        self._order: NDArray[np.int64] | None = None
        self._next = 0
        if self.space.size is None:
            return
        try:
            self._all = self.space.candidates()
        except SearchError:
            return
        self._order = self.rng.permutation(len(self._all))

    def propose(self, n: int) -> Iterable[Candidate]:
        """Return the next n of the shuffled space, or n fresh samples."""
        if self._order is None:
            return sample_unseen(self.space, self.rng, n, self.seen)
        batch = self._order[self._next : self._next + n].tolist()
        self._next += len(batch)
        return map(self._all.__getitem__, batch)
