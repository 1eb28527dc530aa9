"""Ansor's evolutionary search: mutate many programs over a model's scores, measure the best.

Zheng et al. 2020, "Ansor", section 5; constants from TVM 0.16
(``auto_scheduler/search_policy/sketch_policy.cc`` and ``sketch_policy.py``). Two options say which
sketches new programs have and how programs are mutated; the presets below set them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import AfterValidator, Field, NonNegativeFloat, NonNegativeInt, PositiveInt

from toolkit.errors import did_you_mean
from toolkit.records import Candidate, Trial
from toolkit.search.models.cost_model import CostModelOptions, History, OnlineCostModel
from toolkit.search.moves.knobs import IntArray
from toolkit.search.moves.movers import ANSOR_WEIGHTS, GuidedMover, Mover, WeightedMover
from toolkit.search.moves.walk import make_walk
from toolkit.search.strategies.sketch_choice import ExploreThenCommit, SketchBandit, SketchChoice
from toolkit.search.strategy import (
    BaseStrategy,
    Share,
    StrategyOptions,
    preset,
    sample_unseen,
    shuffled,
    take,
)


def _known_rule(name: str) -> str:
    if name not in ANSOR_WEIGHTS:
        near = did_you_mean(name, ANSOR_WEIGHTS)
        raise ValueError(f"no mutation rule is called {name!r}: {near}")
    return name


Rule = Annotated[str, AfterValidator(_known_rule)]


class EvolutionaryOptions(StrategyOptions):
    """Options of evolutionary search; the defaults are Ansor's."""

    round_size: PositiveInt = Field(default=64, description="measurements of a round")
    population: int = Field(default=2048, ge=2, description="programs of a generation")
    iterations: NonNegativeInt = Field(default=4, description="generations in a round")
    mutation: Share = Field(default=0.85, description="probability of mutation")
    sampled: PositiveInt = Field(
        default=50, description="minimum number of programs sampled anew in each round"
    )
    measured: Share = Field(
        default=0.2, description="share of the population taken from the fastest measured programs"
    )
    epsilon: Share = Field(default=0.05, description="share of random measurements")
    weights: dict[Rule, NonNegativeFloat] = Field(
        default_factory=lambda: dict(ANSOR_WEIGHTS), description="weight of each mutation rule"
    )
    model: CostModelOptions = CostModelOptions(loss="squared", depth=10, learning_rate=0.2)
    mutations: Literal["weights", "model"] = Field(
        default="weights",
        description="draw a rule by its weight, or let a trained model choose the direction",
    )
    mode: Literal["best", "sampled"] = Field(
        default="best",
        description="by model: take the direction with the highest expected gain (as published), "
        "or draw one from the softmax of expected gains",
    )
    temperature: float | None = Field(
        default=None,
        gt=0,
        description="by model: temperature of the softmax, in units of log latency; default: the "
        "model's calibrated one, or 0.1 if it has none",
    )
    sketches: Literal["uniform", "explore-then-commit", "bandit"] = Field(
        default="uniform", description="how the sketches of sampled programs are drawn"
    )
    warm_up: NonNegativeInt = Field(
        default=3,
        description="explore-then-commit: normal rounds at the start, while the cost model is "
        "unreliable",
    )
    explore: PositiveInt = Field(
        default=1, description="explore-then-commit: rounds of random sketches after `warm_up`"
    )
    last: Share = Field(
        default=0.5, description="explore-then-commit: weight of the last round against history"
    )
    other: Share = Field(
        default=0.05,
        description="explore-then-commit: share of programs of other sketches after the commit",
    )
    policy: Literal["ucb", "thompson"] = Field(
        default="thompson",
        description="bandit: upper confidence bound (UCB1), or normal Thompson sampling",
    )
    exploration: NonNegativeFloat = Field(
        default=0.5,
        description="bandit: factor of UCB1's square root, or of Thompson sampling's deviation",
    )


class Evolutionary(BaseStrategy):
    """Sample programs, add the fastest measured, evolve by a model's scores, measure the best.

    The sketch of each sampled program is drawn uniformly, as in Ansor. The model is trained on
    relative throughput; fast programs have a higher weight. The first round has no model yet, so
    its programs are random.
    """

    name = "evolutionary"
    source = "Zheng et al. 2020 (Ansor), section 5; TVM 0.16 auto_scheduler sketch_policy.cc"
    Options = EvolutionaryOptions
    options: EvolutionaryOptions

    def setup(self) -> None:
        o = self.options
        self._history = History(self.space)
        self._walk = make_walk(self.space)
        self._model = OnlineCostModel(o.model, int(self.rng.integers(2**31)))
        self._mover: Mover = WeightedMover(self.space, o.weights)
        if o.mutations == "model":
            scorer = self.require(self.direction_scorer, "mutation")
            self._mover = GuidedMover(self.space, scorer, o.mode, o.temperature)
        ids = [sketch.sketch_id for sketch in self.space.sketches]
        self._sketches = SketchChoice(ids)
        if o.sketches == "explore-then-commit":
            self._sketches = ExploreThenCommit(ids, o.warm_up, o.explore, o.last, o.other)
        elif o.sketches == "bandit":
            self._sketches = SketchBandit(ids, o.policy, o.exploration)
        self._plan: list[Candidate] = []
        self._round = 0

    @classmethod
    def models_for(cls, options: Any) -> set[str]:
        found = super().models_for(options)
        return found | {"mutation"} if options.mutations == "model" else found

    def propose(self, n: int) -> Iterable[Candidate]:
        if not self._plan:
            self._plan = self._next_round()
        return take(self._plan, n)

    def learn(self, trials: Sequence[Trial]) -> None:
        self._history.add(trials)
        self._sketches.measured(trials)

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
        for candidate in shuffled(rng, self._walk.candidates(random)):
            if len(plan) < o.round_size and candidate.candidate_id not in self.seen:
                plan.setdefault(candidate.candidate_id, candidate)
        if len(plan) < o.round_size:
            # Sampling by sketch found too few new programs: take the rest from any sketch.
            missing = o.round_size - len(plan)
            more = sample_unseen(self.space, rng, missing, self.seen | plan.keys())
            plan.update((c.candidate_id, c) for c in more)
        return list(plan.values())

    def _sample(self) -> IntArray:
        """Draw the round's new programs."""
        o, walk = self.options, self._walk
        count = o.sampled if self._model.fitted else max(o.sampled, o.round_size)
        states = walk.draw(self.rng, self._sketches.draw(self.rng, count, self._round))
        scores = walk.scores(states)
        if self._model.fitted:
            self._sketches.scored(walk.candidates(states), scores, self._round)
        return states

    def _evolve(self, states: IntArray) -> list[Candidate]:
        """Mutate over the model's scores; return the best programs not measured yet."""
        o, rng, walk = self.options, self.rng, self._walk
        fastest = self._history.best(int(o.measured * o.population))
        states = np.concatenate([states, walk.start(rng, len(fastest), fastest)])
        for _ in range(o.iterations):
            scores = walk.scores(states)
            # Parents are drawn in proportion to their scores.
            chances = np.cumsum(np.maximum(scores - min(scores.min(), 0.0), 0.0) + 1e-9)
            drawn = np.searchsorted(chances, rng.random(o.population) * chances[-1])
            states = states[np.minimum(drawn, len(scores) - 1)]
            moved = walk.mutate(rng, states, self._mover)
            states = np.where(rng.random(o.population) < o.mutation, moved, states)
        walk.scores(states)
        best, _ = walk.best(rng, o.round_size, self.seen)
        return best


MUTATION_GUIDED = preset(
    Evolutionary,
    "mutation-guided",
    "Evolutionary search with mutations that a trained model chooses, one direction per program.",
    "Han et al. 2025, section 3, algorithm 1",
    flags={"needs_direction_scorer": True},
    mutations="model",
)
ETC_SKETCH = preset(
    Evolutionary,
    "etc-sketch",
    "Warm up, explore all sketches once, then commit to the best and keep learning.",
    "Han et al. 2025, section 4, algorithm 2",
    sketches="explore-then-commit",
)
ETC_MUTATION = preset(
    Evolutionary,
    "etc-mutation",
    "Choose sketches by explore-then-commit, and mutations by the trained model.",
    "Han et al. 2025, sections 3 and 4 together",
    flags={"needs_direction_scorer": True},
    mutations="model",
    sketches="explore-then-commit",
)
BANDIT_SKETCH = preset(
    Evolutionary,
    "bandit-sketch",
    """Draw sketches by UCB or Thompson sampling, and use evolutionary search inside them.

    The reward of a sketch is the throughput of its measured programs relative to the best so far.
    All rewards are recomputed when the best improves. A sketch without a measurement is drawn
    before any other.
    """,
    "Auer et al. 2002 (UCB1); Thompson 1933; evolutionary search as in Ansor",
    sketches="bandit",
)
