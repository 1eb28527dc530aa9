"""Choice of the sketches of new programs: uniform, by explore-then-commit, or by a bandit.

*Explore-then-commit*: Han, Wang, Li, Gao 2025, "Automatic Scheduling Search Optimization Method
Based on TVM", section 4, algorithm 2. Where the paper leaves it open: the mean throughput of a
sketch is the mean over its sampled programs. A measured program counts with its measurement, any
other with the cost model's score. By default the last round and the history have equal weight.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from toolkit.records import Candidate, Trial
from toolkit.search.moves.knobs import FloatArray
from toolkit.search.strategy import throughput


class SketchChoice:
    """Draws the sketches of new programs uniformly, as Ansor does."""

    def __init__(self, sketches: Sequence[str]) -> None:
        self._ids = list(sketches)

    def draw(self, rng: np.random.Generator, n: int, number: int) -> list[str]:
        """Sketches of n new programs of round ``number`` (from 1); ``[]`` if there is no sketch."""
        ids = self._ids
        return [ids[i] for i in rng.integers(len(ids), size=n).tolist()] if ids else []

    def scored(self, programs: Sequence[Candidate], scores: FloatArray, number: int) -> None:
        """Take the model's scores of the programs sampled in a round."""

    def measured(self, trials: Sequence[Trial]) -> None:
        """Take the measurements of a batch, before the next round."""


class ExploreThenCommit(SketchChoice):
    """Uniform in ``warm_up`` and ``explore`` rounds, then mostly the sketch of the best mean."""

    def __init__(
        self, sketches: Sequence[str], warm_up: int, explore: int, last: float, other: float
    ) -> None:
        super().__init__(sketches)
        self._warm_up, self._explore, self._last, self._other = warm_up, explore, last, other
        self._speeds: dict[str, float] = {}
        self.means: dict[str, float] = {}
        """Mean relative throughput of each sketch, last round and history weighted."""

    def update(self, sketch_of: Sequence[str], values: FloatArray) -> None:
        """Take in the programs of a round (relative throughput, higher is better)."""
        for sketch in self._ids:
            mine = values[[i for i, s in enumerate(sketch_of) if s == sketch]]
            if len(mine):
                mean = float(mine.mean())
                old = self.means.get(sketch, mean)
                self.means[sketch] = self._last * mean + (1.0 - self._last) * old

    def best(self) -> str:
        """Return the sketch with the best mean; the first if no mean is known."""
        return max(self._ids, key=lambda sketch: self.means.get(sketch, -np.inf))

    def draw(self, rng: np.random.Generator, n: int, number: int) -> list[str]:
        uniform = super().draw(rng, n, number)
        if number <= self._warm_up + self._explore or not uniform:
            return uniform
        best = self.best()
        other = rng.random(n) < self._other
        return [u if o else best for u, o in zip(uniform, other.tolist(), strict=True)]

    def scored(self, programs: Sequence[Candidate], scores: FloatArray, number: int) -> None:
        if number <= self._warm_up:
            return
        # Measured throughputs correct the model's scores.
        top = max(self._speeds.values(), default=0.0)
        values = [
            self._speeds[c.candidate_id] / top if c.candidate_id in self._speeds else score
            for c, score in zip(programs, scores.tolist(), strict=True)
        ]
        self.update([c.sketch_id for c in programs], np.array(values))

    def measured(self, trials: Sequence[Trial]) -> None:
        self._speeds.update((t.candidate.candidate_id, throughput(t)) for t in trials)


class SketchBandit(SketchChoice):
    """UCB1 or normal Thompson sampling over sketches; those without a measurement come first.

    A reward is a measured throughput relative to the best so far.
    """

    def __init__(
        self, sketches: Sequence[str], policy: Literal["ucb", "thompson"], exploration: float
    ) -> None:
        super().__init__(sketches)
        self._policy, self._exploration = policy, exploration
        self._speeds: dict[str, list[float]] = {sketch: [] for sketch in sketches}

    def measured(self, trials: Sequence[Trial]) -> None:
        for trial in trials:
            self._speeds.setdefault(trial.candidate.sketch_id, []).append(throughput(trial))

    def draw(self, rng: np.random.Generator, n: int, number: int) -> list[str]:
        ids, speeds = list(self._speeds), list(self._speeds.values())
        if len(ids) < 2:
            return super().draw(rng, n, number)
        top = max((max(mine) for mine in speeds if mine), default=0.0)
        counts = np.array([len(mine) for mine in speeds], dtype=np.float64)
        means = np.array([np.mean(mine) / top if mine and top else 0.0 for mine in speeds])
        chosen: list[str] = []
        for _ in range(n):
            if (counts == 0).any():
                k = int(rng.choice(np.flatnonzero(counts == 0)))
            elif self._policy == "ucb":
                bonus = np.sqrt(2.0 * np.log(counts.sum()) / counts)
                k = int((means + self._exploration * bonus).argmax())
            else:
                deviation = self._exploration / np.sqrt(counts)
                k = int((means + deviation * rng.standard_normal(len(ids))).argmax())
            counts[k] += 1.0  # counts as measured in the next draw
            chosen.append(ids[k])
        return chosen
