"""The first N measurements by another strategy, then droplet search from the best of them.

Canesche, Verma, Quintão Pereira 2024, "Explore as a Storm, Exploit as a Raindrop": Ansor samples a
few hundred kernels, droplet exploits the best one's sketch, against 10,000 kernels of Ansor alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from pydantic import Field, PositiveInt

from toolkit.errors import SearchError
from toolkit.records import Candidate, Trial
from toolkit.search.base import Strategy
from toolkit.search.strategies.droplet import Droplet, DropletOptions
from toolkit.search.strategy import BaseStrategy, StrategyOptions


class ExploreThenDropletOptions(StrategyOptions):
    """Which strategy explores, for how long, and how droplet goes on."""

    explore: PositiveInt = Field(default=300, description="measurements before droplet begins")
    strategy: str = Field(default="evolutionary", description="the strategy that explores")
    options: dict[str, Any] = Field(default_factory=dict, description="its options")
    droplet: DropletOptions = DropletOptions()


class ExploreThenDroplet(BaseStrategy):
    """Explore, take the fastest, walk downhill from it; then stop.

    Both phases are measured by the same oracle under one protocol.
    """

    name = "explore-then-droplet"
    source = "Canesche et al. 2024, Explore as a Storm, Exploit as a Raindrop (arXiv 2406.20037)"
    Options = ExploreThenDropletOptions
    options: ExploreThenDropletOptions

    def setup(self) -> None:
        from toolkit.search import STRATEGIES

        o = self.options
        if o.strategy == self.name:
            raise SearchError(f"{self.name!r} cannot explore with itself", cure="name another")
        self._explorer: Strategy = STRATEGIES.get(o.strategy)(
            self.space,
            o.options,
            self.rng,
            scorer=self.scorer,
            direction_scorer=self.direction_scorer,
        )
        self._droplet: Droplet | None = None
        self._measured = 0
        self._best: Trial | None = None

    def propose(self, n: int) -> Iterable[Candidate]:
        left = self.options.explore - self._measured
        if self._droplet is None and left > 0:
            batch = self._explorer.ask(min(n, left))
            if batch:
                return batch
        if self._droplet is None:
            self._droplet = Droplet(self.space, self.options.droplet, self.rng)
            self._droplet.seen = self.seen
            if self._best is not None:
                self._droplet.begin(self._best)
        return self._droplet.propose(n)

    def learn(self, trials: Sequence[Trial]) -> None:
        if self._droplet is not None:
            self._droplet.tell(trials)
            return
        self._measured += len(trials)
        self._explorer.tell(trials)
        known = [t for t in (self._best, *trials) if t is not None and t.latency_s is not None]
        self._best = min(known, key=lambda trial: trial.latency_s or float("inf"), default=None)
