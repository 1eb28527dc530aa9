"""The scheduler's role, and what it sees of each task."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np

from toolkit.search.strategy import StrategyOptions, parse_options

RETRY = 0.1
"""Factor on a task's urgency for each of its rounds without a success."""


@dataclass
class TaskProgress:
    """One task of a network while it is tuned.

    ``weight`` is how often the network runs it: the objective is the weighted sum of best
    latencies. ``best_s`` is the best latency after each round that it was given, seconds, infinite
    before the first success; ``seconds`` what each of those rounds cost. Tasks of one ``kind`` (the
    same workload) resemble each other. ``flops`` are its floating-point operations, where they are
    known; it is ``exhausted`` when its strategy has nothing more to propose.
    """

    weight: float = 1.0
    kind: str = ""
    flops: float | None = None
    best_s: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    exhausted: bool = False

    @property
    def rounds(self) -> int:
        """Rounds that the task was given."""
        return len(self.best_s)

    @property
    def current_s(self) -> float:
        """Best latency so far, infinite before the first success."""
        return self.best_s[-1] if self.best_s else math.inf


@runtime_checkable
class Scheduler(Protocol):
    """Chooses the task of the next round; sees nothing but measured latencies."""

    name: str

    def choose(self, tasks: Sequence[TaskProgress]) -> int:
        """Number of the task that gets the next round; at least one is not exhausted."""


class BaseScheduler:
    """Options and the first round of every task, which all schedulers begin with."""

    name: ClassVar[str]
    source: ClassVar[str]
    Options: ClassVar[type[StrategyOptions]] = StrategyOptions

    def __init__(
        self,
        options: StrategyOptions | Mapping[str, Any] | None = None,
        rng: np.random.Generator | None = None,
    ) -> None:
        self.options = parse_options(f"scheduler {self.name!r}", self.Options, options)
        self.rng = rng if rng is not None else np.random.default_rng(0)

    def choose(self, tasks: Sequence[TaskProgress]) -> int:
        """Give every task its first round, most work first; then let ``pick`` choose.

        Work is operations times calls. If time runs out, the untuned tasks are small ones. A task
        whose rounds all failed is tried again before tasks with less than a tenth of its work.
        """
        left = [i for i, t in enumerate(tasks) if t.current_s == math.inf and not t.exhausted]

        def urgency(i: int) -> tuple[float, int]:
            task = tasks[i]
            return task.weight * (task.flops or 0.0) * RETRY**task.rounds, -task.rounds

        if any(tasks[i].rounds == 0 for i in left):
            return max(left, key=urgency)
        return self.pick(tasks, [i for i, task in enumerate(tasks) if not task.exhausted])

    def pick(self, tasks: Sequence[TaskProgress], alive: Sequence[int]) -> int:
        """Choose among the tasks that still have something to propose."""
        raise NotImplementedError
