"""Small spaces to test on: a finite one with a known optimum, and one that cannot be listed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from toolkit.errors import SearchError
from toolkit.records import Candidate, Direction, Knob, Sketch, Task, Trial, TrialState, content_id
from toolkit.search.graph import NeighbourGraph

TASK = Task("t0", "autotvm", "toy", [8, 8], "llvm", "llvm")
SKETCH = Sketch(
    "s0",
    "autotvm",
    "toy",
    (
        Knob("tile_x", "tile", 0, 2),
        Knob("tile_y", "tile", 2, 2),
        Knob("unroll", "unroll", 4, 1, choices=(0, 16, 64)),
    ),
)
TILES = [1, 2, 4, 8, 16]


def toy_latency(decisions: Sequence[int]) -> float:
    """Seconds; lowest at tile_x = 4, tile_y = 8, unroll = 16, and smooth around it."""
    x, y = np.log2(decisions[1]), np.log2(decisions[3])
    u = [0, 16, 64].index(decisions[4])
    return float(1e-4 * (1 + 0.3 * (x - 2) ** 2 + 0.2 * (y - 3) ** 2 + 0.15 * (u - 1) ** 2))


def toy_decisions() -> list[tuple[int, ...]]:
    """All 75 decision vectors; the outermost factors are left open (0)."""
    return [(0, x, 0, y, u) for x, y, u in product(TILES, TILES, (0, 16, 64))]


def toy_candidate(decisions: Sequence[int]) -> Candidate:
    """A candidate whose id follows from its free decisions."""
    free = f"{decisions[1]},{decisions[3]},{decisions[4]}"
    return Candidate(content_id("t0", "s0", free), "s0", tuple(decisions))


def _moved(candidate: Candidate, knob: Knob, value: int) -> Candidate:
    d, part = candidate.decisions, knob.free.start
    return toy_candidate((*d[:part], value, *d[part + 1 :]))


class OpenSpace:
    """A space that samples and mutates but cannot be listed, like that of a device."""

    def __init__(self) -> None:
        self.task = TASK
        self.sketches: Sequence[Sketch] = (SKETCH,)
        self.size: int | None = None

    def candidates(self) -> Sequence[Candidate]:
        """Refuse: it cannot be listed."""
        raise SearchError("this space cannot be listed")

    def sample(
        self, rng: np.random.Generator, n: int, sketch_id: str | None = None
    ) -> list[Candidate]:
        """Draw distinct candidates at random."""
        every = toy_decisions()
        picks = rng.choice(len(every), size=min(n, len(every)), replace=False)
        return [toy_candidate(every[i]) for i in picks]

    def neighbours(self, candidate: Candidate, knob: str | None = None) -> list[Candidate]:
        """Candidates that differ in one decision."""
        return [
            _moved(candidate, k, value)
            for k in SKETCH.knobs
            if knob in (None, k.name)
            for value in k.choices or TILES
            if value != candidate.decisions[k.free.start]
        ]

    def directions(self, candidate: Candidate) -> list[Direction]:
        """Up and down in every knob."""
        found = []
        for k in SKETCH.knobs:
            value = candidate.decisions[k.free.start]
            if value < max(k.choices or TILES):
                found.append(Direction(k.kind, k.name, "up"))
            if value > min(k.choices or TILES):
                found.append(Direction(k.kind, k.name, "down"))
        return found

    def mutate(
        self, candidate: Candidate, direction: Direction, rng: np.random.Generator
    ) -> Candidate | None:
        """Change one knob to a value further up or down, or to any other."""
        assert direction.knob is not None
        k = SKETCH.knob(direction.knob)
        values = list(k.choices or TILES)
        place = values.index(candidate.decisions[k.free.start])
        up, down = values[place + 1 :], values[:place]
        pool = {"up": up, "down": down, None: down + up}[direction.way]
        return _moved(candidate, k, pool[int(rng.integers(len(pool)))]) if pool else None

    def features(self, candidates: Sequence[Candidate]) -> NDArray[np.float32]:
        """Logarithms of both tiles, and the unrolling."""
        vectors = np.array([c.decisions for c in candidates]).reshape(-1, 5)
        columns = [np.log2(vectors[:, 1]), np.log2(vectors[:, 3]), vectors[:, 4]]
        return np.stack(columns, axis=1).astype(np.float32)


class FormulaOracle:
    """Measures ``factor`` times ``toy_latency``; candidates with tile_x = 16 fail."""

    def __init__(self, factor: float = 1.0) -> None:
        self.factor = factor
        self.measured: list[str] = []

    def measure(self, candidates: Sequence[Candidate]) -> list[Trial]:
        """Return one trial per candidate."""
        self.measured += [candidate.candidate_id for candidate in candidates]
        return [
            Trial(c, TrialState.COMPILE, elapsed_s=0.5, error="too big")
            if c.decisions[1] == 16
            else Trial(c, TrialState.OK, (toy_latency(c.decisions) * self.factor,) * 3, 1.0)
            for c in candidates
        ]


SECOND = Sketch("s1", "autotvm", "toy-2", (Knob("tile_x", "tile", 0, 2), *SKETCH.knobs[1:]))


class FiniteSpace(OpenSpace):
    """The same candidates, listed and numbered as in a record."""

    def __init__(self, sketches: Sequence[Sketch] = (SKETCH,), keep: int | None = None) -> None:
        super().__init__()
        rng = np.random.default_rng(7)
        every = toy_decisions()
        picks = rng.permutation(len(every))[:keep].tolist()
        self.sketches = sketches
        # With two sketches every second candidate belongs to the other one.
        owner = np.arange(len(picks)) % len(sketches)
        self._all = [
            Candidate(toy_candidate(every[i]).candidate_id, sketches[s].sketch_id, every[i])
            for i, s in zip(picks, owner.tolist(), strict=True)
        ]
        self.size = len(self._all)
        self.complete = True
        self._number = {c.candidate_id: i for i, c in enumerate(self._all)}
        vectors = np.array([c.decisions for c in self._all], dtype=np.int64)
        self.graph = NeighbourGraph(
            sketches, owner, [vectors[owner == s] for s in range(len(sketches))]
        )

    def candidates(self) -> Sequence[Candidate]:
        """All candidates, in the order of their numbers."""
        return self._all

    def index_of(self, candidates: Sequence[Candidate]) -> NDArray[np.int64]:
        """Number of each candidate, -1 if it is not in this space."""
        return np.array([self._number.get(c.candidate_id, -1) for c in candidates], dtype=np.int64)

    def grid_order(self) -> NDArray[np.int64]:
        """All numbers, first knob fastest."""
        return np.lexsort([*self.graph.rank, self.graph.sketch_of])

    def sample(
        self, rng: np.random.Generator, n: int, sketch_id: str | None = None
    ) -> list[Candidate]:
        """Draw distinct candidates; only of ``sketch_id`` if it is given."""
        pool = [c for c in self._all if sketch_id in (None, c.sketch_id)]
        return [pool[i] for i in rng.permutation(len(pool))[:n].tolist()]

    def neighbours(self, candidate: Candidate, knob: str | None = None) -> list[Candidate]:
        """Candidates that differ in one decision."""
        i = self._number[candidate.candidate_id]
        k = None if knob is None else self.graph.knob_number(i, knob)
        return [self._all[j] for j in self.graph.neighbours(i, k).tolist()]

    def directions(self, candidate: Candidate) -> list[Direction]:
        """Directions that lead to listed candidates."""
        return self.graph.directions(self._number[candidate.candidate_id])

    def mutate(
        self, candidate: Candidate, direction: Direction, rng: np.random.Generator
    ) -> Candidate | None:
        """A listed candidate in that direction."""
        i = self._number[candidate.candidate_id]
        assert direction.knob is not None
        pool = self.graph.one_way(i, self.graph.knob_number(i, direction.knob), direction.way)
        return self._all[int(pool[rng.integers(len(pool))])] if len(pool) else None


def finite_space(keep: int | None = None) -> FiniteSpace:
    """Return the space of all 75 candidates, or of ``keep`` of them."""
    return FiniteSpace(keep=keep)


def two_sketch_space() -> FiniteSpace:
    """Return the space of the 75 candidates, divided between two sketches."""
    return FiniteSpace((SKETCH, SECOND))
