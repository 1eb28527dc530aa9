"""The search roles: Space, Strategy, Oracle. One strategy searches a record and a device alike.

A strategy knows a space, never an oracle: it cannot see a latency that it has not paid for.
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
        """All candidates of a finite space, in recorded order; raise ``SearchError`` else."""

    def sample(
        self, rng: np.random.Generator, n: int, sketch_id: str | None = None
    ) -> list[Candidate]:
        """Draw up to n distinct candidates at random, from one sketch where it is named."""

    def neighbours(self, candidate: Candidate, knob: str | None = None) -> list[Candidate]:
        """Candidates that differ in one decision (of that knob, or of any)."""

    def directions(self, candidate: Candidate) -> list[Direction]:
        """Directions in which ``mutate`` can move the candidate."""

    def mutate(
        self, candidate: Candidate, direction: Direction, rng: np.random.Generator
    ) -> Candidate | None:
        """Change one decision in that direction; ``None`` when nothing lies there.

        A direction without a way stands for either of them.
        """

    def features(self, candidates: Sequence[Candidate]) -> NDArray[np.float32]:
        """Feature matrix ``(n, d)`` for an online cost model; d is constant in a space."""


@runtime_checkable
class Composes(Protocol):
    """A space that builds a candidate from decisions: crossover and grids use it.

    The only way out of a record: what was not recorded is a miss of the oracle (honesty rule 2).
    """

    def compose(self, sketch_id: str, decisions: Sequence[int]) -> Candidate | None:
        """Return the candidate with these decisions; ``None`` where the space has none such.

        ``decisions`` is as long as ``Sketch.width``; the outermost part of a tile is ignored.
        """


@runtime_checkable
class Indexed(Protocol):
    """A finite space whose candidates are numbered 0 to size - 1 in the order of ``candidates``.

    Strategies then move in arrays; they see decisions and neighbours, never a measurement.
    ``complete`` says that the whole space is listed: what is not listed is no valid candidate.
    """

    graph: NeighbourGraph
    complete: bool

    def index_of(self, candidates: Sequence[Candidate]) -> NDArray[np.int64]:
        """Number of each candidate, -1 where it is not of this space."""

    def grid_order(self) -> NDArray[np.int64]:
        """All numbers in the order of the configuration index, first knob fastest."""


@runtime_checkable
class Scorer(Protocol):
    """A model trained elsewhere that ranks candidates; higher is faster.

    ``training_task_ids`` lets a run prove that the judged task was not trained on.
    """

    training_task_ids: frozenset[str]

    def score(self, space: Space, candidates: Sequence[Candidate]) -> NDArray[np.float64]:
        """One score a candidate: predicted log relative throughput."""


@runtime_checkable
class Learner(Protocol):
    """A ``Scorer`` that learns while a search goes on, when it is told to."""

    def refresh(self) -> bool:
        """Learn what is new; true where scores are other ones than before."""


@runtime_checkable
class Picker(Protocol):
    """A ``Scorer`` that says in which order to measure, where that is not the order of its scores.

    The best of several picks is what counts: picks that fail together are worth less.
    """

    def preference(self, space: Space, candidates: Sequence[Candidate]) -> NDArray[np.float64]:
        """One value a candidate; measured in falling order."""


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
        """Learn the measurements of what was asked, failures included."""


@runtime_checkable
class Oracle(Protocol):
    """What a candidate's measurement is: recorded, or made on a device."""

    def measure(self, candidates: Sequence[Candidate]) -> list[Trial]:
        """Measure candidates in order; one trial each. A miss has no trial (see the oracle)."""
