"""Sketches as the arms of a bandit, with evolutionary search inside the chosen ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from pydantic import Field

from toolkit.records import Trial
from toolkit.search.evolutionary import Evolutionary, EvolutionaryOptions
from toolkit.search.strategy import throughput


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
