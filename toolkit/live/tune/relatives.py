"""Learning between the tasks of one search: the layers of a network have much in common.

The offline model has not seen this machine and these shapes. So trees learn its error on the
*other* tasks of the search (``toolkit.training.tasks.adaptation``, residual). A task's own
measurements are left to its strategy.
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
"""Measurements of other tasks before the first fit, and new ones before the next fit."""


class Relatives:
    """Measurements of all tasks of one search; each task learns from the others'."""

    def __init__(self) -> None:
        self._waiting: list[tuple[int, Candidate, float]] = []
        self._models: list[tuple[ThroughputScorer, Space]] = []
        self._features: list[Matrix] = []
        self._log_throughput: list[float] = []
        self._task: list[int] = []

    def scorer(self, base: ThroughputScorer, space: Space) -> RelatedScorer:
        """Add a task; return its scorer, which learns from the other tasks."""
        self._models.append((base, space))
        return RelatedScorer(base, self, len(self._models) - 1)

    def take(self, number: int, trial: Trial) -> None:
        """Add a measurement of a task; failures say nothing about speed."""
        if trial.latency_s is not None:
            self._waiting.append((number, trial.candidate, -float(np.log(trial.latency_s))))

    def others(self, number: int) -> tuple[Matrix, Floats, Ints]:
        """Return the other tasks' measurements: features ``(n, d)``, log of 1 / seconds, tasks."""
        self._describe()
        if not self._task:
            return np.zeros((0, 0), np.float32), np.zeros(0), np.zeros(0, np.int64)
        task = np.array(self._task, dtype=np.int64)
        other = task != number
        features = np.concatenate(self._features)
        return features[other], np.array(self._log_throughput)[other], task[other]

    def _describe(self) -> None:
        """Compute the features of new measurements, task by task."""
        waiting, self._waiting = self._waiting, []
        for number in dict.fromkeys(number for number, _, _ in waiting):
            own = [(candidate, value) for n, candidate, value in waiting if n == number]
            # Sorted, since readings arrive in any order, and a resumed run must learn the same.
            own.sort(key=lambda one: one[0].candidate_id)
            base, space = self._models[number]
            self._features.append(base.features(space, [candidate for candidate, _ in own]))
            self._log_throughput += [value for _, value in own]
            self._task += [number] * len(own)


class Teaching:
    """A strategy that passes its measurements on, so that other tasks learn from them."""

    def __init__(self, strategy: Strategy, relatives: Relatives, number: int) -> None:
        self.name = strategy.name
        self.ask = strategy.ask
        self._strategy, self._relatives, self._number = strategy, relatives, number

    def tell(self, trials: Sequence[Trial]) -> None:
        """Pass trials to the strategy and to ``Relatives``."""
        self._strategy.tell(trials)
        for trial in trials:
            self._relatives.take(self._number, trial)


class RelatedScorer:
    """A throughput scorer, corrected by other tasks' measurements (roles ``Scorer``, ``Learner``).

    Before there are enough measurements, its scores are the model's.
    """

    def __init__(self, base: ThroughputScorer, relatives: Relatives, number: int) -> None:
        self.base, self._relatives, self.number = base, relatives, number
        self.training_task_ids = base.training_task_ids
        self.features = base.features
        self._adapted: Adapted | None = None
        self._learnt = 0

    def refresh(self) -> bool:
        """Learn from new measurements; return whether the scores have changed."""
        features, log_throughput, task = self._relatives.others(self.number)
        if len(task) < FEWEST or len(task) < self._learnt + NEWS:
            return False
        self._learnt = len(task)
        known = self.base.ensemble
        self._adapted = Adapted(known, features, log_throughput, task, method="residual")
        return True

    def score(self, space: Space, candidates: Sequence[Candidate]) -> Floats:
        """Return predicted log throughput, up to a constant for the task."""
        if self._adapted is None:
            return self.base.score(space, candidates)
        return self._adapted.predict(self.features(space, candidates))

    def preference(
        self, space: Space, candidates: Sequence[Candidate], bonus: Floats | float = 0.0
    ) -> Floats:
        """Return one value for each candidate; higher values should be measured earlier."""
        if self._adapted is None:
            return self.base.preference(space, candidates, bonus)
        return self.score(space, candidates) + bonus
