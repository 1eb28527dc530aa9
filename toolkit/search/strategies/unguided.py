"""Search without a model: uniform random, and exhaustive in the order of the index."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from toolkit.records import Candidate
from toolkit.search.base import Indexed
from toolkit.search.strategy import BaseStrategy, Samples


class RandomSearch(BaseStrategy):
    """Candidates in a uniformly random order, each once.

    A finite space is shuffled once. Any other space is sampled, without candidates that were
    already proposed.
    """

    name = "random"
    source = "AutoTVM, RandomTuner (TVM 0.16, autotvm/tuner/index_based_tuner.py)"

    def setup(self) -> None:
        self._all = self.space.candidates() if self.finite else []
        self._order = self.rng.permutation(len(self._all))
        self._samples = Samples(self.space, self.rng)
        self._next = 0

    def propose(self, n: int) -> Iterable[Candidate]:
        if not self.finite:
            return self._samples.take(n, self.seen)
        batch = self._order[self._next : self._next + n].tolist()
        self._next += len(batch)
        return map(self._all.__getitem__, batch)


class GridSearch(BaseStrategy):
    """Candidates in the order of their configuration index.

    The first knob changes fastest, as in AutoTVM. A space without such an index keeps its own order
    (the recorded one).
    """

    name = "grid"
    source = "AutoTVM, GridSearchTuner (TVM 0.16, autotvm/tuner/index_based_tuner.py)"
    needs_finite = True

    def setup(self) -> None:
        order = self.space.candidates()
        if isinstance(self.space, Indexed):
            order = [order[i] for i in self.space.grid_order().tolist()]
        self._left = iter(order)

    def propose(self, n: int) -> Iterable[Candidate]:
        return islice(self._left, n)
