"""A trained model as the search sees it: it scores the candidates of any space of one task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from toolkit.features.base import CandidateGroup, Extractor
from toolkit.records import Candidate, Sketch, Task
from toolkit.training.arrays import Floats, Ints, Matrix
from toolkit.training.members.crossfit import pick_member
from toolkit.training.members.shortlist import preference
from toolkit.training.table.table import align
from toolkit.training.trained.trained import TrainedModel

if TYPE_CHECKING:
    from toolkit.search.base import Space


def candidate_matrix(candidates: Sequence[Candidate], width: int) -> Ints:
    """Decisions of candidates of one sketch as a matrix, one row each."""
    flat = [part for candidate in candidates for part in candidate.decisions]
    return np.array(flat, dtype=np.int64).reshape(len(candidates), width)


def candidate_features(
    task: Task,
    sketches: Sequence[Sketch],
    candidates: Sequence[Candidate],
    extractor: Extractor,
    columns: Sequence[str],
) -> Matrix:
    """Features of candidates of any of a task's sketches, in their order, in given columns."""
    known = {sketch.sketch_id: sketch for sketch in sketches}
    result = np.full((len(candidates), len(columns)), np.nan, dtype=np.float32)
    places: dict[str, list[int]] = {}
    for place, candidate in enumerate(candidates):
        places.setdefault(candidate.sketch_id, []).append(place)
    for sketch_id, own in places.items():
        sketch = known[sketch_id]
        matrix = candidate_matrix([candidates[i] for i in own], sketch.width)
        block = extractor.extract(CandidateGroup(task, sketch, matrix))
        result[own] = align(block, columns)
    return result


class MemberScorer:
    """What a member of a model, one that never saw a task, says of the task's candidates.

    The task is given itself, or by the id it was trained as. Raises ``LeakError`` when every
    member saw it.
    """

    def __init__(self, model: TrainedModel, task: Task | str) -> None:
        if isinstance(task, str):
            task = model.known_task(task)
        self._member = pick_member(model.members, task)
        self._extractor = model.extractor(task)
        self._columns = model.columns
        self.training_task_ids = self._member.training_task_ids

    def features(self, space: Space, candidates: Sequence[Candidate]) -> Matrix:
        """The model's own feature matrix ``(n, d)``: what an online correction may build on."""
        return candidate_features(
            space.task, space.sketches, candidates, self._extractor, self._columns
        )


class ThroughputScorer(MemberScorer):
    """Predicts log relative throughput: differences matter, higher is faster (role ``Scorer``)."""

    def score(self, space: Space, candidates: Sequence[Candidate]) -> Floats:
        """Predicted log relative throughput, one value a candidate."""
        return np.asarray(self._member.ensemble.predict(self.features(space, candidates)))

    def preference(
        self, space: Space, candidates: Sequence[Candidate], bonus: Floats | float = 0.0
    ) -> Floats:
        """One value a candidate whose falling order is the one to measure in (``shortlist``).

        ``bonus`` is added to all that is predicted of each candidate.
        """
        ensemble = self._member.ensemble
        opinions = ensemble.opinions(self.features(space, candidates))
        return preference(opinions + bonus, ensemble.weights)


class ValidityScorer(MemberScorer):
    """Probability that candidates fail."""

    def failure(self, space: Space, candidates: Sequence[Candidate]) -> Floats:
        """Probability in (0, 1) that a candidate fails to build or run, one value each."""
        return np.asarray(self._member.ensemble.predict(self.features(space, candidates)))


class CautiousScorer:
    """A throughput scorer that counts on failures (role ``Scorer``).

    The score is the log of expected relative throughput, a failure counting as none: the
    throughput scorer's value plus log(1 - probability of failure). It was trained on whatever
    either of the two was.
    """

    def __init__(self, scorer: ThroughputScorer, validity: ValidityScorer) -> None:
        self._scorer = scorer
        self._validity = validity
        self.training_task_ids = scorer.training_task_ids | validity.training_task_ids
        self.features = scorer.features

    def score(self, space: Space, candidates: Sequence[Candidate]) -> Floats:
        """Log of expected relative throughput, one value a candidate."""
        return self._scorer.score(space, candidates) + self._survival(space, candidates)

    def preference(self, space: Space, candidates: Sequence[Candidate]) -> Floats:
        """One value a candidate whose falling order is the one to measure in."""
        return self._scorer.preference(space, candidates, self._survival(space, candidates))

    def _survival(self, space: Space, candidates: Sequence[Candidate]) -> Floats:
        """Log of the probability that a candidate runs."""
        return np.asarray(np.log1p(-self._validity.failure(space, candidates)))
