"""Exhaustive search in the order of the space's index."""

from __future__ import annotations

from collections.abc import Iterable

from toolkit.records import Candidate
from toolkit.search.base import Indexed
from toolkit.search.strategy import BaseStrategy


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
