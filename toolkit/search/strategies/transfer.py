"""A model of other tasks, corrected online by what the run itself measures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from toolkit.errors import SearchError
from toolkit.records import Candidate, Trial
from toolkit.search.models.encoding import encode_all, value_codes
from toolkit.search.models.residual_process import FloatArray, ResidualOptions, ResidualProcess
from toolkit.search.moves.pool import sampled_pool
from toolkit.search.strategy import BaseStrategy, StrategyOptions, throughput

BoolArray = NDArray[np.bool_]
MEMORY = 2 * 10**7  # numbers that a process may keep: candidates times measurements, 160 MB


class TransferOptions(StrategyOptions):
    """Options of transfer."""

    exploration: float = Field(
        default=0.7, ge=0, description="standard deviations that are added to the mean (UCB)"
    )
    explore_every: int = Field(
        default=4,
        ge=0,
        description="every so many-th proposal has a knob value that was never measured; 0: none",
    )
    neighbour_every: int = Field(
        default=4,
        ge=0,
        description="every so many-th proposal is one decision away from the best so far; 0: none",
    )
    batch: int = Field(default=1, ge=1, description="proposals between two corrections, at first")
    growth: float = Field(
        default=0.1, ge=0, description="later this share of what was measured, if that is more"
    )
    most: int = Field(
        default=400,
        ge=1,
        description="measurements that are learnt from, fewer among more than 50,000 candidates; "
        "then the order stands",
    )
    samples: int = Field(
        default=1000, ge=1, description="candidates looked at where a space cannot be listed"
    )
    residuals: tuple[ResidualOptions, ...] = Field(
        default=(
            ResidualOptions(),
            ResidualOptions(main_length=4.0, interaction_length=6.0, noise=0.1),
        ),
        min_length=1,
        strict=False,
        description="the processes on the prediction's error, which propose in turn",
    )


class Transfer(BaseStrategy):
    """Upper confidence bound of prediction plus a Gaussian process on the prediction's error.

    The global model of Chen et al. stays as it is; the local model on its residual is a Gaussian
    process, which says something sensible after one measurement. Asks for one candidate at a time
    at first: each measurement corrects the next choice.

    No single process and no single rule is right for a task that nobody has seen, and one that is
    wrong can keep a run in the wrong region for a hundred measurements. So several take turns: a
    process that believes in quick changes and exact measurements and one that believes in slow
    changes and noise (a portfolio, as in Hoffman et al. 2011, with equal shares); now and then the
    best bound among the neighbours of the best so far, as coordinate descent would go; and the best
    bound among candidates with a knob value that was never measured. A run then takes a small
    multiple of what the rule that suits its task would have taken. In a space that cannot be
    listed, the choices of a batch are taken for measured when the next one is chosen.
    """

    name = "transfer"
    source = (
        "Chen et al. 2018 (AutoTVM), section 4: global plus local model; Srinivas et al. 2010; "
        "Hoffman et al. 2011 (portfolios); Desautels et al. 2014 (batches)"
    )
    Options = TransferOptions
    options: TransferOptions
    own_batches = True
    needs_scorer = True

    def setup(self) -> None:
        """Predict a finite space once."""
        self._pool: list[Candidate] = []
        self._trials: list[Trial] = []
        self._finite = False
        if self.space.size is not None:
            try:
                every = self.space.candidates()
            except SearchError:
                return
            self._finite = True
            self._set_pool(every)

    def _set_pool(self, candidates: Iterable[Candidate]) -> None:
        listed = list(candidates)
        # Equal scores must not come in recorded order: a log's order knows more than a model.
        self._pool = [listed[i] for i in self.rng.permutation(len(listed)).tolist()]
        self._number = {c.candidate_id: i for i, c in enumerate(self._pool)}
        scores = self.predictions(self._pool)
        known = scores[np.isfinite(scores)]
        scores = np.nan_to_num(scores, nan=known.min(initial=0.0), neginf=known.min(initial=0.0))
        columns = encode_all(self.space.sketches, self._pool)
        self._processes = [ResidualProcess(columns, scores, o) for o in self.options.residuals]
        # A row of numbers a measurement and process: a large space learns from fewer of them.
        self._most = min(self.options.most, max(MEMORY // max(len(self._pool), 1), 64))
        self._codes = value_codes(self.space.sketches, self._pool)
        sketches = {sketch.sketch_id: s for s, sketch in enumerate(self.space.sketches)}
        self._sketch = np.array([sketches[c.sketch_id] for c in self._pool], dtype=np.int64)
        self._best: tuple[float, int] | None = None
        self._values = self.values(columns)
        self._tried = np.zeros(int(self._values.max(initial=-1)) + 2, dtype=bool)
        self._tried[-1] = True  # a knob that a sketch does not have (-1) is nothing to try
        self._open = np.array([c.candidate_id not in self.seen for c in self._pool], dtype=bool)

    def values(self, columns: NDArray[np.float32]) -> NDArray[np.int64]:
        """Numbers of what counts as a value that may never have been measured: ``(n, values)``."""
        return self._codes

    def predictions(self, candidates: list[Candidate]) -> NDArray[np.float64]:
        """Log relative throughput of candidates by the model of other tasks."""
        assert self.scorer is not None
        return np.asarray(self.scorer.score(self.space, candidates), dtype=np.float64)

    def _refresh(self) -> None:
        """Sample a new pool, with everything measured in it, and learn that again."""
        measured = {trial.candidate.candidate_id: trial.candidate for trial in self._trials}
        fresh = sampled_pool(self.space, self.rng, self.options.samples, self._trials)
        self._set_pool({**measured, **{c.candidate_id: c for c in fresh}}.values())
        self._take_in_all()

    def propose(self, n: int) -> Iterable[Candidate]:
        """Return the candidates with the highest upper confidence bound, of each rule in turn."""
        if not self._finite:
            self._refresh()
        # Without a measurement the uncertain level is everybody's: the prediction decides.
        exploration = self.options.exploration if self._trials else 0.0
        bounds: dict[int, FloatArray] = {}
        measured = len(self._trials)
        chosen: list[int] = []
        for turn in range(measured, measured + min(n, self._batch())):
            which = turn % len(self._processes)
            if which not in bounds:
                mean, deviation = self._processes[which].posterior()
                bounds[which] = mean + exploration * deviation
            best = int(np.where(self._admitted(turn), bounds[which], -np.inf).argmax())
            if not self._open[best]:
                break
            chosen.append(best)
            self._open[best] = False
            self._tried[self._values[best]] = True
            if not self._finite:
                self._imagine(best)
                bounds.clear()
        return [self._pool[i] for i in chosen]

    def _imagine(self, number: int) -> None:
        """Take a choice for measured as expected, so that the next of its batch is another one.

        Means stay, deviations shrink around it (Desautels et al. 2014, GP-BUCB). The next pool
        begins with what was really measured, so these do not count towards ``most``. A finite space
        keeps its processes: there it is left.
        """
        for process in self._processes:
            process.add(number, float(process.posterior()[0][number]))

    def _batch(self) -> int:
        """Proposals before the next correction."""
        return max(self.options.batch, int(self.options.growth * len(self._trials)))

    def _admitted(self, turn: int) -> BoolArray:
        """Candidates among which this turn chooses: all, or where there are any, some of them."""
        o, some = self.options, self._open
        if not turn:
            return some
        if o.explore_every and (turn + 1) % o.explore_every == 0:
            some = self._novel() & self._open
        elif o.neighbour_every and (turn + 2) % o.neighbour_every == 0 and self._best is not None:
            best = self._best[1]
            differing = (self._codes != self._codes[best]).sum(axis=1)
            some = (differing == 1) & (self._sketch == self._sketch[best]) & self._open
        return some if some.any() else self._open

    def _novel(self) -> BoolArray:
        """Candidates with a value that was never measured."""
        return np.asarray(~self._tried[self._values].all(axis=1))

    def learn(self, trials: Sequence[Trial]) -> None:
        """Correct the prediction."""
        for trial in trials:
            self._trials.append(trial)
            if self._finite:
                self._take_in(trial)

    def _take_in_all(self) -> None:
        """Learn every measurement again in a new pool; where they are too many, the latest."""
        for trial in reversed(self._trials):
            self._take_in(trial)

    def _take_in(self, trial: Trial) -> None:
        number = self._number.get(trial.candidate.candidate_id)
        if number is None:
            return
        self._tried[self._values[number]] = True
        speed = throughput(trial)
        if speed > 0 and (self._best is None or speed > self._best[0]):
            self._best = (speed, number)
        for process in self._processes:
            if len(process) < self._most:
                process.add(number, float(np.log(speed)) if speed > 0 else -np.inf)
