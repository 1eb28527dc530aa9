"""Droplet search exactly as published, defects included, for comparison.

Two versions are in use, and logs of both exist: the one of the published experiments
(lac-dcc/DropletSearch, early 2023, ``droplet_turner.py``) and the one that TVM 0.13 to 0.16 carry
(``autotvm/tuner/droplet_tuner.py``). Replaying recorded runs through these classes gives the
recorded order of configurations, one by one.

Defects that are kept on purpose. 2023: visited places are not measured again, yet results are
matched to the whole queue by position, so that a better result can move the search to a wrong
place. TVM: the last queued candidate of every batch is dropped; a coordinate past its upper
end wraps around; a configuration that the template forbids shifts the results behind it; the
stop on an all-invalid neighbourhood never happens, because nothing counts the iterations.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import numpy as np
from pydantic import Field

from toolkit.records import Candidate, Trial
from toolkit.search.moves.lattice import Lattice
from toolkit.search.moves.steps import beats
from toolkit.search.strategy import BaseStrategy, StrategyOptions, take

Point = tuple[int, ...]
Times = tuple[float, ...]


class DropletFaithfulOptions(StrategyOptions):
    """Options of the published tuners."""

    version: Literal["2023", "tvm"] = Field(
        "2023", description="the published experiments' code, or TVM 0.13 to 0.16"
    )
    p_value: float = Field(
        default=0.05, gt=0, le=1, description="largest p-value of a move's t-test on the repeats"
    )


class DropletFaithful(BaseStrategy):
    """The published droplet tuners over the grid of configuration indices."""

    name = "droplet-faithful"
    source = "lac-dcc/DropletSearch (2023); TVM 0.16, autotvm/tuner/droplet_tuner.py"
    Options = DropletFaithfulOptions
    options: DropletFaithfulOptions
    own_batches = True
    needs_finite = True

    def setup(self) -> None:
        o = self.options
        self._lattice = Lattice.of(self.space)
        tuner = _Tuner2023 if o.version == "2023" else _TunerTVM
        self._tuner = tuner(self._lattice.dims.tolist(), o.p_value)
        self._waiting: list[Candidate] = []
        self._asked: list[Candidate] = []
        self._results: dict[str, Trial] = {}

    def propose(self, n: int) -> Iterable[Candidate]:
        """Return the rest of the tuner's batch, or the next one."""
        # If the template forbids the whole batch, nothing is measured and TVM goes on.
        while not self._waiting and self._tuner.has_next():
            if self._asked:
                self._update()
                continue
            points = self._tuner.next_batch(n)
            rows = np.array(points, dtype=np.int64).reshape(len(points), len(self._tuner.dims))
            known = self._lattice.candidates(rows)
            self._asked = [candidate for candidate in known if candidate is not None]
            self._waiting = list(self._asked)
            if not self._asked:
                self._tuner.update([])
        return take(self._waiting, n)

    def learn(self, trials: Sequence[Trial]) -> None:
        """Keep results; the tuner sees them when its batch is complete."""
        self._results.update((trial.candidate.candidate_id, trial) for trial in trials)
        if not self._waiting and self._asked:
            self._update()

    def _update(self) -> None:
        told = [self._results.get(candidate.candidate_id) for candidate in self._asked]
        self._asked, self._results = [], {}
        self._tuner.update([t.run_times_s if t and t.latency_s is not None else None for t in told])


class _Tuner2023:
    """The published experiments' code: a batch is the whole queue without visited places."""

    def __init__(self, dims: list[int], p_value: float) -> None:
        self.dims, self.p_value = dims, p_value
        self.best: Times = (99999.0,)
        self._here: Point = (-1,) * len(dims)
        self._next: list[Point] = [(0,) * len(dims)]
        self._execution, self._executions = 1, int(np.mean(dims)) if dims else 1
        self._visited: set[Point] = set()

    def _moves(self, factor: int, bits: Iterable[int]) -> Iterator[Point]:
        """Sets of coordinates (the binary digits), each up and then down by ``factor``."""
        n = len(self.dims)
        for number in bits:
            up = tuple(factor * (number >> (n - 1 - i) & 1) for i in range(n))
            yield up
            yield tuple(-x for x in up)

    def _move(self, results: Sequence[Times | None]) -> bool:
        """Move to the i-th queued place for each better i-th result; return whether any was."""
        found = False
        for place, times in zip(self._next, results, strict=False):
            if times is not None and beats(times, self.best, self.p_value):
                self.best, self._here, found = times, place, True
        return found

    def next_batch(self, n: int) -> list[Point]:
        """Points to measure: all queued ones that were not visited; n is ignored, as published."""
        fresh: list[Point] = []
        for place in self._next:
            point = tuple(x % d for x, d in zip(place, self.dims, strict=True))
            if point not in self._visited:
                self._visited.add(point)
                fresh.append(point)
        return fresh

    def update(self, results: Sequence[Times | None]) -> None:
        """Take results of the batch, ``None`` for a failure (a defect: the queue is longer)."""
        found = self._move(results)
        factor = 1 if found else self._execution
        self._execution += not found
        self._next = []
        if factor < self._executions:
            for move in self._moves(factor, range(1, 2 ** len(self.dims))):
                place = tuple(x + y for x, y in zip(move, self._here, strict=True))
                if min(place, default=0) >= 0:
                    self._next.append(place)

    def has_next(self) -> bool:
        """Whether a larger step is left, or something is queued."""
        return self._execution < self._executions or bool(self._next)


class _TunerTVM(_Tuner2023):
    """TVM's code: a queue that batches are cut from."""

    def __init__(self, dims: list[int], p_value: float) -> None:
        super().__init__(dims, p_value)
        start: Point = (0,) * len(dims)
        self._here, self._visited, self._executions = start, {start}, max(dims, default=1)
        self._batch = 0

    def next_batch(self, n: int) -> list[Point]:
        self._batch = n
        return self._next[:n]

    def _positions(self, factor: int) -> list[Point]:
        found: list[Point] = []
        for move in self._moves(factor, range(2 ** len(self.dims) - 1, 0, -1)):
            if len(found) > self._batch:
                break
            point = tuple(
                (x + y) % d if x + y > 0 else 0
                for x, y, d in zip(move, self._here, self.dims, strict=True)
            )
            if point not in self._visited:
                self._visited.add(point)
                found.append(point)
        return found

    def update(self, results: Sequence[Times | None]) -> None:
        """Move; drop the batch and the last other entry (a defect) from the queue; refill it."""
        found = self._move(results)
        self._next = self._next[self._batch : -1]
        if found:
            self._next += self._positions(1)
            self._execution = 1
        while len(self._next) < self._batch and self._execution < self._executions:
            self._execution += 1
            self._next += self._positions(self._execution)

    def has_next(self) -> bool:
        return bool(self._next)
