"""Ansor's evolutionary search: mutate many programs over a model's scores, measure the best.

Zheng et al. 2020, "Ansor", section 5; constants from TVM 0.16
(``auto_scheduler/search_policy/sketch_policy.cc`` and ``sketch_policy.py``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from toolkit.records import Candidate, Trial
from toolkit.search.models.cost_model import CostModelOptions, OnlineCostModel
from toolkit.search.models.history import History
from toolkit.search.moves.movers import ANSOR_WEIGHTS, Mover, WeightedMover
from toolkit.search.moves.walk import make_walk
from toolkit.search.strategy import BaseStrategy, StrategyOptions, sample_unseen


class EvolutionaryOptions(StrategyOptions):
    """Options of evolutionary search; the defaults are Ansor's."""

    round_size: int = Field(default=64, ge=1, description="measurements of a round")
    population: int = Field(default=2048, ge=2)
    iterations: int = Field(default=4, ge=0, description="generations in a round")
    mutation: float = Field(default=0.85, ge=0, le=1, description="probability of mutation")
    sampled: int = Field(
        default=50, ge=1, description="programs that are sampled anew in every round, at least"
    )
    measured: float = Field(
        default=0.2, ge=0, le=1, description="share of the population from the fastest measured"
    )
    epsilon: float = Field(default=0.05, ge=0, le=1, description="share of random measurements")
    weights: dict[str, float] = Field(
        default_factory=lambda: dict(ANSOR_WEIGHTS), description="weight of each mutation rule"
    )
    model: CostModelOptions = CostModelOptions(loss="squared", depth=10, learning_rate=0.2)


class Evolutionary(BaseStrategy):
    """Sample programs, add the fastest measured, mutate over a model's scores, measure the best.

    The sketch of each sampled program is drawn uniformly, as in Ansor. The model is trained on
    relative throughput, fast programs weighing more. Nothing is scored before the first round, in
    which programs are therefore random.
    """

    name = "evolutionary"
    source = "Zheng et al. 2020 (Ansor), section 5; TVM 0.16 auto_scheduler sketch_policy.cc"
    Options = EvolutionaryOptions
    options: EvolutionaryOptions

    def setup(self) -> None:
        """Start without a model."""
        self._history = History(self.space)
        self._walk = make_walk(self.space)
        self._model = OnlineCostModel(self.options.model, int(self.rng.integers(2**31)))
        self._mover = self.make_mover()
        self._plan: list[Candidate] = []
        self._round = 0

    def make_mover(self) -> Mover:
        """Say how programs are mutated."""
        return WeightedMover(self.space, self.options.weights)

    def choose_sketches(self, n: int) -> list[str]:
        """Draw the sketches of n new programs, uniformly."""
        ids = [sketch.sketch_id for sketch in self.space.sketches]
        return [ids[i] for i in self.rng.integers(len(ids), size=n).tolist()] if ids else []

    def scored(self, programs: Sequence[Candidate], scores: NDArray[np.float64]) -> None:
        """Take note of what the model says of the programs sampled in this round."""
        return

    def measured(self, trials: Sequence[Trial]) -> None:
        """Take note of what was measured, before the next round."""
        return

    def propose(self, n: int) -> Iterable[Candidate]:
        """Return the next of the round's programs."""
        if not self._plan:
            self._plan = self._next_round()
        batch, self._plan = self._plan[:n], self._plan[n:]
        return batch

    def learn(self, trials: Sequence[Trial]) -> None:
        """Keep measurements; the model is trained when the next round begins."""
        self._history.add(trials)
        self.measured(trials)

    def _next_round(self) -> list[Candidate]:
        o, rng = self.options, self.rng
        self._round += 1
        if len(self._history):
            speed = self._history.throughput()
            weight = np.maximum(speed / max(speed.max(), 1e-300), 0.1)
            self._model.fit(self._history.features(), speed, weight)
        self._walk.rescore(self._model.predict)
        random = self._sample()
        best = self._evolve(random) if self._model.fitted else []
        count = o.round_size - round(o.epsilon * o.round_size) if best else 0
        plan = {c.candidate_id: c for c in best[:count]}
        pool = self._walk.candidates(random)
        for i in rng.permutation(len(pool)).tolist():
            if len(plan) >= o.round_size:
                break
            if pool[i].candidate_id not in self.seen:
                plan.setdefault(pool[i].candidate_id, pool[i])
        if len(plan) < o.round_size:
            # Sampling by sketch found nothing new: the rest of the space, whatever the sketch.
            missing = o.round_size - len(plan)
            more = sample_unseen(self.space, rng, missing, self.seen | plan.keys())
            plan.update((c.candidate_id, c) for c in more)
        return list(plan.values())

    def _sample(self) -> Any:
        """Draw the round's new programs."""
        o = self.options
        count = o.sampled if self._model.fitted else max(o.sampled, o.round_size)
        states = self._walk.draw(self.rng, self.choose_sketches(count))
        scores = self._walk.scores(states)
        if self._model.fitted:
            self.scored(self._walk.candidates(states), scores)
        return states

    def _evolve(self, states: Any) -> list[Candidate]:
        """Mutate over the model's scores; return the best programs not measured yet."""
        o, rng, walk = self.options, self.rng, self._walk
        fastest = self._history.best(int(o.measured * o.population))
        states = walk.concatenate(states, walk.start(rng, len(fastest), fastest))
        for _ in range(o.iterations):
            scores = walk.scores(states)
            # Parents are drawn in proportion to their scores.
            chances = np.cumsum(np.maximum(scores - min(scores.min(), 0.0), 0.0) + 1e-9)
            drawn = np.searchsorted(chances, rng.random(o.population) * chances[-1])
            states = walk.gather(states, np.minimum(drawn, len(scores) - 1))
            moved = walk.mutate(rng, states, self._mover)
            states = walk.choose(rng.random(o.population) < o.mutation, moved, states)
        walk.scores(states)
        best, _ = walk.best(rng, o.round_size, self.seen)
        return best
