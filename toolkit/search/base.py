"""The protocols of a search: Space, Strategy, Oracle. A strategy runs on a record or a device.

A strategy sees the space and never the oracle: it cannot see a latency before it is measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from toolkit.records import Candidate, Direction, Sketch, Task, Trial
from toolkit.search.graph import NeighbourGraph


@runtime_checkable
class Space(Protocol):
    """The candidates of one task.

    ``size`` is the number of candidates where it is known and ``None`` otherwise; ``finite``
    spaces can list themselves with ``candidates()``.
    """

    task: Task
    sketches: Sequence[Sketch]
    size: int | None

    def candidates(self) -> Sequence[Candidate]:
        """All candidates of a finite space, in recorded order; otherwise raise ``SearchError``."""

    def sample(
        self, rng: np.random.Generator, n: int, sketch_id: str | None = None
    ) -> list[Candidate]:
        """Draw up to n distinct candidates at random; only of ``sketch_id`` if it is given."""

    def neighbours(self, candidate: Candidate, knob: str | None = None) -> list[Candidate]:
        """Candidates that differ in one decision (of that knob, or of any)."""

    def directions(self, candidate: Candidate) -> list[Direction]:
        """Directions in which ``mutate`` can move the candidate."""

    def mutate(
        self, candidate: Candidate, direction: Direction, rng: np.random.Generator
    ) -> Candidate | None:
        """Change one decision in that direction; ``None`` when no candidate lies there.

        A direction without a way means up or down.
        """

    def features(self, candidates: Sequence[Candidate]) -> NDArray[np.float32]:
        """Feature matrix ``(n, d)`` for an online cost model; d is constant in a space."""


@runtime_checkable
class Composes(Protocol):
    """A space that builds a candidate from decisions: crossover and grids use it.

    Nothing else returns candidates outside a record. The oracle counts them as misses (honesty
    rule 2).
    """

    def compose(self, sketch_id: str, decisions: Sequence[int]) -> Candidate | None:
        """Return the candidate with these decisions; ``None`` if the space has no such candidate.

        ``decisions`` is as long as ``Sketch.width``; the outermost part of a tile is ignored.
        """


@runtime_checkable
class Indexed(Protocol):
    """A finite space whose candidates are numbered 0 to size - 1 in the order of ``candidates``.

    Strategies can then work on arrays. They see decisions and neighbours, never a measurement.
    ``complete`` says that the whole space is listed: any other candidate is invalid.
    """

    graph: NeighbourGraph
    complete: bool

    def index_of(self, candidates: Sequence[Candidate]) -> NDArray[np.int64]:
        """Number of each candidate, -1 if it is not in this space."""

    def grid_order(self) -> NDArray[np.int64]:
        """All numbers in the order of the configuration index, first knob fastest."""


@runtime_checkable
class Scorer(Protocol):
    """A model trained elsewhere that ranks candidates; higher is faster.

    ``training_task_ids`` lets a run prove that the judged task was not trained on.
    """

    training_task_ids: frozenset[str]

    def score(self, space: Space, candidates: Sequence[Candidate]) -> NDArray[np.float64]:
        """One score per candidate: predicted log relative throughput."""


@runtime_checkable
class Learner(Protocol):
    """A ``Scorer`` that can learn during a search, when ``refresh`` is called."""

    def refresh(self) -> bool:
        """Learn from new measurements; return true if the scores have changed."""


@runtime_checkable
class Picker(Protocol):
    """A ``Scorer`` with an order of measuring that can differ from the order of its scores.

    Only the best of several picks counts, so picks that tend to fail together are worth less.
    """

    def preference(self, space: Space, candidates: Sequence[Candidate]) -> NDArray[np.float64]:
        """One value per candidate; the highest is measured first."""


@runtime_checkable
class DirectionScorer(Protocol):
    """A model trained elsewhere that says which mutation pays; higher is better."""

    training_task_ids: frozenset[str]

    def gains(
        self, space: Space, candidate: Candidate, directions: Sequence[Direction]
    ) -> NDArray[np.float64]:
        """Expected gain (log latency before minus after) of each direction."""


@runtime_checkable
class Strategy(Protocol):
    """Ask and tell, in batches; deterministic given space, options and generator."""

    name: str

    def ask(self, n: int) -> list[Candidate]:
        """Propose up to n candidates, none proposed before; ``[]`` when exhausted."""

    def tell(self, trials: Sequence[Trial]) -> None:
        """Take the measurements of the proposed candidates, failures included."""


@runtime_checkable
class Oracle(Protocol):
    """Source of measurements: a record, or a device."""

    def measure(self, candidates: Sequence[Candidate]) -> list[Trial]:
        """Measure candidates in order; return one trial each, none for an unrecorded candidate."""
