"""What the tasks of one search teach each other: a network's layers have much in common.

The model that was trained offline has not seen this machine and these shapes. So trees are grown on
how far it was off for the *other* tasks of the search (``toolkit.training.tasks.adaptation``,
residual); a task's own measurements are left to its strategy.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from toolkit.records import Candidate, Trial
from toolkit.search.base import Space, Strategy
from toolkit.training.arrays import Floats, Ints, Matrix
from toolkit.training.tasks.adaptation import Adapted
from toolkit.training.trained.scorer import ThroughputScorer

FEWEST, NEWS = 16, 8
"""Measurements of other tasks that are learnt from, and new ones before they are again."""


class Relatives:
    """Measurements of the tasks of one search, each kept for the others."""

    def __init__(self) -> None:
        self._waiting: list[tuple[int, Candidate, float]] = []
        self._scorers: list[RelatedScorer] = []
        self._spaces: list[Space] = []
        self._features: list[Matrix] = []
        self._log_throughput: list[float] = []
        self._task: list[int] = []

    def scorer(self, base: ThroughputScorer, space: Space) -> RelatedScorer:
        """Add a task; return its scorer, which learns from the other ones."""
        made = RelatedScorer(base, self, len(self._scorers))
        self._scorers.append(made)
        self._spaces.append(space)
        return made

    def take(self, number: int, trial: Trial) -> None:
        """Note what a task measured; failures say nothing of speed."""
        if trial.latency_s is not None:
            self._waiting.append((number, trial.candidate, -float(np.log(trial.latency_s))))

    def others(self, number: int) -> tuple[Matrix, Floats, Ints]:
        """What all tasks but one measured: features ``(n, d)``, log of 1 / seconds, tasks."""
        self._describe()
        if not self._task:
            return np.zeros((0, 0), np.float32), np.zeros(0), np.zeros(0, np.int64)
        task = np.array(self._task, dtype=np.int64)
        other = task != number
        features = np.concatenate(self._features)
        return features[other], np.array(self._log_throughput)[other], task[other]

    def _describe(self) -> None:
        """Compute the features of what came in since, task by task."""
        waiting, self._waiting = self._waiting, []
        for number in dict.fromkeys(number for number, _, _ in waiting):
            own = [(candidate, value) for n, candidate, value in waiting if n == number]
            # Readings come in as they are done; a run that goes on must learn the same.
            own.sort(key=lambda one: one[0].candidate_id)
            candidates = [candidate for candidate, _ in own]
            base = self._scorers[number].base
            self._features.append(base.features(self._spaces[number], candidates))
            self._log_throughput += [value for _, value in own]
            self._task += [number] * len(own)


class Teaching:
    """A strategy whose measurements the other tasks learn from, when it is told them."""

    def __init__(self, strategy: Strategy, relatives: Relatives, number: int) -> None:
        self.name = strategy.name
        self.ask = strategy.ask
        self._strategy, self._relatives, self._number = strategy, relatives, number

    def tell(self, trials: Sequence[Trial]) -> None:
        """Tell the strategy and the relatives."""
        self._strategy.tell(trials)
        for trial in trials:
            self._relatives.take(self._number, trial)


class RelatedScorer:
    """A throughput scorer, corrected by what other tasks measured (roles ``Scorer``, ``Learner``).

    Until there is enough to learn from it scores as the model does.
    """

    def __init__(self, base: ThroughputScorer, relatives: Relatives, number: int) -> None:
        self.base, self._relatives, self.number = base, relatives, number
        self.training_task_ids = base.training_task_ids
        self.features = base.features
        self._adapted: Adapted | None = None
        self._learnt = 0

    def refresh(self) -> bool:
        """Learn what was measured since; true where scores are other ones now."""
        features, log_throughput, task = self._relatives.others(self.number)
        if len(task) < FEWEST or len(task) < self._learnt + NEWS:
            return False
        self._learnt = len(task)
        known = self.base.ensemble
        self._adapted = Adapted(known, features, log_throughput, task, method="residual")
        return True

    def score(self, space: Space, candidates: Sequence[Candidate]) -> Floats:
        """Predicted log throughput, up to a constant of the task."""
        if self._adapted is None:
            return self.base.score(space, candidates)
        return self._adapted.predict(self.features(space, candidates))

    def preference(
        self, space: Space, candidates: Sequence[Candidate], bonus: Floats | float = 0.0
    ) -> Floats:
        """One value a candidate whose falling order is the one to measure in."""
        if self._adapted is None:
            return self.base.preference(space, candidates, bonus)
        return self.score(space, candidates) + bonus
