"""Droplet search exactly as TVM publishes it, defects included, to compare with.

TVM 0.16, ``autotvm/tuner/droplet_tuner.py``. Its defects are kept on purpose: the last queued
candidate of every batch is dropped; a coordinate past its upper end wraps around to the lower; a
configuration that the template forbids shifts the results behind it to the wrong candidates; the
stop on an all-invalid neighbourhood never happens, because nothing counts the iterations.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from pydantic import Field

from toolkit.records import Candidate, Trial
from toolkit.search.lattice import Lattice
from toolkit.search.steps import t_test_p_value
from toolkit.search.strategy import BaseStrategy, StrategyOptions

Point = tuple[int, ...]


class DropletFaithfulOptions(StrategyOptions):
    """Options of TVM's droplet tuner."""

    p_value: float = Field(default=0.05, gt=0, le=1)
    first_batch: int = Field(default=16, ge=1, description="TVM: 16, or the number of cores")


class DropletFaithful(BaseStrategy):
    """TVM's droplet tuner over the grid of configuration indices."""

    name = "droplet-faithful"
    source = "TVM 0.16, autotvm/tuner/droplet_tuner.py"
    Options = DropletFaithfulOptions
    options: DropletFaithfulOptions
    needs_finite = True

    def setup(self) -> None:
        """Begin at the lowest value of every knob."""
        self._lattice = Lattice(self.space)
        self._dims: list[int] = self._lattice.dims.tolist()
        start: Point = (0,) * len(self._dims)
        self._best: tuple[Point, tuple[float, ...]] = (start, (99999.0,))
        self._visited = {start}
        self._execution, self._longest = 1, max(self._dims, default=1)
        self._batch = self.options.first_batch
        self._next: list[Point] = [start]

    def _directions(self, factor: int) -> Iterator[Point]:
        """All non-empty sets of coordinates, each up and then down by ``factor``."""
        n = len(self._dims)
        for bits in range(2**n - 1, 0, -1):
            up = tuple(factor * (bits >> (n - 1 - i) & 1) for i in range(n))
            yield up
            yield tuple(-x for x in up)

    def _positions(self, factor: int) -> list[Point]:
        found: list[Point] = []
        for move in self._directions(factor):
            if len(found) > self._batch:
                break
            here = self._best[0]
            point = tuple(
                (x + y) % d if x + y > 0 else 0
                for x, y, d in zip(move, here, self._dims, strict=True)
            )
            if point not in self._visited:
                self._visited.add(point)
                found.append(point)
        return found

    def _speculate(self) -> None:
        while len(self._next) < self._batch and self._execution < self._longest:
            self._execution += 1
            self._next += self._positions(self._execution)

    def propose(self, n: int) -> Iterable[Candidate]:
        """Return the queue's first n, without those that the template forbids."""
        self._batch = n
        while self._next:
            points = np.array(self._next[:n], dtype=np.int64).reshape(-1, len(self._dims))
            asked = [c for c in self._lattice.candidates(points) if c is not None]
            if asked:
                self._asked = asked
                return asked
            self._advance([])  # a batch of forbidden ones: TVM measures nothing and goes on
        return []

    def learn(self, trials: Sequence[Trial]) -> None:
        """Move to what is better; the i-th result belongs to the i-th queued point (a defect)."""
        by_id = {trial.candidate.candidate_id: trial for trial in trials}
        self._advance([by_id.get(candidate.candidate_id) for candidate in self._asked])

    def _advance(self, results: Sequence[Trial | None]) -> None:
        found = False
        for point, trial in zip(self._next, results, strict=False):
            if trial is None or trial.latency_s is None:
                continue
            best = self._best[1]
            if sum(best) / len(best) <= trial.latency_s:
                continue
            single = min(len(best), len(trial.run_times_s)) <= 1
            if single or t_test_p_value(best, trial.run_times_s) <= self.options.p_value:
                self._best = (point, trial.run_times_s)
                found = True
        self._next = self._next[self._batch : -1]
        if found:
            self._next += self._positions(1)
            self._execution = 1
        self._speculate()
