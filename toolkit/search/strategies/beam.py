"""Beam search over decisions in the order in which the schedule makes them.

Adams et al. 2019, "Learning to Optimize Halide with Tree Search and Random Programs", sections 3
and 5. A state is a prefix of decisions; its score is the best (or a quantile of the) predicted
value over the candidates that complete it. Passes go from coarse to fine: each keeps only the
best state of each coarse hash. The hash ignores the inner decisions, so that the beam stays diverse
in the outer ones; later passes refine the surviving states. Between measurements states are dropped
at random, the model is trained again, and the beam is run again (the paper's autotuning mode).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from pydantic import Field, PositiveInt

from toolkit.records import Candidate, Trial
from toolkit.search.models.cost_model import CostModelOptions, History, OnlineCostModel
from toolkit.search.models.encoding import sketch_numbers, value_codes
from toolkit.search.moves.knobs import FloatArray, IntArray
from toolkit.search.moves.movers import sampled_pool
from toolkit.search.strategy import BaseStrategy, Share, StrategyOptions, sample_unseen, take


class BeamOptions(StrategyOptions):
    """Options of beam search."""

    round_size: PositiveInt = Field(default=32, description="measurements between two trainings")
    width: PositiveInt = Field(default=32, description="states kept at each decision")
    passes: PositiveInt = Field(default=5, description="coarse-to-fine passes (Halide: 5)")
    keep: float = Field(
        default=0.7, gt=0, le=1, description="probability of keeping a state while autotuning"
    )
    quantile: Share = Field(
        default=1.0, description="a state's score is this quantile of its predictions; 1: the best"
    )
    samples: PositiveInt = Field(
        default=1000, description="candidates considered if the space cannot be listed"
    )
    model: CostModelOptions = CostModelOptions()


class Beam(BaseStrategy):
    """A beam search over decisions, coarse to fine, with random dropout between trainings.

    A throughput model of other tasks guides the first round. Without such a model, the first round
    is random.
    """

    name = "beam"
    source = "Adams et al. 2019 (Halide), sections 3 and 5"
    Options = BeamOptions
    options: BeamOptions

    def setup(self) -> None:
        self._history = History(self.space)
        self._trials: list[Trial] = []
        self._model = OnlineCostModel(self.options.model, int(self.rng.integers(2**31)))
        self._plan: list[Candidate] = []
        if self.finite:
            self._set_pool(self.space.candidates())

    def _set_pool(self, candidates: Sequence[Candidate]) -> None:
        self._pool = list(candidates)
        sketches = self.space.sketches
        first = sketch_numbers(sketches, self._pool)
        self._codes = np.column_stack([first, value_codes(sketches, self._pool)])

    def propose(self, n: int) -> Iterable[Candidate]:
        if not self._plan:
            self._plan = self._round()
        return take(self._plan, n)

    def learn(self, trials: Sequence[Trial]) -> None:
        self._history.add(trials)
        self._trials += trials

    def _round(self) -> list[Candidate]:
        o = self.options
        if not self.finite:
            self._set_pool(sampled_pool(self.space, self.rng, o.samples, self._trials))
        scores = self._scores()
        if scores is None:
            return sample_unseen(self.space, self.rng, o.round_size, self.seen)
        open_ = np.array([c.candidate_id not in self.seen for c in self._pool], dtype=bool)
        chosen: list[int] = []
        dropout = 1.0  # the first run of a round keeps everything
        for _ in range(4 * o.passes):
            rows = np.flatnonzero(open_)
            if len(chosen) >= o.round_size or not len(rows):
                break
            found = self._run(rows, scores, dropout)[: o.round_size - len(chosen)]
            chosen += found.tolist()
            open_[found] = False
            dropout = o.keep
        return [self._pool[i] for i in chosen]

    def _scores(self) -> FloatArray | None:
        if len(self._history):
            self._model.fit(self._history.features(), self._history.throughput())
        if self._model.fitted:
            scores = self._model.predict(self.space.features(self._pool))
        elif self.scorer is not None:
            scores = np.asarray(self.scorer.score(self.space, self._pool), dtype=np.float64)
        else:
            return None
        # Ties are broken at random: the order of a record must not help.
        ascending = np.lexsort((self.rng.random(len(scores)), scores))
        return np.argsort(ascending).astype(np.float64)

    def _run(self, rows: IntArray, scores: FloatArray, keep: float) -> IntArray:
        """One coarse-to-fine run over the open rows; complete candidates, best first."""
        o = self.options
        complete = rows
        for number in range(o.passes):
            # Number of decisions in the coarse hash: all of them in the last pass.
            depth = 1 + round((self._codes.shape[1] - 1) * (number + 1) / o.passes)
            complete = self._pass(rows, scores, keep, depth)
            # The next pass refines only the hashes that survived this one.
            survived = _hash(self._codes[complete, :depth])
            rows = rows[np.isin(_hash(self._codes[rows, :depth]), survived)]
        return complete[np.argsort(-scores[complete], kind="stable")]

    def _pass(self, rows: IntArray, scores: FloatArray, keep: float, depth: int) -> IntArray:
        """Extend prefixes decision by decision; return the rows that were completed."""
        o, levels = self.options, self._codes.shape[1]
        coarse = _hash(self._codes[rows, :depth])
        prefix = np.zeros(len(rows), dtype=np.int64)
        for level in range(levels):
            _, prefix = np.unique(
                np.column_stack([prefix, self._codes[rows, level]]), axis=0, return_inverse=True
            )
            prefix = prefix.reshape(-1)
            values = _group_quantile(prefix, scores[rows], o.quantile)
            order = np.argsort(-values, kind="stable")
            if keep < 1.0:
                kept = order[self.rng.random(len(order)) < keep]
                order = kept if len(kept) else order[:1]
            # Before the coarse depth, the hash does not separate prefixes yet.
            if level >= depth - 1:
                # Keep the best state of each coarse hash; the order is best first.
                of_state = np.empty(int(prefix.max(initial=-1)) + 1, dtype=np.int64)
                of_state[prefix] = coarse
                _, first = np.unique(of_state[order], return_index=True)
                order = order[np.sort(first)]
            inside = np.isin(prefix, order[: o.width])
            rows, prefix, coarse = rows[inside], prefix[inside], coarse[inside]
        return rows


def _hash(codes: IntArray) -> IntArray:
    """Hash of each row, the same in every pass (codes are small)."""
    out = np.zeros(len(codes), dtype=np.int64)
    for column in range(codes.shape[1]):
        out = out * np.int64(1_000_003) + codes[:, column] + 2
    return out


def _group_quantile(group: IntArray, values: FloatArray, quantile: float) -> FloatArray:
    """Quantile (by order, no interpolation) of the values in each group 0 to k - 1."""
    order = np.lexsort((values, group))
    sizes = np.bincount(group)
    starts = np.r_[0, np.cumsum(sizes)[:-1]]
    return np.asarray(values[order][starts + np.round(quantile * (sizes - 1)).astype(np.int64)])
