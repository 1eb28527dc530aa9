"""A model of other tasks, corrected online by what the run itself measures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import numpy as np
from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt

from toolkit.errors import SearchError
from toolkit.records import Candidate, Trial
from toolkit.search.base import Learner, Scorer
from toolkit.search.models.encoding import encode_all, number_codes, sketch_numbers, value_codes
from toolkit.search.models.potential import finite, potential_of
from toolkit.search.models.residual_process import ResidualOptions, ResidualProcess
from toolkit.search.moves.knobs import BoolArray, FloatArray
from toolkit.search.moves.movers import sampled_pool
from toolkit.search.strategy import BaseStrategy, StrategyOptions, preset, shuffled, throughput

MEMORY = 2 * 10**7  # numbers that a process may keep: candidates times measurements, 160 MB
BRED_BATCH = 8  # minimum proposals of a bred pool: breeding takes as long as several measurements


class TransferOptions(StrategyOptions):
    """Options of transfer."""

    exploration: NonNegativeFloat = Field(
        default=0.7, description="standard deviations added to the mean (UCB)"
    )
    explore_every: NonNegativeInt = Field(
        default=4,
        description="one proposal in this many has a knob value that was never measured; 0: none",
    )
    neighbour_every: NonNegativeInt = Field(
        default=4,
        description="one proposal in this many is one decision away from the best so far; 0: none",
    )
    batch: PositiveInt = Field(default=1, description="initial proposals between two corrections")
    growth: NonNegativeFloat = Field(
        default=0.1, description="later this share of the number of measurements, if larger"
    )
    most: PositiveInt = Field(
        default=400,
        description="maximum measurements to learn from (fewer with more than 50,000 candidates); "
        "later ones no longer correct the predictions",
    )
    samples: PositiveInt = Field(
        default=1000, description="candidates considered if the space cannot be listed"
    )
    residuals: tuple[ResidualOptions, ...] = Field(
        default=(
            ResidualOptions(),
            ResidualOptions(main_length=4.0, interaction_length=6.0, noise=0.1),
        ),
        min_length=1,
        strict=False,
        description="the Gaussian processes on the prediction's error; they propose in turn",
    )
    pool: Literal["sampled", "bred"] = Field(
        default="sampled",
        description="if the space cannot be listed: `sampled` draws candidates at random before "
        "each batch, `bred` also evolves them for a high bound",
    )
    generations: NonNegativeInt = Field(default=2, description="bred: generations of each pool")
    first: PositiveInt = Field(
        default=4,
        description="bred: factor on the candidates for the first proposals (above 1, also twice "
        "the generations)",
    )
    parents: PositiveInt = Field(
        default=64, description="bred: number of best candidates that are mutated"
    )
    children: PositiveInt = Field(default=4, description="bred: mutants of each parent")
    prior: Literal["throughput", "directions"] = Field(
        default="throughput",
        description="the model of other tasks: predicted throughput, or the potential of predicted "
        "directions",
    )
    levels: NonNegativeFloat = Field(
        default=0.0,
        description="directions: weight of predicted throughput, as further equations (in the mean "
        "of both if the space cannot be listed); 0: none",
    )


class Transfer(BaseStrategy):
    """Upper confidence bound: a prediction plus a Gaussian process on the prediction's error.

    The global model of Chen et al. stays as it is. The local model on its residual is a Gaussian
    process, which is already useful after one measurement. At first the strategy asks for one
    candidate at a time, so that each measurement corrects the next choice.

    No single process or rule is right for every unseen task. A wrong one can keep a run in the
    wrong region for a hundred measurements. So several take turns. One process assumes quick
    changes and exact measurements, another one slow changes and noise (a portfolio with equal
    shares, as in Hoffman et al. 2011). Some proposals have the best bound among the neighbours of
    the best so far, as in coordinate descent. Others have the best bound among candidates with a
    knob value that was never measured. A run then takes a small multiple of the measurements that
    the best rule for its task would take. In a space that cannot be listed, the choices of a batch
    count as measured when the next one is chosen.
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
        self._trials: list[Trial] = []
        self._predicted: dict[str, float] = {}
        self._bred = self.options.pool == "bred" and not self.finite
        if self.finite:
            self._set_pool(self.space.candidates())

    @classmethod
    def models_for(cls, options: Any) -> set[str]:
        alone = options.prior == "directions"
        prior = {"mutation"} if alone else {"throughput"}
        levels = {"throughput"} if alone and options.levels else set()
        return super().models_for(options) | prior | levels

    def _set_pool(self, candidates: Sequence[Candidate]) -> None:
        self._pool = shuffled(self.rng, candidates)
        self._number = {c.candidate_id: i for i, c in enumerate(self._pool)}
        scores = finite(self._predictions())
        sketches = self.space.sketches
        columns = encode_all(sketches, self._pool)
        self._processes = [ResidualProcess(columns, scores, o) for o in self.options.residuals]
        # A row of numbers per measurement and process: a large space learns from fewer of them.
        self._most = min(self.options.most, max(MEMORY // max(len(self._pool), 1), 64))
        self._codes = value_codes(sketches, self._pool)
        self._sketch = sketch_numbers(sketches, self._pool)
        self._best: tuple[float, int] | None = None
        # What counts as new: knob values that were never measured. In a large space nearly every
        # tile is new; in a bred pool single factors count instead.
        self._values = number_codes(columns) if self._bred else self._codes
        self._tried = np.zeros(int(self._values.max(initial=-1)) + 2, dtype=bool)
        self._tried[-1] = True  # a knob that a sketch does not have (-1) is nothing to try
        self._open = np.array([c.candidate_id not in self.seen for c in self._pool], dtype=bool)

    def _predictions(self) -> FloatArray:
        """Predicted log relative throughput of the pool; each candidate is predicted once."""
        if self.options.prior == "directions" and self.finite:
            weight = self.options.levels
            return potential_of(
                self.space,
                self._pool,
                self.require(self.direction_scorer, "mutation"),
                self.require(self.scorer, "throughput") if weight else None,
                weight,
            )
        new = [c for c in self._pool if c.candidate_id not in self._predicted]
        if new:
            scores = self._scores(new).tolist()
            self._predicted.update(zip((c.candidate_id for c in new), scores, strict=True))
        return np.array([self._predicted[c.candidate_id] for c in self._pool], dtype=np.float64)

    def _scores(self, candidates: Sequence[Candidate]) -> FloatArray:
        """Predictions of the model of other tasks for candidates."""
        weight = self.options.levels if self.options.prior == "directions" else 1.0
        total = np.zeros(len(candidates))
        if weight:
            throughput_model = self.require(self.scorer, "throughput")
            total += weight * np.asarray(throughput_model.score(self.space, candidates))
        if self.options.prior == "directions":
            directions = self.require(self.direction_scorer, "mutation")
            if not isinstance(directions, Scorer):
                raise SearchError(
                    f"strategy {self.name!r} needs a finite space for a mutation model that "
                    "predicts single steps only, and this space cannot be listed",
                    cure="train the mutation model with method = 'expected' (the default)",
                )
            total = (total + directions.score(self.space, candidates)) / (1.0 + weight)
        return total

    def _refresh(self) -> None:
        """Sample a new pool that holds all measured candidates; breed it if ``pool`` says so."""
        o = self.options
        if isinstance(self.scorer, Learner) and self.scorer.refresh():
            self._predicted.clear()
        # The first proposals depend on the prediction alone: their pool is larger.
        more = o.first if self._bred and not self._trials else 1
        samples, parents = more * o.samples, more * o.parents
        self._fill(sampled_pool(self.space, self.rng, samples, self._trials))
        for _ in range(min(more, 2) * o.generations if self._bred else 0):
            order = np.argsort(-self._bound(), kind="stable")
            best = [self._pool[i] for i in order[: max(parents, samples // 2)].tolist()]
            # Without these, the turns for new knob values would find none.
            rest = order[parents:]
            novel = rest[self._novel()[rest]]
            new = [self._pool[i] for i in novel[: samples // 4].tolist()]
            children = self._children([*best[:parents], *new[: parents // 4]])
            self._fill([*best, *new, *children])

    def _fill(self, candidates: Iterable[Candidate]) -> None:
        """Replace the pool, and learn all measurements again; if too many, the latest."""
        measured = [trial.candidate for trial in self._trials]
        self._set_pool(list({c.candidate_id: c for c in [*measured, *candidates]}.values()))
        for trial in reversed(self._trials):
            self._take_in(trial)

    def _bound(self) -> FloatArray:
        """Upper confidence bound of the pool, the mean over the processes."""
        bounds = [self._bound_of(process) for process in self._processes]
        return np.asarray(np.where(self._open, np.mean(bounds, axis=0), -np.inf))

    def _bound_of(self, process: ResidualProcess) -> FloatArray:
        mean, deviation = process.posterior()
        # Before any measurement the level is equally uncertain for all: the prediction decides.
        return mean + (self.options.exploration if self._trials else 0.0) * deviation

    def _children(self, parents: Sequence[Candidate]) -> list[Candidate]:
        found: list[Candidate] = []
        for parent in parents:
            directions = self.space.directions(parent)
            if not directions:
                continue
            for i in self.rng.integers(len(directions), size=self.options.children).tolist():
                moved = self.space.mutate(parent, directions[i], self.rng)
                if moved is not None:
                    found.append(moved)
        return found

    def propose(self, n: int) -> Iterable[Candidate]:
        """Return the candidates with the highest upper confidence bound, of each rule in turn."""
        if not self.finite:
            self._refresh()
        bounds: dict[int, FloatArray] = {}
        measured = len(self._trials)
        # Number of proposals before the next correction.
        size = max(self.options.batch, int(self.options.growth * measured))
        if self._bred:
            size = max(size, BRED_BATCH)
        chosen: list[int] = []
        for turn in range(measured, measured + min(n, size)):
            which = turn % len(self._processes)
            if which not in bounds:
                bounds[which] = self._bound_of(self._processes[which])
            best = int(np.where(self._admitted(turn), bounds[which], -np.inf).argmax())
            if not self._open[best]:
                break
            chosen.append(best)
            self._open[best] = False
            self._tried[self._values[best]] = True
            if not self.finite:
                self._imagine(best)
                bounds.clear()
        return [self._pool[i] for i in chosen]

    def _imagine(self, number: int) -> None:
        """Count a choice as measured with its mean, so that the next one of its batch differs.

        Means stay, deviations shrink around it (Desautels et al. 2014, GP-BUCB). The next pool
        begins with the real measurements, so these do not count towards ``most``. Not used in a
        finite space, which keeps its processes.
        """
        for process in self._processes:
            process.add(number, float(process.posterior()[0][number]))

    def _admitted(self, turn: int) -> BoolArray:
        """Mask of the candidates for this turn: those of its rule, or all if the rule has none."""
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
        self._trials += trials
        for trial in trials if self.finite else ():
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


TRANSFER_EVOLVED = preset(
    Transfer,
    "transfer-evolved",
    """Transfer with a pool that is bred for its own bound, not drawn at random.

    In a space that cannot be listed, a random sample rarely holds the candidates that either model
    prefers. Before each batch, the pool is mutated for a few generations where the bound
    (prediction, correction and uncertainty) is highest. Some of the candidates that are kept have a
    tile factor that was never measured, for the proposals that need a new knob value. In a finite
    space the strategy is the same as ``transfer``.
    """,
    "transfer; the evolution is that of Zheng et al. 2020 (Ansor), section 5",
    batch=8,
    samples=500,
    pool="bred",
)
POTENTIAL = preset(
    Transfer,
    "potential",
    """Transfer from directions alone: values whose differences best fit the predicted steps.

    A model of directions predicts the gain of each single step. No single prediction is certain, so
    the potential fits all steps of the space at once by least squares. A run measures in the order
    of the potential, and corrects it as ``transfer`` corrects predicted throughput. With
    ``levels``, the predictions of a throughput model are further equations of the same fit.

    In a space that cannot be listed there is no fit. The values are then the mutation model's own
    predictions, whose differences are its gains. This needs a mutation model of the method
    ``expected``. The pool is bred as in ``transfer-evolved``.
    """,
    "Jiang et al. 2011 (HodgeRank); transfer",
    flags={"needs_scorer": False, "needs_direction_scorer": True},
    prior="directions",
    samples=500,
    pool="bred",
)
