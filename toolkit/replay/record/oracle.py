"""Answers measurements from the record: a recorded occasion for every candidate, or a miss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from toolkit.errors import SearchError
from toolkit.records import Candidate, Trial, content_id
from toolkit.replay.record.space import RecordedSpace

Missing = Literal["skip", "error", "nearest"]


class RecordedOracle:
    """Recorded measurements of one task, one occasion drawn for each evaluation.

    Noise (honesty rule 6): where a candidate was measured on several occasions, one of them is
    drawn, failures included; a second measurement in the same run gives the next occasion.
    The draws depend on the task and the seed only, so that all strategies get the same occasions
    under one seed (paired runs).

    A candidate outside the record (honesty rule 2) has no trial (``missing="skip"``; the runner
    counts it), raises ``SearchError`` (``error``), or gets the trial of the recorded candidate of
    its sketch with the fewest other decisions (``nearest``; counted in ``substituted``).

    ``occasions`` are the measured occasions in order, from which the metrics are computed;
    ``missed_at`` gives for each miss the number of occasions before it.
    """

    def __init__(self, space: RecordedSpace, *, seed: int = 0, missing: Missing = "skip") -> None:
        self.space = space
        self.table = table = space.table
        self.missing = missing
        self.occasions: list[int] = []
        self.missed_at: list[int] = []
        self.substituted = 0
        self._trials, self._noisy = table.trials, table.noisy
        if self._noisy:
            key = int(content_id("occasions", table.task.task_id), 16)
            rng = np.random.default_rng([seed, key])
            self._start, self._count = table.offsets[:-1], table.occasions
            self._turn = (rng.random(len(table)) * self._count).astype(np.int64)

    def measure(self, candidates: Sequence[Candidate]) -> list[Trial]:
        """Return one recorded trial per candidate, in order; an unrecorded one has none."""
        index = self.space.numbers_of(candidates)
        if -1 in index:
            if self.missing == "error":
                outside = candidates[index.index(-1)]
                raise SearchError(
                    f"candidate {outside.candidate_id} was never recorded "
                    f"(decisions {outside.decisions})",
                    where=f"task {self.table.task.task_id}",
                    cure="set missing = 'skip' or 'nearest' in the scenario",
                )
            if self.missing == "nearest":
                return self._with_substitutes(candidates, index)
            before = len(self.occasions)
            inside: list[int] = []
            for i in index:
                if i < 0:
                    self.missed_at.append(before + len(inside))
                else:
                    inside.append(i)
            index = inside
        occasions = self._draw(index)
        self.occasions += occasions
        return list(map(self._trials.__getitem__, occasions))

    def _draw(self, index: list[int]) -> list[int]:
        """Occasion of each candidate, given and returned by number."""
        if not self._noisy:
            return index
        if len(set(index)) == len(index):
            at = np.array(index, dtype=np.int64)
            drawn: list[int] = (self._start[at] + self._turn[at]).tolist()
            self._turn[at] = (self._turn[at] + 1) % self._count[at]
            return drawn
        return [self._draw([i])[0] for i in index]

    def _with_substitutes(self, candidates: Sequence[Candidate], index: list[int]) -> list[Trial]:
        trials = []
        for candidate, i in zip(candidates, index, strict=True):
            nearest = i if i >= 0 else self._nearest(candidate)
            if nearest is None:
                self.missed_at.append(len(self.occasions))
                continue
            self.occasions += self._draw([nearest])
            trial = self._trials[self.occasions[-1]]
            if i < 0:
                self.substituted += 1
                trial = replace(trial, candidate=candidate)
            trials.append(trial)
        return trials

    def _nearest(self, candidate: Candidate) -> int | None:
        """Nearest recorded candidate: fewest differing knobs, then the least difference of logs."""
        ids = [sketch.sketch_id for sketch in self.table.sketches]
        if candidate.sketch_id not in ids:
            return None
        number = ids.index(candidate.sketch_id)
        recorded = self.table.decisions[number]
        wanted = np.array(candidate.decisions, dtype=np.int64)
        differing, distance = np.zeros((2, len(recorded)))
        for knob in self.table.sketches[number].knobs:
            have, want = recorded[:, knob.free], wanted[knob.free]
            differing += (have != want).any(axis=1)
            logs = np.log2(np.maximum(have, 1)) - np.log2(np.maximum(want, 1))
            distance += np.abs(logs).sum(axis=1)
        row = np.lexsort((distance, differing))[0]
        return int(np.flatnonzero(self.table.sketch_of == number)[row])
