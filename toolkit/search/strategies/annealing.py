"""AutoTVM's model-based tuner: simulated annealing over an online cost model.

Chen et al. 2018, "Learning to Optimize Tensor Programs", sections 3.2 and 3.3; constants from TVM
0.16 (``autotvm/tuner/sa_model_optimizer.py``, ``xgboost_tuner.py``, ``model_based_tuner.py``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from toolkit.records import Candidate, Trial
from toolkit.search.models.cost_model import CostModelOptions, OnlineCostModel
from toolkit.search.models.encoding import value_codes
from toolkit.search.models.history import History
from toolkit.search.moves.walk import make_walk
from toolkit.search.strategy import BaseStrategy, StrategyOptions, sample_unseen


class AnnealingOptions(StrategyOptions):
    """Options of simulated annealing; the defaults are AutoTVM's."""

    plan_size: int = Field(
        default=64, ge=1, description="measurements between two trainings, and size of a plan"
    )
    epsilon: float = Field(default=0.05, ge=0, le=1, description="share of random candidates")
    chains: int = Field(default=128, ge=1, description="parallel annealing chains")
    steps: int = Field(default=500, ge=1, description="steps of a chain at most")
    patience: int = Field(default=50, ge=1, description="steps without a new candidate")
    start_temperature: float = Field(default=1.0, gt=0, description="cooled linearly to 0")
    diversity_ratio: int = Field(
        default=2, ge=1, description="the plan is chosen from so many times as many proposals"
    )
    diversity: float = Field(
        default=0.02,
        ge=0,
        description="alpha: what a knob value that the plan does not have yet is worth, as a "
        "share of the range of scores",
    )
    model: CostModelOptions = CostModelOptions()


class Annealing(BaseStrategy):
    """AutoTVM's model-based tuner: annealing over an online model, batches chosen for diversity.

    Before the first ``plan_size`` measurements candidates are random. Chains go on from where they
    were (``persistent`` in AutoTVM).
    """

    name = "annealing"
    source = "Chen et al. 2018 (AutoTVM), sections 3.2-3.3; TVM 0.16 xgboost_tuner.py"
    Options = AnnealingOptions
    options: AnnealingOptions

    def setup(self) -> None:
        """Start without a model."""
        self._history = History(self.space)
        self._walk = make_walk(self.space)
        self._model = OnlineCostModel(self.options.model, int(self.rng.integers(2**31)))
        self._plan: list[Candidate] = []
        self._states: Any = None
        self._trained = 0

    def propose(self, n: int) -> Iterable[Candidate]:
        """Take from the plan; every epsilon-th candidate, and those beyond the plan, are random."""
        batch: list[Candidate] = []
        while self._plan and len(batch) < n:
            if self.rng.random() < self.options.epsilon:
                batch += sample_unseen(self.space, self.rng, 1, self._taken(batch))
            else:
                candidate = self._plan.pop(0)
                if candidate.candidate_id not in self.seen:
                    batch.append(candidate)
        if len(batch) < n:
            missing = n - len(batch)
            batch += sample_unseen(self.space, self.rng, missing, self._taken(batch))
        return batch

    def _taken(self, batch: Sequence[Candidate]) -> set[str]:
        return self.seen | {c.candidate_id for c in batch} if batch else self.seen

    def learn(self, trials: Sequence[Trial]) -> None:
        """Train and plan anew after every ``plan_size`` measurements."""
        self._history.add(trials)
        if len(self._history) < self.options.plan_size * (self._trained + 1):
            return
        self._trained += 1
        self._model.fit(self._history.features(), self._history.throughput())
        if self._model.fitted:
            self._plan = self._make_plan()

    def _make_plan(self) -> list[Candidate]:
        self._anneal()
        o = self.options
        proposals, scores = self._walk.best(self.rng, o.plan_size * o.diversity_ratio, self.seen)
        if o.diversity_ratio == 1 or o.diversity == 0 or len(proposals) <= 1:
            return proposals[: o.plan_size]
        codes = value_codes(self.space.sketches, proposals)
        spread = float(np.ptp(scores)) or 1.0
        order = diverse(scores / spread, codes, o.plan_size, o.diversity)
        return [proposals[i] for i in order]

    def _anneal(self) -> None:
        o, rng, walk = self.options, self.rng, self._walk
        walk.rescore(self._model.predict)
        states = self._states if self._states is not None else walk.start(rng, o.chains)
        scores = walk.scores(states)
        last, found = 0, walk.visited()
        for step, t in enumerate(np.linspace(o.start_temperature, 0.0, o.steps, endpoint=False)):
            moved = walk.step(rng, states)
            new = walk.scores(moved)
            accept = rng.random(len(new)) < np.exp(np.minimum((new - scores) / (t + 1e-5), 0.0))
            states = walk.choose(accept, moved, states)
            scores = np.where(accept, new, scores)
            if walk.visited() > found:
                last, found = step, walk.visited()
            elif step - last >= o.patience:
                break
        self._states = states


def diverse(
    scores: NDArray[np.float64],
    codes: NDArray[np.int64],
    n: int,
    alpha: float,
) -> list[int]:
    """Choose n that nearly maximise sum of scores + alpha x number of distinct knob values.

    Greedy; the objective is submodular (Chen et al. 2018, section 3.3, equation 3). ``codes`` has a
    row a candidate and a column a knob; equal numbers in a column are equal values.
    """
    left = np.ones(len(scores), dtype=bool)
    new = np.ones(codes.shape, dtype=bool)
    chosen: list[int] = []
    for _ in range(min(n, len(scores))):
        gain = np.where(left, scores + alpha * new.sum(axis=1), -np.inf)
        i = int(gain.argmax())
        chosen.append(i)
        left[i] = False
        new &= codes != codes[i]
    return chosen
