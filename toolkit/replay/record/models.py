"""Models that guide strategies in a replay, and the proof that they never saw the judged task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from toolkit.errors import LeakError
from toolkit.records import Candidate, Direction
from toolkit.replay.record.space import RecordedSpace
from toolkit.replay.record.table import FloatArray
from toolkit.search.base import DirectionScorer, Picker, Scorer, Space


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
        """The order to measure the recorded candidates in; that of the scores for any others."""
        index = self._space.index_of(candidates) if space is self._space else None
        if index is None or (index < 0).any():
            return self.score(space, candidates)
        return self._preferences[index]


class TableDirectionScorer:
    """Gains of the directions of recorded candidates, kept once they were computed."""

    def __init__(self, scorer: DirectionScorer) -> None:
        self.training_task_ids = scorer.training_task_ids
        self._scorer = scorer
        # What a calibrated model says of its gains, where it does ('movers.GuidedMover').
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


@dataclass(frozen=True)
class ModelSet:
    """The models of a replay: at most one throughput, one mutation and one validity model.

    Each is what ``toolkit.training`` loads: ``for_task(task)`` gives a member that never saw the
    task, nor its workload under another id. With a validity model the throughput model's scores
    count on failures (``CautiousScorer``). Another process loads them from their ``folders``.
    """

    throughput: Any = None
    mutation: Any = None
    fingerprint: str = ""
    validity: Any = None
    folders: tuple[Path, ...] = ()

    def __reduce__(self) -> Any:
        return (load_models, (self.folders,)) if self.folders else super().__reduce__()

    def guides(self, space: RecordedSpace) -> StrategyModels:
        """Return the models for a task, proven not to have seen it."""
        return {"scorer": self.scorer(space), "direction_scorer": self.direction_scorer(space)}

    def scorer(self, space: RecordedSpace) -> Scorer | None:
        """Return the throughput model for a task, proven not to have seen it."""
        if self.throughput is None:
            return None
        scorer = _unseen(self.throughput, space, "throughput model")
        if self.validity is not None:
            from toolkit.training.trained.scorer import CautiousScorer

            scorer = CautiousScorer(scorer, _unseen(self.validity, space, "validity model"))
        return TableScorer(scorer, space)

    def direction_scorer(self, space: RecordedSpace) -> DirectionScorer | None:
        """Return the mutation model for a task, proven not to have seen it."""
        if self.mutation is None:
            return None
        return TableDirectionScorer(_unseen(self.mutation, space, "mutation model"))


def _unseen(model: Any, space: RecordedSpace, what: str) -> Any:
    """Take a model's member for a task; raise ``LeakError`` unless it says on what it was trained.

    Honesty rule 4: a replay proves that no model was trained on the task that it is judged on.
    """
    member, task_id = model.for_task(space.task), space.task.task_id
    trained_on = getattr(member, "training_task_ids", None)
    if trained_on is None:
        raise LeakError(
            f"the {what} does not say which tasks it was trained on",
            cure="give it 'training_task_ids', or train it with 'toolkit train'",
        )
    if task_id in trained_on:
        raise LeakError(
            f"the {what} was trained on task {task_id}, on which it is judged",
            cure="train with cross-fitted members ('toolkit train'), or leave the task out",
        )
    return member


def load_models(directories: Sequence[Path]) -> ModelSet:
    """Load trained models from their folders; the manifest says of which kind each is."""
    if not directories:
        return ModelSet()
    # Only a replay with models needs the libraries that they are made with.
    from toolkit.training.trained.models import load_trained

    return ModelSet(**vars(load_trained(directories)), folders=tuple(directories))
