"""Small spaces for tests: a finite one with a known optimum, and one that cannot be listed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from toolkit.errors import SearchError
from toolkit.records import Candidate, Direction, Knob, Sketch, Task, Trial, TrialState, content_id
from toolkit.search.base import Space

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


class OpenSpace:
    """A space that samples and mutates but cannot be listed, as a live one."""

    def __init__(self) -> None:
        self.task = TASK
        self.sketches: Sequence[Sketch] = (SKETCH,)
        self.size: int | None = None

    def candidates(self) -> Sequence[Candidate]:
        raise SearchError("this space cannot be listed")

    def sample(
        self, rng: np.random.Generator, n: int, sketch_id: str | None = None
    ) -> list[Candidate]:
        every = toy_decisions()
        picks = rng.choice(len(every), size=min(n, len(every)), replace=False)
        return [toy_candidate(every[i]) for i in picks]

    def neighbours(self, candidate: Candidate, knob: str | None = None) -> list[Candidate]:
        d = candidate.decisions
        found = []
        for k in SKETCH.knobs:
            if knob is not None and k.name != knob:
                continue
            part = k.free.start
            for value in k.choices or TILES:
                if value != d[part]:
                    found.append(toy_candidate((*d[:part], value, *d[part + 1 :])))
        return found

    def directions(self, candidate: Candidate) -> list[Direction]:
        found = []
        for k in SKETCH.knobs:
            values = list(k.choices or TILES)
            place = values.index(candidate.decisions[k.free.start])
            if place + 1 < len(values):
                found.append(Direction(k.kind, k.name, "up"))
            if place > 0:
                found.append(Direction(k.kind, k.name, "down"))
        return found

    def mutate(
        self, candidate: Candidate, direction: Direction, rng: np.random.Generator
    ) -> Candidate | None:
        assert direction.knob is not None
        k = SKETCH.knob(direction.knob)
        part = k.free.start
        values = list(k.choices or TILES)
        place = values.index(candidate.decisions[part])
        pool = values[place + 1 :] if direction.way == "up" else values[:place]
        if not pool:
            return None
        value = pool[int(rng.integers(len(pool)))]
        d = candidate.decisions
        return toy_candidate((*d[:part], value, *d[part + 1 :]))

    def features(self, candidates: Sequence[Candidate]) -> NDArray[np.float32]:
        return np.array(
            [
                [np.log2(c.decisions[1]), np.log2(c.decisions[3]), c.decisions[4]]
                for c in candidates
            ],
            dtype=np.float32,
        )


class FormulaOracle:
    """Measures by ``toy_latency``; candidates with tile_x = 16 fail."""

    def __init__(self) -> None:
        self.measured: list[str] = []

    def measure(self, candidates: Sequence[Candidate]) -> list[Trial]:
        trials = []
        for candidate in candidates:
            self.measured.append(candidate.candidate_id)
            if candidate.decisions[1] == 16:
                trials.append(Trial(candidate, TrialState.COMPILE, elapsed_s=0.5, error="too big"))
            else:
                latency = toy_latency(candidate.decisions)
                trials.append(Trial(candidate, TrialState.OK, (latency,) * 3, elapsed_s=1.0))
        return trials


def open_space() -> Space:
    """A fresh space that cannot be listed."""
    return OpenSpace()
