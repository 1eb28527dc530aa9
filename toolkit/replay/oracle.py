"""Answers measurements from the record: a recorded occasion for every candidate, or a miss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from toolkit.errors import SearchError
from toolkit.records import Candidate, Trial, content_id
from toolkit.replay.space import RecordedSpace
from toolkit.search.graph import IntArray

Missing = Literal["skip", "error", "nearest"]


class RecordedOracle:
    """Recorded measurements of one task, one occasion drawn for each evaluation.

    Noise (honesty rule 6): where a candidate was measured on several occasions, one of them is
    drawn, failures included; measured again in the same run it gives the next occasion in turn.
    The draws depend on the task and the seed alone, so that strategies that are compared under
    one seed meet the same luck (paired runs).

    Parameters
    ----------
    space
        The recorded space.
    seed
        Seed of the draws.
    missing
        What happens to candidates outside the record (honesty rule 2): ``skip`` (no trial, counted
        by the runner), ``error``, or ``nearest`` (the recorded candidate of the same sketch with
        the fewest other decisions answers; such answers are counted in ``substituted``).

    Attributes
    ----------
    occasions
        The occasions that were paid for, in order: what the metrics are computed from.
    missed_at
        For each miss how many occasions had been paid for before it.
    """

    def __init__(self, space: RecordedSpace, *, seed: int = 0, missing: Missing = "skip") -> None:
        self.space = space
        self.table = space.table
        self.missing = missing
        self.occasions: list[int] = []
        self.missed_at: list[int] = []
        self.substituted = 0
        table = self.table
        rng = np.random.default_rng([seed, int(content_id("occasions", table.task.task_id), 16)])
        count = table.occasions
        self._noisy = bool((count > 1).any())
        self._count = count
        self._turn = (rng.random(len(table)) * count).astype(np.int64) if self._noisy else count * 0
        self._start = table.offsets[:-1]
        self._trials = table.trials

    def measure(self, candidates: Sequence[Candidate]) -> list[Trial]:
        """Return one recorded trial a candidate, in order; unrecorded ones have none (``skip``)."""
        index = self.space.index_of(candidates)
        inside = index >= 0
        if not inside.all():
            if self.missing == "error":
                outside = candidates[int(np.flatnonzero(~inside)[0])]
                raise SearchError(
                    f"candidate {outside.candidate_id} was never recorded: {outside.decisions}",
                    where=f"task {self.table.task.task_id}",
                    cure="set missing = 'skip' or 'nearest' in the scenario",
                )
            if self.missing == "nearest":
                return self._with_substitutes(candidates, index)
            before = len(self.occasions) + np.cumsum(inside)
            self.missed_at += before[~inside].tolist()
            index = index[inside]
        occasions = self._draw(index).tolist()
        self.occasions += occasions
        trials = self._trials
        return [trials[o] for o in occasions]

    def _draw(self, index: IntArray) -> IntArray:
        if not self._noisy:
            return self._start[index]
        if len(set(index.tolist())) == len(index):
            drawn = self._start[index] + self._turn[index]
            self._turn[index] = (self._turn[index] + 1) % self._count[index]
            return drawn
        return np.array([self._draw(index[i : i + 1])[0] for i in range(len(index))])

    def _with_substitutes(self, candidates: Sequence[Candidate], index: IntArray) -> list[Trial]:
        trials = []
        for candidate, i in zip(candidates, index.tolist(), strict=True):
            nearest = i if i >= 0 else self._nearest(candidate)
            if nearest is None:
                self.missed_at.append(len(self.occasions))
                continue
            occasion = int(self._draw(np.array([nearest]))[0])
            self.occasions.append(occasion)
            trial = self._trials[occasion]
            if i < 0:
                self.substituted += 1
                trial = replace(trial, candidate=candidate)
            trials.append(trial)
        return trials

    def _nearest(self, candidate: Candidate) -> int | None:
        """Fewest differing knobs first, then the least difference of logarithms; recorded order."""
        for s, sketch in enumerate(self.table.sketches):
            if sketch.sketch_id != candidate.sketch_id:
                continue
            rows = np.flatnonzero(self.table.sketch_of == s)
            recorded = self.table.decisions[s]
            wanted = np.array(candidate.decisions, dtype=np.int64)
            differing = np.zeros(len(rows))
            distance = np.zeros(len(rows))
            for knob in sketch.knobs:
                have, want = recorded[:, knob.free], wanted[knob.free]
                differing += (have != want).any(axis=1)
                logs = np.log2(np.maximum(have, 1)) - np.log2(np.maximum(want, 1))
                distance += np.abs(logs).sum(axis=1)
            return int(rows[np.lexsort((distance, differing))[0]])
        return None
