"""A model of other tasks, corrected online by what the run itself measures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from pydantic import Field

from toolkit.errors import SearchError
from toolkit.records import Candidate, Trial
from toolkit.search.encoding import encode_all, value_codes
from toolkit.search.pool import sampled_pool
from toolkit.search.residual_process import ResidualOptions, ResidualProcess
from toolkit.search.strategy import BaseStrategy, StrategyOptions, throughput


class TransferOptions(StrategyOptions):
    """Options of transfer."""

    exploration: float = Field(
        default=1.0, ge=0, description="standard deviations that are added to the mean (UCB)"
    )
    explore_every: int = Field(
        default=4,
        ge=0,
        description="every so many-th proposal has a knob value that was never measured; 0: none",
    )
    batch: int = Field(default=1, ge=1, description="proposals between two corrections, at first")
    growth: float = Field(
        default=0.1, ge=0, description="later this share of what was measured, if that is more"
    )
    most: int = Field(
        default=400, ge=1, description="measurements that are learnt from; then the order stands"
    )
    samples: int = Field(
        default=1000, ge=1, description="candidates looked at where a space cannot be listed"
    )
    residual: ResidualOptions = ResidualOptions()


class Transfer(BaseStrategy):
    """Upper confidence bound of prediction plus a Gaussian process on the prediction's error.

    The global model of Chen et al. stays as it is; the local model on its residual is a Gaussian
    process, which says something sensible after one measurement. Asks for one candidate at a time
    at first: each measurement corrects the next choice. What neither model can know is looked for
    now and then: the best bound among candidates with a knob value that was never measured.
    """

    name = "transfer"
    source = "Chen et al. 2018 (AutoTVM), section 4: global plus local model; Srinivas et al. 2010"
    Options = TransferOptions
    options: TransferOptions
    needs_scorer = True

    def setup(self) -> None:
        """Predict a finite space once."""
        self._pool: list[Candidate] = []
        self._trials: list[Trial] = []
        self._finite = False
        if self.space.size is not None:
            try:
                self._set_pool(self.space.candidates())
                self._finite = True
            except SearchError:
                pass

    def _set_pool(self, candidates: Iterable[Candidate]) -> None:
        listed = list(candidates)
        # Equal scores must not come in recorded order: a log's order knows more than a model.
        self._pool = [listed[i] for i in self.rng.permutation(len(listed)).tolist()]
        self._number = {c.candidate_id: i for i, c in enumerate(self._pool)}
        assert self.scorer is not None
        scores = np.asarray(self.scorer.score(self.space, self._pool), dtype=np.float64)
        known = scores[np.isfinite(scores)]
        scores = np.nan_to_num(scores, nan=known.min(initial=0.0), neginf=known.min(initial=0.0))
        columns = encode_all(self.space.sketches, self._pool)
        self._process = ResidualProcess(columns, scores, self.options.residual)
        self._codes = value_codes(self.space.sketches, self._pool)
        self._tried = np.zeros(int(self._codes.max(initial=-1)) + 2, dtype=bool)
        self._tried[-1] = True  # a knob that a sketch does not have (-1) is nothing to try
        self._open = np.array([c.candidate_id not in self.seen for c in self._pool], dtype=bool)

    def _refresh(self) -> None:
        """Sample a new pool, with everything measured in it, and learn that again."""
        measured = {trial.candidate.candidate_id: trial.candidate for trial in self._trials}
        fresh = sampled_pool(self.space, self.rng, self.options.samples, self._trials)
        self._set_pool({**measured, **{c.candidate_id: c for c in fresh}}.values())
        for trial in self._trials[-self.options.most :]:
            self._take_in(trial)

    def propose(self, n: int) -> Iterable[Candidate]:
        """Return the candidates with the highest upper confidence bound."""
        if not self._finite:
            self._refresh()
        mean, deviation = self._process.posterior()
        # Without a measurement the uncertain level is everybody's: the prediction decides.
        bonus = self.options.exploration * deviation if len(self._process) else 0.0
        bound = np.where(self._open, mean + bonus, -np.inf)
        size = min(n, max(self.options.batch, int(self.options.growth * len(self._trials))))
        chosen: list[int] = []
        every = self.options.explore_every
        for turn in range(len(self._trials), len(self._trials) + size):
            wanted = bound
            if every and turn and turn % every == 0:
                new = ~self._tried[self._codes].all(axis=1) & self._open
                wanted = np.where(new, bound, -np.inf) if new.any() else bound
            best = int(wanted.argmax())
            if not self._open[best]:
                break
            chosen.append(best)
            self._open[best], bound[best] = False, -np.inf
            self._tried[self._codes[best]] = True
        return [self._pool[i] for i in chosen]

    def learn(self, trials: Sequence[Trial]) -> None:
        """Correct the prediction."""
        for trial in trials:
            self._trials.append(trial)
            if self._finite and len(self._process) < self.options.most:
                self._take_in(trial)

    def _take_in(self, trial: Trial) -> None:
        number = self._number.get(trial.candidate.candidate_id)
        if number is not None:
            speed = throughput(trial)
            self._process.add(number, float(np.log(speed)) if speed > 0 else -np.inf)
