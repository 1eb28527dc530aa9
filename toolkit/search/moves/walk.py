"""Many candidates moving at once over a model's scores: in arrays where the space has numbers.

Simulated annealing and evolution propose by walking over predictions. In a finite space with a
neighbour graph the states of a walk are an array of candidate numbers and a step is a handful of
array operations; in any other space they are a list of candidates and a step is a loop. A strategy
is written once over either.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from toolkit.records import Candidate
from toolkit.search.base import Indexed, Space
from toolkit.search.graph import IntArray
from toolkit.search.moves.movers import Mover

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
Predict = Callable[[NDArray[np.float32]], FloatArray]


class Walk(ABC):
    """States (one candidate each), their scores, and random one-decision steps."""

    @abstractmethod
    def rescore(self, predict: Predict) -> None:
        """Take another model; what was visited is forgotten."""

    @abstractmethod
    def start(self, rng: np.random.Generator, n: int, first: Sequence[Candidate] = ()) -> Any:
        """Return n states: the given candidates, then random ones."""

    @abstractmethod
    def step(self, rng: np.random.Generator, states: Any) -> Any:
        """Return a random one-decision neighbour of each state (itself where it has none)."""

    @abstractmethod
    def draw(self, rng: np.random.Generator, sketches: Sequence[str]) -> Any:
        """Return a random state of each of these sketches (fewer where one has none)."""

    @abstractmethod
    def mutate(self, rng: np.random.Generator, states: Any, mover: Mover) -> Any:
        """Return each state mutated as the mover says."""

    @abstractmethod
    def concatenate(self, first: Any, second: Any) -> Any:
        """Return the states of both."""

    @abstractmethod
    def scores(self, states: Any) -> FloatArray:
        """Score of each state; the states count as visited."""

    @abstractmethod
    def choose(self, take: BoolArray, new: Any, old: Any) -> Any:
        """Return ``new`` where ``take``, else ``old``."""

    @abstractmethod
    def gather(self, states: Any, index: IntArray) -> Any:
        """Return the states at these places."""

    @abstractmethod
    def candidates(self, states: Any) -> list[Candidate]:
        """Candidates of the states."""

    @abstractmethod
    def best(
        self, rng: np.random.Generator, n: int, seen: set[str]
    ) -> tuple[list[Candidate], FloatArray]:
        """Return the n best scored that were visited and are not in ``seen``, best first.

        Equal scores come in random order: the order of a record must not help a strategy.
        """

    @abstractmethod
    def visited(self) -> int:
        """Return how many different states were visited since the last ``rescore``."""


class IndexedWalk(Walk):
    """A walk over candidate numbers; predictions are made once for the whole space."""

    def __init__(self, space: Any) -> None:
        self._space = space
        self._graph = space.graph
        self._all: Sequence[Candidate] = space.candidates()
        self._features = space.features(self._all)
        self._scores = np.zeros(len(self._all))
        self._visited = np.zeros(len(self._all), dtype=bool)
        self._members: dict[str, IntArray] = {}

    def rescore(self, predict: Predict) -> None:
        """Predict the whole space; what was visited is forgotten."""
        self._scores = np.asarray(predict(self._features), dtype=np.float64)
        self._visited[:] = False

    def start(self, rng: np.random.Generator, n: int, first: Sequence[Candidate] = ()) -> IntArray:
        """Return numbers of the given candidates, then of random ones."""
        given = self._space.index_of(list(first))[:n]
        drawn = rng.integers(len(self._all), size=n - len(given))
        states: IntArray = np.concatenate([given[given >= 0], drawn]).astype(np.int64)
        return states

    def step(self, rng: np.random.Generator, states: IntArray) -> IntArray:
        """Move along a random knob that has a neighbour."""
        moved: IntArray = self._graph.random_step(rng, states)
        return moved

    def draw(self, rng: np.random.Generator, sketches: Sequence[str]) -> IntArray:
        """Draw random numbers of each sketch."""
        drawn = [
            pool[rng.integers(len(pool), size=count)]
            for sketch, count in Counter(sketches).items()
            if len(pool := self._of_sketch(sketch))
        ]
        states: IntArray = np.concatenate([np.empty(0, dtype=np.int64), *drawn])
        return states

    def _of_sketch(self, sketch_id: str) -> IntArray:
        if not self._members:
            for s, sketch in enumerate(self._graph.sketches):
                self._members[sketch.sketch_id] = np.flatnonzero(self._graph.sketch_of == s)
        return self._members.get(sketch_id, np.empty(0, dtype=np.int64))

    def mutate(self, rng: np.random.Generator, states: IntArray, mover: Mover) -> IntArray:
        """Let the mover work on all numbers at once."""
        return mover.numbers(rng, states)

    def concatenate(self, first: IntArray, second: IntArray) -> IntArray:
        """Return the states of both."""
        both: IntArray = np.concatenate([first, second])
        return both

    def scores(self, states: IntArray) -> FloatArray:
        """Look scores up."""
        self._visited[states] = True
        found: FloatArray = self._scores[states]
        return found

    def choose(self, take: BoolArray, new: IntArray, old: IntArray) -> IntArray:
        """Return ``new`` where ``take``, else ``old``."""
        return np.where(take, new, old)

    def gather(self, states: IntArray, index: IntArray) -> IntArray:
        """Return the states at these places."""
        taken: IntArray = states[index]
        return taken

    def candidates(self, states: IntArray) -> list[Candidate]:
        """Candidates of the states."""
        return [self._all[i] for i in states.tolist()]

    def best(
        self, rng: np.random.Generator, n: int, seen: set[str]
    ) -> tuple[list[Candidate], FloatArray]:
        """Return the n best scored that were visited and are not in ``seen``, best first."""
        visited = rng.permutation(np.flatnonzero(self._visited))
        order = visited[np.argsort(-self._scores[visited], kind="stable")]
        found: list[int] = []
        for i in order.tolist():
            if self._all[i].candidate_id not in seen:
                found.append(i)
                if len(found) == n:
                    break
        return [self._all[i] for i in found], self._scores[found]

    def visited(self) -> int:
        """Return how many different states were visited since the last ``rescore``."""
        return int(self._visited.sum())


class ObjectWalk(Walk):
    """A walk over candidates of a space without numbers (a live one)."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._predict: Predict | None = None
        self._known: dict[str, tuple[Candidate, float]] = {}

    def rescore(self, predict: Predict) -> None:
        """Take another model; what was visited is forgotten."""
        self._predict = predict
        self._known = {}

    def start(
        self, rng: np.random.Generator, n: int, first: Sequence[Candidate] = ()
    ) -> list[Candidate]:
        """Return the given candidates, then random ones."""
        given = list(first)[:n]
        drawn = self._space.sample(rng, n - len(given)) if n > len(given) else []
        pool = [*given, *drawn]
        # A small space gives fewer than asked for: several chains then start at one candidate.
        return [pool[i % len(pool)] for i in range(n)] if pool else []

    def step(self, rng: np.random.Generator, states: list[Candidate]) -> list[Candidate]:
        """Mutate each state in a random direction."""
        moved = []
        for state in states:
            directions = self._space.directions(state)
            if directions:
                direction = directions[int(rng.integers(len(directions)))]
                moved.append(self._space.mutate(state, direction, rng) or state)
            else:
                moved.append(state)
        return moved

    def draw(self, rng: np.random.Generator, sketches: Sequence[str]) -> list[Candidate]:
        """Sample candidates of each sketch."""
        drawn: list[Candidate] = []
        for sketch, count in Counter(sketches).items():
            drawn += self._space.sample(rng, count, sketch)
        return drawn

    def mutate(
        self, rng: np.random.Generator, states: list[Candidate], mover: Mover
    ) -> list[Candidate]:
        """Mutate one state after the other."""
        moved = []
        for state in states:
            directions = self._space.directions(state)
            new = None
            if directions:
                new = self._space.mutate(state, mover.direction(rng, state, directions), rng)
            moved.append(new or state)
        return moved

    def concatenate(self, first: list[Candidate], second: list[Candidate]) -> list[Candidate]:
        """Return the states of both."""
        return [*first, *second]

    def scores(self, states: list[Candidate]) -> FloatArray:
        """Predict what is new, look up the rest."""
        new = {c.candidate_id: c for c in states if c.candidate_id not in self._known}
        if new:
            fresh = list(new.values())
            features = self._space.features(fresh)
            values = np.zeros(len(fresh)) if self._predict is None else self._predict(features)
            for candidate, value in zip(fresh, values.tolist(), strict=True):
                self._known[candidate.candidate_id] = (candidate, float(value))
        return np.array([self._known[c.candidate_id][1] for c in states], dtype=np.float64)

    def choose(
        self, take: BoolArray, new: list[Candidate], old: list[Candidate]
    ) -> list[Candidate]:
        """Return ``new`` where ``take``, else ``old``."""
        return [n if t else o for t, n, o in zip(take.tolist(), new, old, strict=True)]

    def gather(self, states: list[Candidate], index: IntArray) -> list[Candidate]:
        """Return the states at these places."""
        return [states[i] for i in index.tolist()]

    def candidates(self, states: list[Candidate]) -> list[Candidate]:
        """Candidates of the states."""
        return list(states)

    def best(
        self, rng: np.random.Generator, n: int, seen: set[str]
    ) -> tuple[list[Candidate], FloatArray]:
        """Return the n best scored that were visited and are not in ``seen``, best first."""
        entries = [entry for key, entry in self._known.items() if key not in seen]
        unseen = [entries[i] for i in rng.permutation(len(entries)).tolist()]
        unseen.sort(key=lambda entry: -entry[1])
        chosen = unseen[:n]
        return [c for c, _ in chosen], np.array([value for _, value in chosen])

    def visited(self) -> int:
        """Return how many different states were visited since the last ``rescore``."""
        return len(self._known)


def make_walk(space: Space) -> Walk:
    """Choose the walk that fits the space."""
    return IndexedWalk(space) if isinstance(space, Indexed) else ObjectWalk(space)
