"""Evolutionary search that chooses its sketches: explore-then-commit, or as the arms of a bandit.

*Explore-then-commit*: Han, Wang, Li, Gao 2025, "Automatic Scheduling Search Optimization Method
Based on TVM", section 4, algorithm 2. Where the paper leaves it open: the mean throughput of a
sketch is the mean over the programs that were sampled of it, as the cost model scores them, with
measured programs counting as they were measured; last round and history are weighted half and half.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from toolkit.records import Candidate, Trial
from toolkit.search.strategies.evolutionary import Evolutionary, EvolutionaryOptions
from toolkit.search.strategy import throughput


class EtcSketchOptions(EvolutionaryOptions):
    """Options of evolutionary search and of explore-then-commit."""

    warm_up: int = Field(
        default=3, ge=0, description="rounds as usual: the cost model is not yet to be trusted"
    )
    explore: int = Field(default=1, ge=1, description="rounds of random sketches after that")
    last: float = Field(
        default=0.5, ge=0, le=1, description="weight of the last round against history"
    )
    other: float = Field(
        default=0.05, ge=0, le=1, description="share of programs of other sketches, afterwards"
    )


class SketchMeans:
    """Mean relative throughput of each sketch: last round, history, and their weighting."""

    def __init__(self, sketches: Sequence[str], last: float) -> None:
        self._last = last
        self.means: dict[str, float] = {}
        self._sketches = list(sketches)

    def update(self, sketch_of: Sequence[str], values: NDArray[np.float64]) -> None:
        """Take in the programs of a round (relative throughput, higher is better)."""
        for sketch in self._sketches:
            mine = values[[i for i, s in enumerate(sketch_of) if s == sketch]]
            if not len(mine):
                continue
            mean = float(mine.mean())
            old = self.means.get(sketch, mean)
            self.means[sketch] = self._last * mean + (1.0 - self._last) * old

    def best(self) -> str:
        """Return the sketch with the best mean; the first where none is known."""
        return max(self._sketches, key=lambda sketch: self.means.get(sketch, -np.inf))


class EtcSketch(Evolutionary):
    """Warm up, explore all sketches once, then commit to the best and go on learning."""

    name = "etc-sketch"
    source = "Han et al. 2025, section 4, algorithm 2"
    Options = EtcSketchOptions
    options: EtcSketchOptions

    def setup(self) -> None:
        """Start without means."""
        super().setup()
        ids = [sketch.sketch_id for sketch in self.space.sketches]
        self.sketch_means = SketchMeans(ids, self.options.last)
        self._speeds: dict[str, float] = {}

    def measured(self, trials: Sequence[Trial]) -> None:
        """Remember throughputs: they correct the model's scores."""
        for trial in trials:
            self._speeds[trial.candidate.candidate_id] = throughput(trial)

    def choose_sketches(self, n: int) -> list[str]:
        """Uniform during warm-up and exploration, then the best with a few others."""
        uniform = super().choose_sketches(n)
        if self._round <= self.options.warm_up + self.options.explore or not uniform:
            return uniform
        best = self.sketch_means.best()
        other = self.rng.random(n) < self.options.other
        return [u if o else best for u, o in zip(uniform, other.tolist(), strict=True)]

    def scored(self, programs: Sequence[Candidate], scores: NDArray[np.float64]) -> None:
        """Update the means, from the exploring round on."""
        if self._round <= self.options.warm_up:
            return
        top = max(self._speeds.values(), default=0.0)
        values = np.array(
            [
                self._speeds[c.candidate_id] / top if c.candidate_id in self._speeds else score
                for c, score in zip(programs, scores.tolist(), strict=True)
            ]
        )
        self.sketch_means.update([c.sketch_id for c in programs], values)


class BanditSketchOptions(EvolutionaryOptions):
    """Options of evolutionary search and of the bandit."""

    policy: Literal["ucb", "thompson"] = Field(
        default="thompson",
        description="upper confidence bound (UCB1), or normal Thompson sampling",
    )
    exploration: float = Field(
        default=0.5, ge=0, description="factor of UCB1's square root; of the deviation in Thompson"
    )


class BanditSketch(Evolutionary):
    """Sketches drawn by UCB or Thompson sampling, evolutionary search inside them.

    The reward of a sketch is the throughput of its measured programs relative to the best so far,
    so that rewards are recomputed whenever that improves. A sketch without a measurement is drawn
    before any other.
    """

    name = "bandit-sketch"
    source = "Auer et al. 2002 (UCB1); Thompson 1933; evolutionary search as in Ansor"
    Options = BanditSketchOptions
    options: BanditSketchOptions

    def setup(self) -> None:
        """Start with no reward known."""
        super().setup()
        self._speeds: dict[str, list[float]] = {s.sketch_id: [] for s in self.space.sketches}

    def measured(self, trials: Sequence[Trial]) -> None:
        """Keep throughputs by sketch."""
        for trial in trials:
            self._speeds.setdefault(trial.candidate.sketch_id, []).append(throughput(trial))

    def choose_sketches(self, n: int) -> list[str]:
        """Draw the sketches of n programs, one after the other."""
        ids = list(self._speeds)
        if len(ids) < 2:
            return super().choose_sketches(n)
        top = max((max(speeds) for speeds in self._speeds.values() if speeds), default=0.0)
        counts = np.array([len(self._speeds[i]) for i in ids], dtype=np.float64)
        means = np.array(
            [
                np.mean(self._speeds[i]) / top if counts[k] and top else 0.0
                for k, i in enumerate(ids)
            ]
        )
        chosen: list[str] = []
        for _ in range(n):
            if (counts == 0).any():
                k = int(self.rng.choice(np.flatnonzero(counts == 0)))
            elif self.options.policy == "ucb":
                bonus = np.sqrt(2.0 * np.log(counts.sum()) / counts)
                k = int((means + self.options.exploration * bonus).argmax())
            else:
                deviation = self.options.exploration / np.sqrt(counts)
                k = int((means + deviation * self.rng.standard_normal(len(ids))).argmax())
            counts[k] += 1.0  # as if measured: the next draw knows of this one
            chosen.append(ids[k])
        return chosen
