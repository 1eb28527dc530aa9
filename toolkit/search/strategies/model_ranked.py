"""A model of other tasks alone: candidates in the order of its predictions."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from pydantic import Field

from toolkit.errors import SearchError
from toolkit.records import Candidate
from toolkit.search.base import Picker
from toolkit.search.strategy import BaseStrategy, StrategyOptions, sample_unseen


class ModelRankedOptions(StrategyOptions):
    """Options of model-ranked search."""

    samples: int = Field(
        default=2000,
        ge=1,
        description="candidates that are sampled and ranked where a space cannot be listed",
    )
    steps: int = Field(
        default=4,
        ge=0,
        description="rounds of hill climbing on the scores from the best sampled ones, where a "
        "space cannot be listed",
    )


class ModelRanked(BaseStrategy):
    """In the order that the model would measure in; it learns nothing during the run.

    A finite space is ranked once. Any other is sampled, the best are improved by one-decision
    steps that the model likes, and when all are used up it is sampled again.
    """

    name = "model-ranked"
    source = "Chen et al. 2018 (AutoTVM), section 4: the global model of a transfer, alone"
    Options = ModelRankedOptions
    options: ModelRankedOptions
    needs_scorer = True

    def setup(self) -> None:
        """Rank a finite space."""
        self._queue: list[Candidate] = []
        self._finite = self.space.size is not None
        if self._finite:
            try:
                self._queue = self._ranked(self.space.candidates())
            except SearchError:
                self._finite = False

    def _ranked(self, candidates: Iterable[Candidate]) -> list[Candidate]:
        listed = list(candidates)
        # Equal scores must not come in recorded order: a log's order knows more than a model.
        pool = [listed[i] for i in self.rng.permutation(len(listed)).tolist()]
        assert self.scorer is not None
        picker = self.scorer.preference if isinstance(self.scorer, Picker) else self.scorer.score
        scores = np.asarray(picker(self.space, pool), dtype=np.float64)
        # NaN would sort first: what the model cannot score comes last.
        order = np.argsort(-np.nan_to_num(scores, nan=-np.inf), kind="stable")
        return [pool[i] for i in order.tolist()]

    def _refill(self) -> None:
        o = self.options
        found = {
            c.candidate_id: c for c in sample_unseen(self.space, self.rng, o.samples, self.seen)
        }
        for _ in range(o.steps):
            for candidate in self._ranked(found.values())[: max(1, o.samples // 20)]:
                for direction in self.space.directions(candidate):
                    moved = self.space.mutate(candidate, direction, self.rng)
                    if moved is not None and moved.candidate_id not in self.seen:
                        found.setdefault(moved.candidate_id, moved)
        self._queue = self._ranked(found.values())

    def propose(self, n: int) -> Iterable[Candidate]:
        """Return the n best predicted that are left."""
        if not self._queue and not self._finite:
            self._refill()
        batch, self._queue = self._queue[:n], self._queue[n:]
        return batch
