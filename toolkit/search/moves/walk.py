"""Many candidates moving at once over a model's scores.

Simulated annealing and evolution propose by walking over predictions. The states of a walk are an
array of candidate numbers. In a listed space these are the space's own numbers, which is faster;
otherwise candidates are numbered as they are met. Strategies use both in the same way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from toolkit.records import Candidate
from toolkit.search.base import Indexed, Space
from toolkit.search.moves.knobs import FloatArray, IntArray
from toolkit.search.moves.movers import Mover
from toolkit.search.strategy import shuffled

Predict = Callable[[NDArray[np.float32]], FloatArray]


class Walk:
    """States (one candidate's number each), their scores, and random one-decision steps."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._met: list[Candidate] = []
        self._number: dict[str, int] = {}
        self._predict: Predict
        self._scored: dict[int, float] = {}

    def _numbers(self, candidates: Iterable[Candidate]) -> IntArray:
        """Number of each candidate, a new one for those that were not met before."""
        numbers = []
        for candidate in candidates:
            number = self._number.setdefault(candidate.candidate_id, len(self._met))
            if number == len(self._met):
                self._met.append(candidate)
            numbers.append(number)
        return np.array(numbers, dtype=np.int64)

    def candidates(self, states: IntArray) -> list[Candidate]:
        """Candidates of the states."""
        return [self._met[i] for i in states.tolist()]

    def rescore(self, predict: Predict) -> None:
        """Set the model, before anything is scored; no state counts as visited any more."""
        self._predict, self._scored = predict, {}

    def start(self, rng: np.random.Generator, n: int, first: Sequence[Candidate] = ()) -> IntArray:
        """Return n states: the given candidates, then random ones."""
        given = list(first)[:n]
        drawn = self._space.sample(rng, n - len(given)) if n > len(given) else []
        pool = self._numbers([*given, *drawn])
        # A small space may give fewer candidates: several chains then start at one candidate.
        return pool[np.arange(n) % len(pool)] if len(pool) else pool

    def draw(self, rng: np.random.Generator, sketches: Sequence[str]) -> IntArray:
        """Return a random state of each of these sketches (fewer if a sketch has none)."""
        counts = Counter(sketches).items()
        return self._numbers(c for s, count in counts for c in self._space.sample(rng, count, s))

    def mutate(self, rng: np.random.Generator, states: IntArray, mover: Mover) -> IntArray:
        """Return each state mutated by the mover (itself if it cannot move)."""
        return self._numbers(mover.moved(rng, c) or c for c in self.candidates(states))

    def scores(self, states: IntArray) -> FloatArray:
        """Score of each state; the states count as visited."""
        listed = states.tolist()
        new = [i for i in dict.fromkeys(listed) if i not in self._scored]
        if new:
            values = self._predict(self._space.features([self._met[i] for i in new]))
            self._scored.update(zip(new, values.tolist(), strict=True))
        return np.array([self._scored[i] for i in listed], dtype=np.float64)

    def best(
        self, rng: np.random.Generator, n: int, seen: set[str]
    ) -> tuple[list[Candidate], FloatArray]:
        """Return the n best scored that were visited and are not in ``seen``, best first.

        Equal scores come in random order: the order of a record must not help a strategy.
        """
        unseen = [i for i in self._scored if self._met[i].candidate_id not in seen]
        chosen = sorted(shuffled(rng, unseen), key=lambda i: -self._scored[i])[:n]
        return [self._met[i] for i in chosen], np.array([self._scored[i] for i in chosen])

    def visited(self) -> int:
        """Return how many different states were visited since the last ``rescore``."""
        return len(self._scored)


class IndexedWalk(Walk):
    """``Walk`` in arrays over a listed space; predictions are made once for the whole space."""

    def __init__(self, space: Any) -> None:
        super().__init__(space)
        self._index_of = space.index_of
        self._met = space.candidates()
        self._features = space.features(self._met)
        self._scores = np.zeros(len(self._met))
        self._visited = np.zeros(len(self._met), dtype=bool)
        self._members = {
            sketch.sketch_id: np.flatnonzero(space.graph.sketch_of == s)
            for s, sketch in enumerate(space.graph.sketches)
        }

    def rescore(self, predict: Predict) -> None:
        self._scores = np.asarray(predict(self._features), dtype=np.float64)
        self._visited[:] = False

    def start(self, rng: np.random.Generator, n: int, first: Sequence[Candidate] = ()) -> IntArray:
        given = self._index_of(list(first))[:n]
        drawn = rng.integers(len(self._met), size=n - len(given))
        return np.asarray(np.concatenate([given[given >= 0], drawn]), dtype=np.int64)

    def draw(self, rng: np.random.Generator, sketches: Sequence[str]) -> IntArray:
        states = np.empty(0, dtype=np.int64)
        for sketch, count in Counter(sketches).items():
            pool = self._members.get(sketch, states[:0])
            if len(pool):
                states = np.concatenate([states, pool[rng.integers(len(pool), size=count)]])
        return states

    def mutate(self, rng: np.random.Generator, states: IntArray, mover: Mover) -> IntArray:
        return mover.numbers(rng, states)

    def scores(self, states: IntArray) -> FloatArray:
        self._visited[states] = True
        return np.asarray(self._scores[states])

    def best(
        self, rng: np.random.Generator, n: int, seen: set[str]
    ) -> tuple[list[Candidate], FloatArray]:
        visited = rng.permutation(np.flatnonzero(self._visited))
        order = visited[np.argsort(-self._scores[visited], kind="stable")]
        unseen = (i for i in order.tolist() if self._met[i].candidate_id not in seen)
        found = np.array(list(islice(unseen, n)), dtype=np.int64)
        return self.candidates(found), self._scores[found]

    def visited(self) -> int:
        return int(self._visited.sum())


def make_walk(space: Space) -> Walk:
    """Choose the walk that fits the space."""
    return IndexedWalk(space) if isinstance(space, Indexed) else Walk(space)
