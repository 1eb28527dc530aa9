"""Models that guide strategies in a replay, with a proof that they never saw the judged task."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, TypedDict

import numpy as np

from toolkit.errors import LeakError
from toolkit.records import Candidate, Direction
from toolkit.replay.record.space import RecordedSpace
from toolkit.search.base import DirectionScorer, Picker, Scorer, Space
from toolkit.search.moves.knobs import FloatArray
from toolkit.training.trained.models import TrainedModels
from toolkit.training.trained.scorer import CautiousScorer


class TableScorer:
    """Scores of all candidates of one recorded space, computed once and looked up afterwards."""

    def __init__(self, scorer: Scorer, space: RecordedSpace) -> None:
        self.training_task_ids = scorer.training_task_ids
        self._scorer = scorer
        self._space = space
        self._scores: FloatArray = np.asarray(scorer.score(space, space.candidates()), np.float64)

    def score(self, space: Space, candidates: Sequence[Candidate]) -> FloatArray:
        """Look recorded candidates up; ask the model for any other."""
        if space is not self._space:
            return self._scorer.score(space, candidates)
        index = self._space.index_of(candidates)
        out = self._scores[index]
        outside = np.flatnonzero(index < 0)
        if len(outside):
            out[outside] = self._scorer.score(space, [candidates[i] for i in outside.tolist()])
        return out

    @cached_property
    def _preferences(self) -> FloatArray:
        picker = self._scorer.preference if isinstance(self._scorer, Picker) else self.score
        return np.asarray(picker(self._space, self._space.candidates()), dtype=np.float64)

    def preference(self, space: Space, candidates: Sequence[Candidate]) -> FloatArray:
        """Preferences of recorded candidates; the scores if any candidate is unrecorded."""
        index = self._space.index_of(candidates) if space is self._space else None
        if index is None or (index < 0).any():
            return self.score(space, candidates)
        return self._preferences[index]


class TableDirectionScorer:
    """Gains of the directions of candidates, computed once and kept."""

    def __init__(self, scorer: DirectionScorer) -> None:
        self.training_task_ids = scorer.training_task_ids
        self._scorer = scorer
        # A calibrated model gives the temperature of its gains (``movers.GuidedMover``).
        if hasattr(scorer, "temperature"):
            self.temperature: float = scorer.temperature
        self._kept: dict[tuple[str, tuple[Direction, ...]], FloatArray] = {}

    def gains(
        self, space: Space, candidate: Candidate, directions: Sequence[Direction]
    ) -> FloatArray:
        """Expected gain of each direction (log latency before minus after)."""
        key = (candidate.candidate_id, tuple(directions))
        if key not in self._kept:
            self._kept[key] = np.asarray(self._scorer.gains(space, candidate, directions))
        return self._kept[key]


class StrategyModels(TypedDict, total=False):
    """Models that guide a strategy, as every strategy takes them."""

    scorer: Scorer | None
    direction_scorer: DirectionScorer | None


def guides_of(models: TrainedModels, space: RecordedSpace) -> StrategyModels:
    """Return the models that guide a search of a task; none of them was trained on it."""
    scorer: Scorer | None = None
    if models.throughput is not None:
        scorer = _unseen(models.throughput, space, "throughput model")
        if models.validity is not None:
            scorer = CautiousScorer(scorer, _unseen(models.validity, space, "validity model"))
        scorer = TableScorer(scorer, space)
    directions: DirectionScorer | None = None
    if models.mutation is not None:
        directions = TableDirectionScorer(_unseen(models.mutation, space, "mutation model"))
    return {"scorer": scorer, "direction_scorer": directions}


def _unseen(model: Any, space: RecordedSpace, what: str) -> Any:
    """Return a model's member for a task; raise ``LeakError`` unless it provably never saw it.

    Honesty rule 4: a replay proves that no model was trained on the task that it is judged on.
    """
    member, task_id = model.for_task(space.task), space.task.task_id
    trained_on = getattr(member, "training_task_ids", None)
    if trained_on is None:
        raise LeakError(
            f"the {what} does not say which tasks it was trained on",
            cure="set its 'training_task_ids', or train it with 'toolkit train'",
        )
    if task_id in trained_on:
        raise LeakError(
            f"the {what} was trained on task {task_id}, and would be judged on it",
            cure="train with cross-fitted members ('toolkit train'), or leave the task out",
        )
    return member
