"""TVM's design spaces as a ``Space``: the live counterpart of a recorded space."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from toolkit.errors import SearchError
from toolkit.features import best_extractor_for
from toolkit.features.base import CandidateGroup
from toolkit.live.measure.machine import runs_on_cpu
from toolkit.live.space.choices import (
    choices,
    other_values,
    redrawn,
    with_value,
    without_postprocessors,
)
from toolkit.live.space.database import plain_target, workload_line
from toolkit.live.space.design import Design, DesignSpace
from toolkit.live.space.programs import entry_arguments
from toolkit.logs.formats.metaschedule.reader import Database, MetaScheduleReader
from toolkit.logs.formats.metaschedule.trace import Skeleton, read_skeleton
from toolkit.logs.formats.metaschedule.workload import read_workload
from toolkit.records import Candidate, Direction, Sketch, Task, candidate_id
from toolkit.training.trained.scorer import candidate_features

# Kinds that TVM's mutators or this module can change; limits of vectorisation are not decisions.
_MUTABLE = ("tile", "unroll", "vectorize", "parallel", "compute_location", "categorical")

# Candidates drawn by this module for each candidate that TVM draws.
REDRAWS = 32

# A space counts as exhausted when so many rounds in a row bring hardly anything new.
BARREN_ROUNDS = 6


class MetaScheduleSpace:
    """The candidates of a workload as TVM generates them.

    Sketches are TVM's design spaces, directions are its mutators, and its postprocessors decide
    what is valid. Candidates, sketches and the task have the same ids as in a dataset, so that
    models and records can be used, if ``machine`` is this machine's name in the dataset.
    """

    def __init__(self, design: DesignSpace, *, machine: str | None = None) -> None:
        self.design = design
        self.size: int | None = None
        self._arguments = entry_arguments(design.module, as_timed=False)
        workload = read_workload(workload_line(design.module).encode())
        reader = MetaScheduleReader(Database(workloads=(workload,), machine=machine))
        self.task: Task = reader.task(0, plain_target(design.target), self._arguments)[0]
        self._chosen: dict[str, tuple[int, list[Any]]] = {}
        self._skeletons: dict[tuple[int, tuple[int, ...]], Skeleton] = {}
        skeletons = [self._skeleton(i, base[0]) for i, base in enumerate(design.bases)]
        self.sketches: tuple[Sketch, ...] = tuple(skeleton.sketch for skeleton in skeletons)
        self._positions = [
            dict(zip((knob.name for knob in one.sketch.knobs), one.instructions, strict=True))
            for one in skeletons
        ]
        self._columns: list[str] | None = None
        self._index = {sketch.sketch_id: i for i, sketch in enumerate(self.sketches)}

    def _candidate(self, sketch: int, chosen: list[Any]) -> Candidate:
        skeleton = self._skeleton(sketch, chosen[0])
        decisions = skeleton.decide(chosen[1])
        identity = candidate_id(self.task.task_id, skeleton.sketch, decisions)
        self._chosen.setdefault(identity, (sketch, chosen))
        return Candidate(identity, skeleton.sketch.sketch_id, decisions)

    def _skeleton(self, sketch: int, instructions: list[Any]) -> Skeleton:
        """Read instructions; within a sketch they differ only in the limits of annotations."""
        limits = tuple(
            inputs[1]
            for kind, inputs, _, _ in instructions
            if kind == "Annotate" and isinstance(inputs[1], int)
        )
        if (sketch, limits) not in self._skeletons:
            self._skeletons[sketch, limits] = read_skeleton(instructions)
        return self._skeletons[sketch, limits]

    def adopt(self, schedule: str | list[Any], *, proven: bool = False) -> Candidate | None:
        """Add a recorded schedule (JSON); ``None`` if it is not in this space.

        ``proven`` skips TVM's check: for schedules that were measured in this same space.
        """
        recorded = orjson.loads(schedule) if isinstance(schedule, str) else schedule
        chosen = without_postprocessors(recorded)
        sketch = self._index.get(read_skeleton(chosen[0]).sketch.sketch_id)
        if sketch is None or (not proven and self.design.realise(sketch, chosen) is None):
            return None
        return self._candidate(sketch, chosen)

    def realise(self, candidate: Candidate) -> Design | None:
        """Return the scheduled program; ``None`` if TVM refuses it after all.

        Raises ``SearchError`` for a candidate that is not from this space.
        """
        return self.design.realise(*self._known(candidate))

    def candidates(self) -> Sequence[Candidate]:
        """Raise ``SearchError``: the space is too large to be listed."""
        raise SearchError(
            "a live space cannot be listed", cure="choose a strategy that samples candidates"
        )

    def sample(
        self, rng: np.random.Generator, n: int, sketch_id: str | None = None
    ) -> list[Candidate]:
        """Draw up to n distinct candidates.

        TVM draws one in ``REDRAWS`` of them. The others have its compute locations, and their tiles
        and categories are drawn here, a hundred times faster. TVM may refuse one of these (on a
        CPU also one that it drew itself); it then fails when it is measured.
        """
        sketch = None if sketch_id is None else self._index[sketch_id]
        found: dict[str, Candidate] = {}
        barren = 0
        for _ in range(2 * (n // REDRAWS) + 16):
            if len(found) >= n or barren == BARREN_ROUNDS:
                break
            before = len(found)
            one = self._drawn(rng, sketch, n)
            if one is None:
                continue
            of, first = one
            redraws = (redrawn(first, rng) for _ in range(min(REDRAWS, n // 8)))
            drawn = [first, *(self.design.settled(of, chosen) for chosen in redraws)]
            for chosen in drawn:
                candidate = self._candidate(of, chosen)
                found.setdefault(candidate.candidate_id, candidate)
            barren = barren + 1 if len(found) - before < 0.1 * len(drawn) else 0
        # In random order, so that dropping the surplus favours no candidate.
        listed = list(found.values())
        return [listed[i] for i in rng.permutation(len(listed))[:n].tolist()]

    def _drawn(
        self, rng: np.random.Generator, sketch: int | None, n: int
    ) -> tuple[int, list[Any]] | None:
        """Return TVM's draw and its sketch; without postprocessors for a large pool on a CPU."""
        if n > REDRAWS and runs_on_cpu(str(self.design.target)):
            drawn = self.design.draw(rng, sketch)
            return None if drawn is None else drawn[:2]
        design = self.design.sample(rng, sketch)
        return None if design is None else (design.sketch, design.chosen)

    def directions(self, candidate: Candidate) -> list[Direction]:
        """Return one direction for each knob that can be changed."""
        sketch, chosen = self._known(candidate)
        decided = {choice.position for choice in choices(chosen)}
        return [
            Direction(knob.kind, knob.name)
            for knob in self.sketches[sketch].knobs
            if knob.kind in _MUTABLE and self._positions[sketch][knob.name] in decided
        ]

    def _known(self, candidate: Candidate) -> tuple[int, list[Any]]:
        known = self._chosen.get(candidate.candidate_id)
        if known is None:
            raise SearchError(
                f"candidate {candidate.candidate_id} is not from this space",
                cure="use candidates that sample, neighbours, mutate or adopt returned",
            )
        return known

    def mutate(
        self, candidate: Candidate, direction: Direction, rng: np.random.Generator
    ) -> Candidate | None:
        """Change the direction's knob (or any of its rule); ``None``: there is no other value."""
        sketch, chosen = self._known(candidate)
        knob = direction.knob
        if knob is None:
            names = [d.knob for d in self.directions(candidate) if d.rule == direction.rule]
            if not names:
                return None
            knob = names[int(rng.integers(len(names)))]
        assert knob is not None
        position = self._positions[sketch][knob]
        proposal = next(self.design.proposals(sketch, chosen, position, rng), None)
        return None if proposal is None else self._candidate(sketch, proposal)

    def neighbours(self, candidate: Candidate, knob: str | None = None) -> list[Candidate]:
        """Return the candidates one move away: a factor moved, or the next value of a category.

        Compute locations and parallel extents have no order for such a move; ``mutate`` changes
        them.
        """
        sketch, chosen = self._known(candidate)
        wanted = None if knob is None else self._positions[sketch][knob]
        found: dict[str, Candidate] = {}
        for choice in choices(chosen):
            if wanted is not None and choice.position != wanted:
                continue
            if choice.kind == "tile":
                values: list[Any] = other_values(choice)
            elif choice.kind in ("unroll", "vectorize", "categorical"):
                beside = (choice.value - 1, choice.value + 1)
                values = [v for v in beside if 0 <= v < len(choice.limits)]
            else:
                continue
            for value in values:
                moved = self.design.settled(sketch, with_value(chosen, choice, value))
                neighbour = self._candidate(sketch, moved)
                found[neighbour.candidate_id] = neighbour
        found.pop(candidate.candidate_id, None)
        return list(found.values())

    def features(self, candidates: Sequence[Candidate]) -> NDArray[np.float32]:
        """Return features ``(n, d)`` in the candidates' order, with the columns of this task.

        The same extractor is used for recorded candidates, so offline and online features agree.
        """
        extractor = best_extractor_for(self.task)
        if self._columns is None:
            found: set[str] = set()
            for i, (sketch, base) in enumerate(zip(self.sketches, self.design.bases, strict=True)):
                decided = self._skeleton(i, base[0]).decide(base[1])
                decisions = np.array([decided], dtype=np.int64)
                group = CandidateGroup(self.task, sketch, decisions)
                found.update(extractor.extract(group).columns)
            self._columns = sorted(found)
        return candidate_features(self.task, self.sketches, candidates, extractor, self._columns)
