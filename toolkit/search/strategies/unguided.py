"""Without a model: uniform random search, and exhaustive search in the order of the index."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from toolkit.errors import SearchError
from toolkit.records import Candidate
from toolkit.search.base import Indexed
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


class GridSearch(BaseStrategy):
    """Candidates in the order of their configuration index.

    AutoTVM counts with the first knob fastest. Where a space has no such index, its own order
    (recorded order) is taken.
    """

    name = "grid"
    source = "AutoTVM, GridSearchTuner (TVM 0.16, autotvm/tuner/index_based_tuner.py)"
    needs_finite = True

    def setup(self) -> None:
        """Sort the space."""
        candidates = self.space.candidates()
        if isinstance(self.space, Indexed):
            candidates = [candidates[i] for i in self.space.grid_order().tolist()]
        self._order = list(candidates)
        self._next = 0

    def propose(self, n: int) -> Iterable[Candidate]:
        """Return the next n in order."""
        batch = self._order[self._next : self._next + n]
        self._next += len(batch)
        return batch
