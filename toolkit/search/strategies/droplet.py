"""Droplet search: coordinate descent with a significance test, corrected.

Canesche et al., "The Droplet Search Algorithm for Kernel Scheduling" (ACM TACO 2024). TVM's
version is ``droplet-faithful``. This version measures every queued candidate, compares only its own
measurements, keeps results with their candidates when some fail, does not wrap around at the end
of a knob, and ends when no neighbour wins at any step. Canesche, Verma, Quintão Pereira 2024,
"Explore as a Storm, Exploit as a Raindrop", let Ansor sample a few hundred kernels first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

from pydantic import Field, PositiveInt

from toolkit.errors import SearchError
from toolkit.records import Candidate, Trial
from toolkit.search.base import Indexed
from toolkit.search.moves.steps import Stepper, beats
from toolkit.search.strategy import (
    BaseStrategy,
    StrategyOptions,
    parse_options,
    sample_unseen,
    take,
)


class DropletOptions(StrategyOptions):
    """Options of coordinate descent."""

    p_value: float = Field(
        default=0.05, gt=0, le=1, description="largest p-value of a move's t-test on the repeats"
    )
    start: Literal["first", "random"] = Field(
        default="first", description="the lowest value of every knob (as published), or a sample"
    )
    together: PositiveInt = Field(
        default=2, description="maximum knobs to change at once, each up or down"
    )


class Droplet(BaseStrategy):
    """Measure the neighbours of the best so far; move when one is significantly better.

    After a success the step is one again; otherwise it grows by one. When the step is longer than
    every knob, the unmeasured neighbours of earlier places are measured. The search ends when none
    of them wins either. Without repeats there is no t-test: the lower latency wins.
    """

    name = "droplet"
    source = "Canesche et al. 2024, The Droplet Search Algorithm for Kernel Scheduling (TACO 21)"
    Options = DropletOptions
    options: DropletOptions
    own_batches = True

    def setup(self) -> None:
        self._stepper = Stepper(self.space)
        self._best: Trial | None = None
        if self.options.start == "first" and isinstance(self.space, Indexed):
            first = self.space.grid_order()[:1].tolist()
            self._queue = [self.space.candidates()[i] for i in first]
        else:
            self._queue = self.space.sample(self.rng, 1)
        self._left: dict[str, Candidate] = {}
        self._step = 0

    def begin(self, trial: Trial) -> None:
        """Begin at a candidate that was already measured, with that measurement."""
        self._best, self._queue, self._left, self._step = trial, [], {}, 0

    def propose(self, n: int) -> Iterable[Candidate]:
        if self._best is None:
            # An explorer may have measured the start, but without any success.
            self._queue = [c for c in self._queue if c.candidate_id not in self.seen]
        while not self._queue:
            if self._best is None:
                # The start failed or was not recorded: any other candidate will do.
                self._queue = [
                    c for c in self.space.sample(self.rng, 16) if c.candidate_id not in self.seen
                ] or sample_unseen(self.space, self.rng, 16, self.seen)
                break
            here = self._best.candidate
            self._step += 1
            if self._step > self._stepper.longest(here):
                self._queue = [c for key, c in self._left.items() if key not in self.seen]
                self._left = {}
                break
            around = {
                c.candidate_id: c
                for c in self._stepper.around(here, self._step, self.options.together)
            }
            self._queue = [c for key, c in around.items() if key not in self.seen]
        return take(self._queue, n)

    def learn(self, trials: Sequence[Trial]) -> None:
        better = [trial for trial in trials if self._beats(trial)]
        if better:
            self._best = min(better, key=lambda trial: trial.latency_s or float("inf"))
            # Remaining neighbours of the old place are measured only when nothing else is left.
            self._left.update((c.candidate_id, c) for c in self._queue)
            self._queue, self._step = [], 0

    def _beats(self, trial: Trial) -> bool:
        if trial.latency_s is None or self._best is None:
            return trial.latency_s is not None
        return beats(trial.run_times_s, self._best.run_times_s, self.options.p_value)


class ExploreThenDropletOptions(StrategyOptions):
    """Which strategy explores, for how long, and how droplet goes on."""

    explore: PositiveInt = Field(default=300, description="measurements before droplet begins")
    strategy: str = Field(default="evolutionary", description="the strategy that explores")
    options: dict[str, Any] = Field(default_factory=dict, description="options of that strategy")
    droplet: DropletOptions = DropletOptions()


class ExploreThenDroplet(BaseStrategy):
    """Explore, take the fastest, walk downhill from it; then stop.

    Both phases are measured by the same oracle under one protocol.
    """

    name = "explore-then-droplet"
    source = "Canesche et al. 2024, Explore as a Storm, Exploit as a Raindrop (arXiv 2406.20037)"
    Options = ExploreThenDropletOptions
    options: ExploreThenDropletOptions

    @classmethod
    def models_for(cls, options: Any) -> set[str]:
        from toolkit.search import STRATEGIES

        explorer: type[BaseStrategy] = STRATEGIES.get(options.strategy)
        return explorer.models_for(
            parse_options(f"strategy {explorer.name!r}", explorer.Options, options.options)
        )

    def setup(self) -> None:
        from toolkit.search import STRATEGIES

        o = self.options
        if o.strategy == self.name:
            raise SearchError(
                f"strategy {self.name!r} cannot explore with itself",
                cure="name another strategy in its option 'strategy'",
            )
        models = {"scorer": self.scorer, "direction_scorer": self.direction_scorer}
        explorer = STRATEGIES.get(o.strategy)(self.space, o.options, self.rng, **models)
        self._explorer: BaseStrategy = explorer
        self.repeats = self._explorer.repeats
        self._droplet: Droplet | None = None
        self._measured = 0
        self._best: Trial | None = None

    def propose(self, n: int) -> Iterable[Candidate]:
        if self._droplet is None:
            left = self.options.explore - self._measured
            if left > 0 and (batch := self._explorer.ask(min(n, left))):
                return batch
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
