"""AutoTVM's model-based tuner: simulated annealing over an online cost model.

Chen et al. 2018, "Learning to Optimize Tensor Programs", sections 3.2, 3.3 and 5.1; constants from
TVM 0.16 (``autotvm/tuner/sa_model_optimizer.py``, ``xgboost_tuner.py``, ``model_based_tuner.py``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from toolkit.records import Candidate, Trial
from toolkit.search.models.cost_model import CostModelOptions, History, OnlineCostModel
from toolkit.search.models.encoding import value_codes
from toolkit.search.models.ensemble import BootstrapEnsemble
from toolkit.search.moves.knobs import FloatArray, IntArray
from toolkit.search.moves.movers import Mover
from toolkit.search.moves.walk import make_walk
from toolkit.search.strategy import (
    BaseStrategy,
    Samples,
    Share,
    StrategyOptions,
    preset,
    sample_unseen,
)


class AnnealingOptions(StrategyOptions):
    """Options of simulated annealing; the defaults are AutoTVM's."""

    plan_size: PositiveInt = Field(
        default=64, description="measurements between two trainings, and size of a plan"
    )
    epsilon: Share = Field(default=0.05, description="share of random candidates")
    chains: PositiveInt = Field(default=128, description="parallel annealing chains")
    steps: PositiveInt = Field(default=500, description="maximum steps of a chain")
    patience: PositiveInt = Field(
        default=50, description="annealing stops after this many steps without a new candidate"
    )
    start_temperature: PositiveFloat = Field(default=1.0, description="cooled linearly to 0")
    diversity_ratio: PositiveInt = Field(
        default=2, description="proposals to choose a plan from, as a multiple of `plan_size`"
    )
    diversity: NonNegativeFloat = Field(
        default=0.02,
        description="alpha: bonus for each knob value that is not in the plan yet, as a share of "
        "the range of scores",
    )
    model: CostModelOptions = CostModelOptions()
    acquisition: Literal["mean", "ei", "ucb"] = Field(
        default="mean",
        description="what chains maximise: one model's prediction (`mean`), or the expected "
        "improvement (`ei`) or upper confidence bound (`ucb`) of a bootstrap ensemble",
    )
    members: int = Field(
        default=5, ge=2, description="models of the ensemble, each on a bootstrap sample"
    )
    exploration: NonNegativeFloat = Field(
        default=1.0, description="ucb: standard deviations added to the mean"
    )


class Annealing(BaseStrategy):
    """AutoTVM's model-based tuner: annealing over an online model, batches chosen for diversity.

    The first ``plan_size`` candidates are random. Each new annealing continues the chains from
    their last states (``persistent`` in AutoTVM).
    """

    name = "annealing"
    source = "Chen et al. 2018 (AutoTVM), sections 3.2-3.3; TVM 0.16 xgboost_tuner.py"
    Options = AnnealingOptions
    options: AnnealingOptions

    def setup(self) -> None:
        o = self.options
        self._history = History(self.space)
        self._samples = Samples(self.space, self.rng)
        self._walk, self._mover = make_walk(self.space), Mover(self.space)
        self._model = OnlineCostModel(o.model, int(self.rng.integers(2**31)))
        if o.acquisition != "mean":
            self._model = BootstrapEnsemble(
                o.model, self.rng, o.members, o.acquisition, o.exploration
            )
        self._plan: list[Candidate] = []
        self._states: IntArray | None = None
        self._trained = 0

    def propose(self, n: int) -> Iterable[Candidate]:
        """Take from the plan; a share epsilon, and candidates beyond the plan, are random."""
        batch: list[Candidate] = []
        while self._plan and len(batch) < n:
            if self.rng.random() < self.options.epsilon:
                fresh = self._random(1, batch)
                if not fresh and self.options.epsilon == 1:
                    break  # the plan is never used, and no random candidate is left
                batch += fresh
            else:
                candidate = self._plan.pop(0)
                if candidate.candidate_id not in self.seen:
                    batch.append(candidate)
        return batch + self._random(n - len(batch), batch) if len(batch) < n else batch

    def _random(self, n: int, batch: Sequence[Candidate]) -> list[Candidate]:
        taken = self.seen | {c.candidate_id for c in batch} if batch else self.seen
        if not self.finite:
            return self._samples.take(n, taken)
        return sample_unseen(self.space, self.rng, n, taken)

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
            moved = walk.mutate(rng, states, self._mover)
            new = walk.scores(moved)
            accept = rng.random(len(new)) < np.exp(np.minimum((new - scores) / (t + 1e-5), 0.0))
            states = np.where(accept, moved, states)
            scores = np.where(accept, new, scores)
            if walk.visited() > found:
                last, found = step, walk.visited()
            elif step - last >= o.patience:
                break
        self._states = states


BAYES_EI = preset(
    Annealing,
    "bayes-ei",
    "Annealing over the expected improvement that a bootstrap ensemble predicts.",
    "Chen et al. 2018 (AutoTVM), section 5.1; expected improvement (Mockus 1978)",
    acquisition="ei",
    model=CostModelOptions(loss="squared"),
)
BAYES_UCB = preset(
    Annealing,
    "bayes-ucb",
    "Annealing over the upper confidence bound of a bootstrap ensemble.",
    "Chen et al. 2018 (AutoTVM), section 5.1; upper confidence bound (Auer 2002)",
    acquisition="ucb",
    model=CostModelOptions(loss="squared"),
)


def diverse(scores: FloatArray, codes: IntArray, n: int, alpha: float) -> list[int]:
    """Choose n that nearly maximise sum of scores + alpha x number of distinct knob values.

    Greedy; the objective is submodular (Chen et al. 2018, section 3.3, equation 3). ``codes`` has a
    row per candidate and a column per knob; equal numbers in a column are equal values.
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
