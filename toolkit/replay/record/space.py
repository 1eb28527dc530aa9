"""The recorded candidates of one task as a space, with their one-decision neighbour graph.

``sample``, ``neighbours`` and ``mutate`` return recorded candidates only. ``compose`` alone can
return others, and the oracle counts them. ``neighbourhood_coverage`` is the recorded share of the
neighbourhoods: a walk over a sparse record differs from a walk over the space.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from toolkit.records import Candidate, Direction, Sketch, Task, content_id
from toolkit.replay.record.table import RecordedTable, load_tables
from toolkit.search.graph import NeighbourGraph
from toolkit.search.models.encoding import encode_all
from toolkit.search.moves.knobs import IntArray, Kernel
from toolkit.search.strategy import candidate_id


class RecordedSpace:
    """The recorded candidates of one task.

    ``source`` is a ``RecordedTable``, or an opened dataset with the task named. ``kernel`` says
    what a mutation may do to a tile (``toolkit.search.moves.knobs``).
    """

    def __init__(
        self, source: Any, task_id: str | None = None, *, kernel: Kernel = "any-value"
    ) -> None:
        if not isinstance(source, RecordedTable):
            source = load_tables(source, None if task_id is None else [task_id])[str(task_id)]
        table: RecordedTable = source
        self.table = table
        self.task: Task = table.task
        self.sketches: Sequence[Sketch] = table.sketches
        self.size: int | None = len(table)
        self.complete = table.enumerated
        self.graph = NeighbourGraph(table.sketches, table.sketch_of, table.decisions, kernel)
        self._candidates = table.candidates
        self._number = {candidate_id: i for i, candidate_id in enumerate(table.candidate_ids)}
        self._by_sketch = {
            sketch.sketch_id: np.flatnonzero(table.sketch_of == s)
            for s, sketch in enumerate(table.sketches)
        }
        self._known: dict[str, tuple[list[int], dict[tuple[int, ...], int]]] = {}
        self._matrix: NDArray[np.float32] | None = None

    def candidates(self) -> Sequence[Candidate]:
        """All recorded candidates, in recorded order."""
        return self._candidates

    def index_of(self, candidates: Sequence[Candidate]) -> IntArray:
        """Number of each candidate, -1 where it was not recorded."""
        return np.array(self.numbers_of(candidates), dtype=np.int64)

    def numbers_of(self, candidates: Sequence[Candidate]) -> list[int]:
        """``index_of`` as a list."""
        return list(map(self._number.get, map(candidate_id, candidates), repeat(-1)))

    def grid_order(self) -> IntArray:
        """Numbers by configuration index where the log has it, else by knob values.

        AutoTVM's index counts with the first knob fastest (``ConfigSpace``, ``knob2point``);
        without an index, sketches come one after the other and values in the order of
        ``knob_order``.
        """
        if self.table.config_index is not None:
            return np.argsort(self.table.config_index, kind="stable")
        keys = [self.graph.rank[k] for k in range(self.graph.knobs)]
        return np.lexsort([*keys, self.table.sketch_of])

    def sample(
        self, rng: np.random.Generator, n: int, sketch_id: str | None = None
    ) -> list[Candidate]:
        """Draw up to n distinct recorded candidates; only of ``sketch_id`` if it is given."""
        pool: Any = len(self._candidates)
        if sketch_id is not None:
            pool = self._by_sketch.get(sketch_id, np.empty(0, dtype=np.int64))
        return [self._candidates[i] for i in rng.permutation(pool)[:n].tolist()]

    def neighbours(self, candidate: Candidate, knob: str | None = None) -> list[Candidate]:
        """Recorded candidates that differ in one decision (of that knob, or of any)."""
        i = self._number.get(candidate.candidate_id)
        if i is None:
            return []
        k = None if knob is None else self.graph.knob_number(i, knob)
        return [self._candidates[j] for j in self.graph.neighbours(i, k).tolist()]

    def directions(self, candidate: Candidate) -> list[Direction]:
        """Directions in which a recorded neighbour lies."""
        i = self._number.get(candidate.candidate_id)
        return [] if i is None else self.graph.directions(i)

    def mutate(
        self, candidate: Candidate, direction: Direction, rng: np.random.Generator
    ) -> Candidate | None:
        """Draw a recorded neighbour in that direction; ``None`` when there is none.

        A direction that names no knob stands for any knob of its rule.
        """
        i = self._number.get(candidate.candidate_id)
        if i is None:
            return None
        sketch = self.graph.sketches[self.graph.sketch_of[i]]
        pools = [
            self.graph.one_way(i, k, direction.way)
            for k, knob in enumerate(sketch.knobs)
            if direction.knob == knob.name
            or (direction.knob is None and direction.rule == knob.kind)
        ]
        pool = np.concatenate([np.empty(0, dtype=np.int64), *pools])
        return self._candidates[int(pool[rng.integers(len(pool))])] if len(pool) else None

    def compose(self, sketch_id: str, decisions: Sequence[int]) -> Candidate | None:
        """Return the candidate with these decisions, recorded or not (honesty rule 2)."""
        known = self._known.get(sketch_id)
        if known is None:
            if sketch_id not in self._by_sketch:
                return None
            s = list(self._by_sketch).index(sketch_id)
            knobs, rows = self.sketches[s].knobs, self._by_sketch[sketch_id].tolist()
            free = [column for k in knobs for column in range(k.free.start, k.free.stop)]
            values = self.table.decisions[s][:, free].tolist()
            known = free, dict(zip(map(tuple, values), rows, strict=True))
            self._known[sketch_id] = known
        wanted = tuple([int(decisions[column]) for column in known[0]])
        found = known[1].get(wanted)
        if found is not None:
            return self._candidates[found]
        unrecorded = content_id(self.task.task_id, sketch_id, "unrecorded", repr(list(wanted)))
        return Candidate(unrecorded, sketch_id, tuple([int(v) for v in decisions]))

    def features(self, candidates: Sequence[Candidate]) -> NDArray[np.float32]:
        """Feature matrix of candidates, recorded ones from a matrix that is computed once."""
        if self._matrix is None:
            self._matrix = encode_all(self.sketches, self._candidates)
        index = self.index_of(candidates)
        out, outside = self._matrix[index], np.flatnonzero(index < 0)
        if len(outside):
            out[outside] = encode_all(self.sketches, [candidates[i] for i in outside.tolist()])
        return out

    def neighbourhood_coverage(self) -> float:
        """Mean over candidates of recorded neighbours over possible ones (0 to 1).

        Possible values of a knob are those that occur in the task's sketch. The real space may have
        more, so this is an upper bound, and 1 for a space that was enumerated.
        """
        if not len(self._candidates):
            return 0.0
        others = [sum(len(values) - 1 for values in knobs) for knobs in self.graph.values]
        possible = np.array(others, dtype=np.float64)[self.graph.sketch_of]
        shares = self.graph.degree / np.maximum(possible, 1.0)
        return float(shares[possible > 0].mean()) if (possible > 0).any() else 1.0
