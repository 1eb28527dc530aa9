"""The genes of a genetic tuner: points of a grid if there is one, else candidates."""

from __future__ import annotations

from typing import Any

import numpy as np

from toolkit.records import Candidate, Direction
from toolkit.search.base import Composes, Space
from toolkit.search.moves.knobs import BoolArray, FloatArray, IntArray, crossed, second_parent
from toolkit.search.moves.lattice import Lattice
from toolkit.search.strategy import sample_unseen

ATTEMPTS = 50


def draw_pairs(rng: np.random.Generator, weights: FloatArray, n: int) -> tuple[IntArray, IntArray]:
    """Draw n pairs of different parents, each with probability proportional to its weight."""
    total = weights.cumsum()
    total[-1] = 1.0
    first = total.searchsorted(rng.random(n), side="right")
    second = total.searchsorted(rng.random(n), side="right")
    for _ in range(ATTEMPTS):
        same = (first == second).nonzero()[0]
        if not len(same):
            return first, second
        second[same] = total.searchsorted(rng.random(len(same)), side="right")
    # One parent may hold nearly all the weight: the second parent is then the next one in order.
    return first, np.where(first == second, (first + 1) % len(weights), second)


class Genes:
    """Genes that are candidates: crossover if the space can compose, mutation by its ``mutate``.

    A generation is an array of genes along its first axis.
    """

    def __init__(self, space: Space) -> None:
        self._space = space
        self._sketches = {sketch.sketch_id: sketch for sketch in space.sketches}

    def random(self, rng: np.random.Generator, n: int, visited: set[str]) -> Any:
        """Return up to n distinct random genes outside ``visited``."""
        return np.array(sample_unseen(self._space, rng, n, visited), dtype=object)

    def rest(self, visited: set[str]) -> Any:
        """Return all genes of a finite space outside ``visited``."""
        left = [c for c in self._space.candidates() if c.candidate_id not in visited]
        return np.array(left, dtype=object)

    def candidates(self, genes: Any) -> list[Candidate]:
        """Return the candidates of genes, without points that are not candidates."""
        return list(genes)

    def breed(
        self,
        rng: np.random.Generator,
        parents: Any,
        weights: FloatArray,
        n: int,
        mutation: float,
        visited: set[str] | None,
    ) -> Any:
        """Return n children by crossover and mutation; outside ``visited`` if it is given."""
        children: list[Candidate] = []
        taken = set() if visited is None else set(visited)
        for _ in range(ATTEMPTS):
            first, second = draw_pairs(rng, weights, n - len(children))
            for a, b in zip(first.tolist(), second.tolist(), strict=True):
                child = self._mutated(rng, self._crossed(rng, parents[a], parents[b]), mutation)
                if visited is None or child.candidate_id not in taken:
                    taken.add(child.candidate_id)
                    children.append(child)
            if len(children) >= n:
                break
        return np.array(children, dtype=object)

    def _crossed(self, rng: np.random.Generator, a: Candidate, b: Candidate) -> Candidate:
        knobs = self._sketches[a.sketch_id].knobs
        if a.sketch_id != b.sketch_id or not knobs or not isinstance(self._space, Composes):
            return a
        vector = crossed(knobs, a.decisions, b.decisions, int(rng.integers(len(knobs))))
        return self._space.compose(a.sketch_id, vector) or a

    def _mutated(self, rng: np.random.Generator, child: Candidate, mutation: float) -> Candidate:
        for knob in self._sketches[child.sketch_id].knobs:
            if rng.random() >= mutation:
                continue
            if any(d.knob == knob.name for d in self._space.directions(child)):
                child = self._space.mutate(child, Direction(knob.kind, knob.name), rng) or child
        return child


class LatticeGenes(Genes):
    """Genes on a grid: rows (sketch, point), bred all at once.

    A knob that mutates takes any of its values, possibly the same one, as in AutoTVM.
    """

    _space: Any

    def __init__(self, space: Any) -> None:
        super().__init__(space)
        self._all: list[Candidate] = space.candidates()
        self._lattices = [Lattice.of(space, s) for s in range(len(space.sketches))]
        self._knobs = max((len(lattice.dims) for lattice in self._lattices), default=0)
        self._rows = np.zeros((len(self._all), 1 + self._knobs), dtype=np.int64)
        # One value for the knobs that a sketch does not have, so that mutation leaves them alone.
        self._dims = np.ones((len(self._lattices), self._knobs), dtype=np.int64)
        for s, lattice in enumerate(self._lattices):
            self._rows[lattice.numbers, 0] = s
            self._rows[lattice.numbers, 1 : 1 + len(lattice.dims)] = lattice.points
            self._dims[s, : len(lattice.dims)] = lattice.dims

    def random(self, rng: np.random.Generator, n: int, visited: set[str]) -> IntArray:
        picks = rng.permutation(len(self._all))
        if visited:
            picks = picks[[self._all[i].candidate_id not in visited for i in picks.tolist()]]
        return np.asarray(self._rows[picks[:n]])

    def rest(self, visited: set[str]) -> IntArray:
        return np.asarray(self._rows[[c.candidate_id not in visited for c in self._all]])

    def _are_candidates(self, genes: IntArray) -> BoolArray:
        numbers = np.full(len(genes), -1, dtype=np.int64)
        for s, lattice in enumerate(self._lattices):
            rows = slice(None) if len(self._lattices) == 1 else genes[:, 0] == s
            numbers[rows] = lattice.find(genes[rows, 1 : 1 + len(lattice.dims)])
        return np.asarray(numbers >= 0)

    def candidates(self, genes: IntArray) -> list[Candidate]:
        return [c for c in self._each(genes) if c is not None]

    def _each(self, genes: IntArray) -> list[Candidate | None]:
        """Candidate of each row; an unrecorded one is composed, an invalid hole gives ``None``."""
        if len(self._lattices) == 1:
            return self._lattices[0].candidates(genes[:, 1:])
        out: list[Candidate | None] = [None] * len(genes)
        for s, lattice in enumerate(self._lattices):
            rows = np.flatnonzero(genes[:, 0] == s)
            found = lattice.candidates(genes[rows, 1 : 1 + len(lattice.dims)])
            for row, candidate in zip(rows.tolist(), found, strict=True):
                out[row] = candidate
        return out

    def breed(
        self,
        rng: np.random.Generator,
        parents: IntArray,
        weights: FloatArray,
        n: int,
        mutation: float,
        visited: set[str] | None,
    ) -> IntArray:
        kept: list[IntArray] = []
        missing = n
        for _ in range(ATTEMPTS):
            children = self._children(rng, parents, weights, missing, mutation)
            if visited is not None:
                children = self._renew(rng, children, visited)
            if self._space.complete:
                # Points that are no candidates are drawn again.
                children = children[self._are_candidates(children)]
            kept.append(children)
            missing -= len(children)
            if missing <= 0:
                break
        return kept[0] if len(kept) == 1 else np.concatenate(kept)

    def _children(
        self,
        rng: np.random.Generator,
        parents: IntArray,
        weights: FloatArray,
        n: int,
        mutation: float,
    ) -> IntArray:
        first, second = draw_pairs(rng, weights, n)
        children, other = parents[first], parents[second]
        sketch = children[:, 0]
        if len(self._lattices) == 1:
            tail = second_parent(self._knobs, rng.integers(max(self._knobs, 1), size=n))
            dims: Any = self._dims[0]
        else:
            counts = np.array([len(lattice.dims) for lattice in self._lattices])
            point = (rng.random(n) * np.maximum(counts[sketch], 1)).astype(np.int64)
            # Parents of different sketches have no knobs in common: the child copies the first.
            tail = second_parent(self._knobs, point) & (sketch == other[:, 0])[:, None]
            dims = self._dims[sketch]
        genes = children[:, 1:]
        np.copyto(genes, other[:, 1:], where=tail)
        draws = rng.random(genes.shape)
        # One draw says whether to mutate, and its remainder to which value.
        mutated = (draws * (1.0 / mutation if mutation > 0 else 0.0) * dims).astype(np.int64)
        np.copyto(genes, np.minimum(mutated, dims - 1), where=draws < mutation)
        return children

    def _renew(self, rng: np.random.Generator, children: IntArray, visited: set[str]) -> IntArray:
        """Mutate one random knob after another until a child is new (TVM 0.10)."""
        taken = set(visited)
        out = []
        firsts = self._each(children)
        for child, first in zip(children, firsts, strict=True):
            lattice = self._lattices[int(child[0])]
            knobs = len(lattice.dims)
            for attempt in range(ATTEMPTS * max(knobs, 1)):
                candidate = lattice.candidates(child[None, 1 : 1 + knobs])[0] if attempt else first
                if candidate is not None and candidate.candidate_id not in taken:
                    taken.add(candidate.candidate_id)
                    out.append(child)
                    break
                k = int(rng.integers(max(knobs, 1)))
                child[1 + k] = rng.integers(lattice.dims[k])
        return np.array(out, dtype=np.int64).reshape(len(out), children.shape[1])
