"""Search with a model of other tasks alone, in the order of its predictions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from pydantic import Field, NonNegativeInt, PositiveInt

from toolkit.records import Candidate
from toolkit.search.base import Picker
from toolkit.search.strategy import BaseStrategy, StrategyOptions, sample_unseen, shuffled, take


class ModelRankedOptions(StrategyOptions):
    """Options of model-ranked search."""

    samples: PositiveInt = Field(
        default=2000,
        description="candidates to sample and rank if the space cannot be listed",
    )
    steps: NonNegativeInt = Field(
        default=4,
        description="rounds of hill climbing on the scores, from the best samples, if the space "
        "cannot be listed",
    )


class ModelRanked(BaseStrategy):
    """Candidates in a model's order of preference; the model learns nothing during the run.

    A finite space is ranked once. Any other space is sampled, and the best samples are improved by
    one-decision steps that the model prefers. When all of these are measured, the space is sampled
    again.
    """

    name = "model-ranked"
    source = "Chen et al. 2018 (AutoTVM), section 4: the global model of a transfer, alone"
    Options = ModelRankedOptions
    options: ModelRankedOptions
    needs_scorer = True

    def setup(self) -> None:
        self._plan = self._ranked(self.space.candidates()) if self.finite else []

    def _ranked(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        pool = shuffled(self.rng, candidates)
        assert self.scorer is not None
        picker = self.scorer.preference if isinstance(self.scorer, Picker) else self.scorer.score
        scores = np.asarray(picker(self.space, pool), dtype=np.float64)
        # NaN would sort first: what the model cannot score comes last.
        order = np.argsort(-np.nan_to_num(scores, nan=-np.inf), kind="stable")
        return [pool[i] for i in order.tolist()]

    def _sampled(self) -> list[Candidate]:
        o = self.options
        fresh = sample_unseen(self.space, self.rng, o.samples, self.seen)
        found = {c.candidate_id: c for c in fresh}
        for _ in range(o.steps):
            for candidate in self._ranked(list(found.values()))[: max(1, o.samples // 20)]:
                for direction in self.space.directions(candidate):
                    moved = self.space.mutate(candidate, direction, self.rng)
                    if moved is not None and moved.candidate_id not in self.seen:
                        found.setdefault(moved.candidate_id, moved)
        return self._ranked(list(found.values()))

    def propose(self, n: int) -> Iterable[Candidate]:
        if not self._plan and not self.finite:
            self._plan = self._sampled()
        return take(self._plan, n)
