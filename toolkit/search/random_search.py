"""Uniform random search without replacement."""

from __future__ import annotations

from collections.abc import Iterable

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
        self._order: list[Candidate] | None = None
        self._next = 0
        if self.space.size is None:
            return
        try:
            candidates = self.space.candidates()
        except SearchError:
            return
        self._order = [candidates[i] for i in self.rng.permutation(len(candidates)).tolist()]

    def propose(self, n: int) -> Iterable[Candidate]:
        """Return the next n of the shuffled space, or n fresh samples."""
        if self._order is None:
            return sample_unseen(self.space, self.rng, n, self.seen)
        batch = self._order[self._next : self._next + n]
        self._next += len(batch)
        return batch
