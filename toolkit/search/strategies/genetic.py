"""AutoTVM's genetic tuner (TVM 0.16, ``autotvm/tuner/ga_tuner.py``), with its defaults."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import repeat
from operator import attrgetter
from typing import Any

import numpy as np
from pydantic import Field, NonNegativeInt

from toolkit.records import Candidate, Trial
from toolkit.search.base import Indexed
from toolkit.search.moves.genes import Genes, LatticeGenes
from toolkit.search.strategy import BaseStrategy, Share, StrategyOptions, candidate_id, throughputs

_measured_id: Callable[[Trial], str] = attrgetter("candidate.candidate_id")
# Marks a gene that was not measured: no latency is negative, and a failure has no latency.
UNKNOWN = -1.0
_latency_s: Callable[[Trial], float | None] = attrgetter("latency_s")


class GeneticOptions(StrategyOptions):
    """Options of the genetic tuner; the defaults are AutoTVM's."""

    population: int = Field(default=100, ge=2, description="configurations of a generation")
    elites: NonNegativeInt = Field(default=3, description="fastest genes that stay parents")
    mutation: Share = Field(default=0.1, description="probability that a knob mutates")
    revisit: bool = Field(
        default=True,
        description="true: children may repeat earlier ones and are measured again (TVM 0.11 and "
        "later); false: children are mutated until they are new (TVM 0.10 and older)",
    )
    wrap: bool = Field(
        default=True,
        description="a batch that reaches the generation's end continues with its first genes",
    )


class Genetic(BaseStrategy):
    """AutoTVM's genetic tuner: parents drawn by throughput, one-point crossover, mutation.

    AutoTVM measures a gene again when it is bred again. Its last batch of a generation wraps around
    to the first genes. Both cost evaluations. ``revisit = false`` and ``wrap = false`` avoid them.
    """

    name = "genetic"
    source = "AutoTVM, GATuner (TVM 0.16, autotvm/tuner/ga_tuner.py)"
    Options = GeneticOptions
    options: GeneticOptions

    def setup(self) -> None:
        o, space = self.options, self.space
        self.repeats = o.revisit or o.wrap
        self._genes = Genes(space)
        if isinstance(space, Indexed):
            self._genes = space.graph.keep("genes", partial(LatticeGenes, space))
        self._size = float("inf") if space.size is None else space.size
        self._population = int(min(o.population, self._size))
        self._visited: set[str] = set()
        self._begin(self._genes.random(self.rng, self._population, set()))
        self._elites, self._elite_values = self._generation[:0], np.zeros(0)

    def _begin(self, genes: Any) -> None:
        self._generation = genes
        self._candidates = self._genes.candidates(genes)
        self._ids = list(map(candidate_id, self._candidates))
        self._visited.update(self._ids)
        self._asked = 0
        self._told: list[Trial] = []

    def _allowed(self) -> float:
        """How many more may be proposed before all were visited (``has_next`` in AutoTVM)."""
        if len(self._visited) < self._size:
            return float("inf")
        left = max(len(self._candidates) - self._asked, 0)
        return max(left - (len(self._visited) - self._size), 0)

    def propose(self, n: int) -> Iterable[Candidate]:
        if self._candidates and self._asked >= len(self._candidates):
            self._breed()
        count = len(self._candidates)
        if not count:
            return []
        size = int(min(n, self._allowed()))
        if not self.options.wrap:
            size = min(size, count - self._asked)
        begin = self._asked % count
        self._asked += size
        batch = self._candidates[begin : begin + size]
        while len(batch) < size:
            batch += self._candidates[: size - len(batch)]
        return batch

    def learn(self, trials: Sequence[Trial]) -> None:
        self._told += trials

    def _breed(self) -> None:
        o, rng, genes = self.options, self.rng, self._genes
        left = self._size - len(self._visited)
        if left <= 0:
            self._candidates = []
            return
        if left <= self._population:
            self._begin(genes.rest(self._visited))
            return
        # The first latency of each gene (AutoTVM drops those of a wrapped batch): from last to
        # first, so that the first trial of a candidate stays.
        told = self._told[::-1]
        first = dict(zip(map(_measured_id, told), map(_latency_s, told), strict=True))
        # An unrecorded gene has no score and cannot be a parent.
        known = list(map(first.get, self._ids, repeat(UNKNOWN)))
        latencies = np.array(known, dtype=np.float64)
        measured = (latencies != UNKNOWN).nonzero()[0]
        parents = np.concatenate([self._generation[measured], self._elites])
        values = np.concatenate([throughputs(latencies[measured]), self._elite_values])
        if len(values) < 2:
            self._begin(genes.random(rng, self._population, self._visited))
            return
        top = np.argsort(values, kind="stable")[len(values) - min(o.elites, len(values)) :]
        self._elites, self._elite_values = parents[top], values[top]
        weights = values + 1e-8 * max(values.max(), 1e-300)
        weights /= weights.sum()
        visited = None if o.revisit else self._visited
        self._begin(genes.breed(rng, parents, weights, self._population, o.mutation, visited))
