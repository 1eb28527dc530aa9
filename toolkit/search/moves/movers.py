"""Which decision of a program is mutated: by fixed weights of the rules, or as a model says."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from toolkit.records import Candidate, Direction
from toolkit.search.base import DirectionScorer, Indexed, Space
from toolkit.search.graph import IntArray

FloatArray = NDArray[np.float64]

# Ansor's weights on a CPU (TVM 0.16, auto_scheduler/search_policy/sketch_policy.cc). Kinds that
# Ansor does not mutate have the weight of its rarest rule, so that no knob is out of reach.
ANSOR_WEIGHTS: dict[str, float] = {
    "tile": 0.90,
    "unroll": 0.04,
    "compute_location": 0.05,
    "parallel": 0.01,
    "vectorize": 0.01,
    "thread_binding": 0.01,
    "categorical": 0.01,
}

UNCALIBRATED = 0.1
"""Temperature, in log latency, for a model that does not say its own."""


def rule_shares(kinds: Sequence[str], weights: Mapping[str, float]) -> FloatArray:
    """Weight of each knob: a rule's weight is shared by the knobs that it may change."""
    counts = {kind: kinds.count(kind) for kind in set(kinds)}
    return np.array([weights.get(kind, 0.0) / counts[kind] for kind in kinds], dtype=np.float64)


class Mover(ABC):
    """Mutates the states of a walk, each once."""

    @abstractmethod
    def numbers(self, rng: np.random.Generator, states: IntArray) -> IntArray:
        """Mutate numbered candidates."""

    @abstractmethod
    def direction(
        self, rng: np.random.Generator, candidate: Candidate, directions: Sequence[Direction]
    ) -> Direction:
        """Choose one of a candidate's directions (there is at least one)."""


class WeightedMover(Mover):
    """Rules drawn with fixed weights, then one of the rule's knobs."""

    def __init__(self, space: Space, weights: Mapping[str, float]) -> None:
        self._weights = weights
        if isinstance(space, Indexed):
            self._graph = space.graph
            self._table = np.zeros((len(self._graph.sketches), self._graph.knobs))
            for s, sketch in enumerate(self._graph.sketches):
                kinds = [knob.kind for knob in sketch.knobs]
                self._table[s, : len(kinds)] = rule_shares(kinds, weights)

    def numbers(self, rng: np.random.Generator, states: IntArray) -> IntArray:
        """Mutate numbered candidates."""
        return self._graph.weighted_step(rng, states, self._table)

    def direction(
        self, rng: np.random.Generator, candidate: Candidate, directions: Sequence[Direction]
    ) -> Direction:
        """Choose by the rules' weights."""
        chances = rule_shares([d.rule for d in directions], self._weights)
        total = chances.sum()
        if total <= 0:
            return directions[int(rng.integers(len(directions)))]
        return directions[int(rng.choice(len(directions), p=chances / total))]


class GuidedMover(Mover):
    """The direction that a trained model expects most of, or one drawn from its softmax.

    Han et al. 2025, section 3, algorithm 1. Gains of a candidate are computed once.

    Parameters
    ----------
    mode
        ``best``: the highest expected gain; ``sampled``: softmax of gains over ``temperature``.
    temperature
        In units of log latency; ``None``: the scorer's own, which fits what its task gains.
    """

    def __init__(
        self,
        space: Space,
        scorer: DirectionScorer,
        mode: Literal["best", "sampled"],
        temperature: float | None,
    ) -> None:
        self._space, self._scorer = space, scorer
        own = getattr(scorer, "temperature", UNCALIBRATED)
        self._mode, self._temperature = mode, own if temperature is None else temperature
        if isinstance(space, Indexed):
            self._graph = space.graph
            self._all = space.candidates()
            self._gains = np.full((len(self._all), max(2 * self._graph.knobs, 1)), -np.inf)
            self._known = np.zeros(len(self._all), dtype=bool)

    def _learn(self, states: IntArray) -> None:
        new = np.unique(states[~self._known[states]])
        self._known[new] = True
        slots = [self._graph.slots(i) for i in new.tolist()]
        asked = [[direction for _, direction in found] for found in slots]
        candidates = [self._all[i] for i in new.tolist()]
        for i, found, gains in zip(
            new.tolist(), slots, gains_of(self._scorer, self._space, candidates, asked), strict=True
        ):
            self._gains[i, [slot for slot, _ in found]] = gains

    def numbers(self, rng: np.random.Generator, states: IntArray) -> IntArray:
        """Mutate numbered candidates."""
        self._learn(states)
        gains = self._gains[states]
        if self._mode == "sampled":
            gains = gains / self._temperature - np.log(-np.log(rng.random(gains.shape)))
        slots = gains.argmax(axis=1)
        stuck = np.isinf(gains[np.arange(len(states)), slots])
        return np.where(stuck, states, self._graph.step_way(rng, states, slots))

    def direction(
        self, rng: np.random.Generator, candidate: Candidate, directions: Sequence[Direction]
    ) -> Direction:
        """Choose by expected gain."""
        gains = np.asarray(self._scorer.gains(self._space, candidate, directions))
        if self._mode == "sampled":
            gains = gains / self._temperature - np.log(-np.log(rng.random(len(gains))))
        return directions[int(gains.argmax())]


def gains_of(
    scorer: DirectionScorer,
    space: Space,
    candidates: Sequence[Candidate],
    directions: Sequence[Sequence[Direction]],
) -> list[FloatArray]:
    """Gains of many candidates, by the directions that were asked of each."""
    return [
        np.asarray(scorer.gains(space, candidate, asked)) if asked else np.empty(0)
        for candidate, asked in zip(candidates, directions, strict=True)
    ]
