"""Trained models as a search uses them: scorers of the candidates of any space of one task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from toolkit.errors import SearchError
from toolkit.features.base import CandidateGroup, Extractor
from toolkit.records import Candidate, Direction, Sketch, Task, iter_ways
from toolkit.search.base import Learner, Space
from toolkit.search.graph import knob_order
from toolkit.training.arrays import Floats, Ints, Matrix
from toolkit.training.members.crossfit import pick_member
from toolkit.training.members.gain_models import predict_gains, with_learned
from toolkit.training.members.shortlist import preference
from toolkit.training.table.neighbours import ANY, DOWN, UP, other_values
from toolkit.training.table.table import align
from toolkit.training.trained.loading import TrainedModel


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
        decisions = np.array([candidates[i].decisions for i in own], dtype=np.int64)
        block = extractor.extract(CandidateGroup(task, known[sketch_id], decisions))
        result[own] = align(block, columns)
    return result


class MemberScorer:
    """Base of scorers: one task's candidates, judged by a member that never saw the task.

    ``task`` is the task itself, or the id that it had in training. Raises ``LeakError`` when every
    member saw it.
    """

    def __init__(self, model: TrainedModel, task: Task | str) -> None:
        if isinstance(task, str):
            task = model.known_task(task)
        self._member = pick_member(model.members, task)
        self.ensemble = self._member.ensemble
        self._extractor = model.extractor(task)
        self._columns = model.columns
        self.training_task_ids = self._member.training_task_ids

    def features(self, space: Space, candidates: Sequence[Candidate]) -> Matrix:
        """Return the model's feature matrix ``(n, d)``; online corrections may use it too."""
        return candidate_features(
            space.task, space.sketches, candidates, self._extractor, self._columns
        )


class ThroughputScorer(MemberScorer):
    """Predicts log relative throughput: differences matter, higher is faster (role ``Scorer``)."""

    def score(self, space: Space, candidates: Sequence[Candidate]) -> Floats:
        """Predicted log relative throughput, one value per candidate."""
        return np.asarray(self.ensemble.predict(self.features(space, candidates)))

    def preference(
        self, space: Space, candidates: Sequence[Candidate], bonus: Floats | float = 0.0
    ) -> Floats:
        """Return one value per candidate: measure in descending order of it (``shortlist``).

        ``bonus`` is added to every member's prediction of each candidate.
        """
        opinions = self.ensemble.opinions(self.features(space, candidates))
        return preference(opinions + bonus, self.ensemble.weights)


class ValidityScorer(MemberScorer):
    """Probability that candidates fail."""

    def failure(self, space: Space, candidates: Sequence[Candidate]) -> Floats:
        """Probability in (0, 1) that a candidate fails to build or run, one value each."""
        return np.asarray(self.ensemble.predict(self.features(space, candidates)))


class CautiousScorer:
    """A throughput scorer that accounts for failures (roles ``Scorer``, ``Picker``, ``Learner``).

    The score is the log of expected relative throughput, where a failure has throughput 0: the
    throughput scorer's value plus log(1 - probability of failure). ``training_task_ids`` are those
    of both models.
    """

    def __init__(self, scorer: Any, validity: ValidityScorer) -> None:
        self._scorer = scorer
        self._validity = validity
        self.training_task_ids = scorer.training_task_ids | validity.training_task_ids
        self.features = scorer.features

    def refresh(self) -> bool:
        """Let the throughput scorer learn from new records, if it can."""
        return isinstance(self._scorer, Learner) and self._scorer.refresh()

    def score(self, space: Space, candidates: Sequence[Candidate]) -> Floats:
        """Log of expected relative throughput, one value per candidate."""
        return np.asarray(self._scorer.score(space, candidates) + self._survival(space, candidates))

    def preference(self, space: Space, candidates: Sequence[Candidate]) -> Floats:
        """Return one value per candidate: measure in descending order of it."""
        survival = self._survival(space, candidates)
        return np.asarray(self._scorer.preference(space, candidates, survival))

    def _survival(self, space: Space, candidates: Sequence[Candidate]) -> Floats:
        """Log of the probability that a candidate runs."""
        return np.asarray(np.log1p(-self._validity.failure(space, candidates)))


_WAYS = {None: ANY, "up": UP, "down": DOWN}


class MutationScorer(MemberScorer):
    """Expected gains for one task by a member that never saw it (role ``DirectionScorer``).

    In a finite space all gains are computed at the first call, over the neighbours in the space. In
    other spaces each candidate's directions are judged by the values that the knob could take. An
    unknown direction has the gain 0. With ``temperature`` the softmax of gains fits best on tasks
    that the member does not judge.
    """

    def __init__(self, model: TrainedModel, task: Task | str) -> None:
        super().__init__(model, task)
        self._method: str = model.manifest["recipe"]["mutation"]["method"]
        self.temperature: float = model.manifest["temperatures"][self._member.name]
        self._known: dict[str, Floats] = {}
        self._prepared: Space | None = None

    def gains(self, space: Space, candidate: Candidate, directions: Sequence[Direction]) -> Floats:
        """Expected gain in log latency of each direction; higher is better."""
        sketch = next(s for s in space.sketches if s.sketch_id == candidate.sketch_id)
        table = self._table(space, sketch, candidate)
        numbers = {knob.name: k for k, knob in enumerate(sketch.knobs)}
        result = np.zeros(len(directions))
        for place, direction in enumerate(directions):
            if direction.knob is not None:
                either, found = table[[ANY, _WAYS[direction.way]], numbers[direction.knob]]
                found = found if np.isfinite(found) else either
            else:
                own = [k for k, knob in enumerate(sketch.knobs) if knob.kind == direction.rule]
                values = table[ANY, own][np.isfinite(table[ANY, own])]
                found = values.mean() if len(values) else np.nan
            result[place] = found if np.isfinite(found) else 0.0
        return result

    def _table(self, space: Space, sketch: Sketch, candidate: Candidate) -> Floats:
        """Gains ``(3, knobs)`` of one candidate."""
        if space.size is not None and self._prepared is not space:
            self._prepared = space
            self._prepare(space)
        if candidate.candidate_id not in self._known:
            here = np.array(candidate.decisions, dtype=np.int64)
            if self._method == "expected":
                found = self._by_other_values(space, sketch, here)
            else:
                found = self._recorded(space, sketch, here[None])[:, 0]
            self._known[candidate.candidate_id] = found
        return self._known[candidate.candidate_id]

    def _prepare(self, space: Space) -> None:
        try:
            everything = space.candidates()
        except SearchError:
            return
        for sketch in space.sketches:
            own = [c for c in everything if c.sketch_id == sketch.sketch_id]
            if own:
                decisions = np.array([c.decisions for c in own], dtype=np.int64)
                gains = self._recorded(space, sketch, decisions)
                for place, candidate in enumerate(own):
                    self._known[candidate.candidate_id] = gains[:, place]

    def _read(self, group: CandidateGroup) -> Matrix:
        return align(self._extractor.extract(group), self._columns)

    def _recorded(self, space: Space, sketch: Sketch, decisions: Ints) -> Floats:
        """Gains ``(3, n, knobs)`` of candidates relative to each other."""
        group = CandidateGroup(space.task, sketch, decisions)
        return predict_gains(self._member, self._method, group, self._read(group))

    def _by_other_values(self, space: Space, sketch: Sketch, here: Ints) -> Floats:
        """Gains ``(3, knobs)`` of a candidate, averaged over values that each knob could take."""
        vectors, owners = [here], [-1]
        for k, knob in enumerate(sketch.knobs):
            others = other_values(knob, here)
            vectors += others
            owners += [k] * len(others)
        matrix, owner = np.stack(vectors), np.array(owners)
        features = self._read(CandidateGroup(space.task, sketch, matrix))
        predicted = self.ensemble.predict(features)
        gain = predicted - predicted[0]
        result = np.full((3, len(sketch.knobs)), np.nan)
        for k, knob in enumerate(sketch.knobs):
            own = np.flatnonzero(owner == k)
            if len(own) == 0:
                continue
            result[ANY, k] = gain[own].mean()
            if any(iter_ways(knob)):
                keys = knob_order(knob, matrix[np.append(own, 0)])
                rank = np.unique(keys, axis=0, return_inverse=True)[1].reshape(-1)
                for way, side in ((UP, rank[:-1] > rank[-1]), (DOWN, rank[:-1] < rank[-1])):
                    if side.any():
                        result[way, k] = gain[own[side]].mean()
        alone = CandidateGroup(space.task, sketch, here[None])
        return with_learned(self.ensemble, result[:, None], alone, features[:1])[:, 0]


class ExpectedGains(MutationScorer):
    """Gains of the method ``expected`` (roles ``DirectionScorer``, ``Scorer``).

    They are differences of one prediction, which is their potential. ``score`` returns it, for
    spaces with too many steps to fit a potential to.
    """

    def score(self, space: Space, candidates: Sequence[Candidate]) -> Floats:
        """Predicted log relative throughput, one value per candidate."""
        return np.asarray(self.ensemble.predict(self.features(space, candidates)))
