"""Choice of the decision to mutate: at random, by weights of the rules, or by a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from toolkit.records import Candidate, Direction, Trial
from toolkit.search.base import DirectionScorer, Indexed, Space
from toolkit.search.moves.knobs import FloatArray, IntArray
from toolkit.search.strategy import throughput

# Ansor's weights on a CPU (TVM 0.16, auto_scheduler/search_policy/sketch_policy.cc). Kinds that
# Ansor does not mutate have the weight of its rarest rule, so that every knob can mutate.
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
"""Temperature, in log latency, for a model that gives none."""


def rule_shares(kinds: Sequence[str], weights: Mapping[str, float]) -> FloatArray:
    """Weight of each knob: the knobs that a rule may change share the rule's weight."""
    counts = {kind: kinds.count(kind) for kind in set(kinds)}
    return np.array([weights.get(kind, 0.0) / counts[kind] for kind in kinds], dtype=np.float64)


def either_way(directions: Sequence[Direction]) -> list[Direction]:
    """Directions without a way: up and down of one knob become one; the order is kept."""
    return list({(d.rule, d.knob): Direction(d.rule, d.knob) for d in directions}.values())


class Mover:
    """Mutates candidates once each: by number in a listed space, else one by one.

    This class draws uniformly among the knobs that can move, up or down.
    """

    def __init__(self, space: Space) -> None:
        self._space = space
        if isinstance(space, Indexed):
            self._graph = space.graph

    def numbers(self, rng: np.random.Generator, states: IntArray) -> IntArray:
        """Mutate numbered candidates; those that cannot move stay."""
        return self._graph.random_step(rng, states)

    def direction(
        self, rng: np.random.Generator, candidate: Candidate, directions: Sequence[Direction]
    ) -> Direction:
        """Choose one of a candidate's directions (at least one), or a knob without a way."""
        knobs = either_way(directions)
        return knobs[int(rng.integers(len(knobs)))]

    def moved(self, rng: np.random.Generator, candidate: Candidate) -> Candidate | None:
        """Mutate one candidate; ``None`` if it cannot move."""
        directions = self._space.directions(candidate)
        if not directions:
            return None
        return self._space.mutate(candidate, self.direction(rng, candidate, directions), rng)


class WeightedMover(Mover):
    """Draws a rule by fixed weights, then one of the rule's knobs, up or down."""

    def __init__(self, space: Space, weights: Mapping[str, float]) -> None:
        super().__init__(space)
        most = max((len(sketch.knobs) for sketch in space.sketches), default=0)
        self._table = np.zeros((len(space.sketches), most))
        self._shares: dict[tuple[str, str | None], float] = {}
        for s, sketch in enumerate(space.sketches):
            shares = rule_shares([knob.kind for knob in sketch.knobs], weights)
            self._table[s, : len(shares)] = shares
            names = ((sketch.sketch_id, knob.name) for knob in sketch.knobs)
            self._shares.update(zip(names, shares.tolist(), strict=True))

    def numbers(self, rng: np.random.Generator, states: IntArray) -> IntArray:
        return self._graph.weighted_step(rng, states, self._table)

    def direction(
        self, rng: np.random.Generator, candidate: Candidate, directions: Sequence[Direction]
    ) -> Direction:
        knobs = either_way(directions)
        chances = np.array([self._shares.get((candidate.sketch_id, d.knob), 0.0) for d in knobs])
        if chances.sum() <= 0:
            return super().direction(rng, candidate, directions)
        return knobs[int(rng.choice(len(knobs), p=chances / chances.sum()))]


class GuidedMover(Mover):
    """Takes the direction with the highest predicted gain, or draws one from the softmax.

    Han et al. 2025, section 3, algorithm 1. Gains of a numbered candidate are computed once.
    ``mode`` is ``best`` (the highest expected gain) or ``sampled`` (softmax of gains over
    ``temperature``, in units of log latency; ``None``: the scorer's own, if it has one).
    """

    def __init__(
        self,
        space: Space,
        scorer: DirectionScorer,
        mode: Literal["best", "sampled"],
        temperature: float | None,
    ) -> None:
        super().__init__(space)
        self._scorer, self._mode = scorer, mode
        own = getattr(scorer, "temperature", UNCALIBRATED)
        self._temperature = own if temperature is None else temperature
        if isinstance(space, Indexed):
            self._all = space.candidates()
            self._gains = np.full((len(self._all), max(2 * self._graph.knobs, 1)), -np.inf)
            self._known = np.zeros(len(self._all), dtype=bool)

    def _drawn(self, rng: np.random.Generator, gains: FloatArray) -> FloatArray:
        """Return one value per gain; the largest marks the direction to take."""
        if self._mode == "sampled":
            return gains / self._temperature - np.log(-np.log(rng.random(gains.shape)))
        return gains

    def numbers(self, rng: np.random.Generator, states: IntArray) -> IntArray:
        for i in np.unique(states[~self._known[states]]).tolist():
            self._known[i] = True
            slots = self._graph.slots(i)
            if slots:
                asked = [direction for _, direction in slots]
                gains = self._scorer.gains(self._space, self._all[i], asked)
                self._gains[i, [slot for slot, _ in slots]] = gains
        gains = self._drawn(rng, self._gains[states])
        slots = gains.argmax(axis=1)
        stuck = np.isinf(gains[np.arange(len(states)), slots])
        return np.where(stuck, states, self._graph.step_way(rng, states, slots))

    def direction(
        self, rng: np.random.Generator, candidate: Candidate, directions: Sequence[Direction]
    ) -> Direction:
        gains = np.asarray(self._scorer.gains(self._space, candidate, directions))
        return directions[int(self._drawn(rng, gains).argmax())]


def sampled_pool(
    space: Space, rng: np.random.Generator, n: int, trials: Sequence[Trial]
) -> list[Candidate]:
    """Sample about n candidates of a space; half of them mutants of the fastest measured."""
    good = sorted((t for t in trials if throughput(t) > 0), key=throughput, reverse=True)
    mutants = n // 2 if good else 0
    found = {c.candidate_id: c for c in space.sample(rng, n - mutants)}
    parents = [trial.candidate for trial in good[: max(1, len(good) // 5)]]
    mover = Mover(space)
    for _ in range(mutants):
        # The faster a parent, the more mutants: its rank is drawn as a product of two uniforms.
        parent = parents[int(len(parents) * rng.random() * rng.random())]
        moved = mover.moved(rng, parent)
        if moved is not None:
            found.setdefault(moved.candidate_id, moved)
    return list(found.values())
