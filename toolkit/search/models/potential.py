"""One value a candidate whose differences fit the predicted gains of all single steps best.

A direction model predicts each step by itself, and its errors contradict each other: two ways to
the same candidate promise different gains. Least squares over the graph of neighbours finds the
values that contradict the predictions least (HodgeRank: Jiang, Lim, Yao and Ye 2011, "Statistical
ranking and combinatorial Hodge theory"). Errors of single steps cancel along the many ways.

Sums over a direction's neighbours are differences of running sums, since neighbours stand side by
side in ``NeighbourGraph.members``: one product with the matrix costs O(knobs n).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator, lsqr

from toolkit.records import Candidate
from toolkit.search.base import DirectionScorer, Indexed, Scorer, Space
from toolkit.search.graph import NeighbourGraph
from toolkit.search.moves.knobs import FloatArray, IntArray

MOST_ITERATIONS = 300


class Steps:
    """The directions of all candidates of a graph as equations: mean over neighbours minus own.

    Attributes
    ----------
    slots, owner
        ``(equations,)``: the direction's slot (``NeighbourGraph.step_way``), and the candidate.
    """

    def __init__(self, graph: NeighbourGraph) -> None:
        owners = [
            (slot, candidate)
            for candidate in range(len(graph.sketch_of))
            for slot, _ in graph.slots(candidate)
        ]
        places = np.array(owners, dtype=np.int64).reshape(-1, 2)
        self.slots: IntArray = places[:, 0]
        self.owner: IntArray = places[:, 1]
        knob = self.slots // 2
        start, count = graph.start[knob, self.owner], graph.count[knob, self.owner]
        here = graph.here[knob, self.owner]
        ordered = graph.ordered[graph.sketch_of[self.owner], knob]
        down = self.slots % 2 == 1
        self._low = np.where(ordered & ~down, start + here + 1, start)
        self._high = np.where(ordered & down, start + here, start + count)
        # The group of a knob without an order has the candidate itself in its middle.
        self._itself = (~ordered).astype(np.float64)
        self._neighbours = self._high - self._low - self._itself
        self._members = graph.members
        self._n = len(graph.sketch_of)

    def differences(self, values: FloatArray) -> FloatArray:
        """Mean of the neighbours' values minus the candidate's own, by equation."""
        sums = np.concatenate(([0.0], np.cumsum(values[self._members])))
        own = values[self.owner]
        total = sums[self._high] - sums[self._low] - self._itself * own
        return np.asarray(total / self._neighbours - own)

    def transposed(self, weights: FloatArray) -> FloatArray:
        """Product of the transposed matrix of ``differences`` with a value an equation."""
        each = weights / self._neighbours
        steps = np.bincount(self._low, each, len(self._members) + 1)
        steps -= np.bincount(self._high, each, len(self._members) + 1)
        gathered = np.bincount(self._members, np.cumsum(steps)[:-1], self._n)
        own = np.bincount(self.owner, weights + self._itself * each, self._n)
        return np.asarray(gathered - own)


def fit_potential(
    graph: NeighbourGraph,
    steps: Steps,
    gains: FloatArray,
    levels: FloatArray | None = None,
    weight: float = 0.0,
) -> FloatArray:
    """Find the potential ``(n,)``, up to a constant in each connected part of the graph.

    Parameters
    ----------
    gains
        ``(equations,)`` predicted gain of each direction (log latency before minus after).
    levels, weight
        Predicted log throughput of each candidate, up to a constant, as further equations with
        this weight. They also tie parts together that no step joins.
    """
    n = len(graph.sketch_of)
    if levels is None:
        levels, weight = np.zeros(n), 0.0

    def product(values: FloatArray) -> FloatArray:
        values = values.reshape(-1)
        return np.concatenate([steps.differences(values), weight * values])

    def transposed(values: FloatArray) -> FloatArray:
        values = values.reshape(-1)
        return steps.transposed(values[: len(gains)]) + weight * values[len(gains) :]

    matrix = LinearOperator(
        (len(gains) + n, n), matvec=product, rmatvec=transposed, dtype=np.float64
    )
    wanted = np.concatenate([gains, weight * (levels - levels.mean())])
    return np.asarray(lsqr(matrix, wanted, iter_lim=MOST_ITERATIONS)[0])


def finite(scores: NDArray[np.float64]) -> FloatArray:
    """Scores with what a model could not say (NaN, minus infinity) as the lowest of the others."""
    scores = np.asarray(scores, dtype=np.float64)
    lowest = scores[np.isfinite(scores)].min(initial=0.0)
    return np.nan_to_num(scores, nan=lowest, neginf=lowest)


def potential_of(
    space: Space,
    candidates: Sequence[Candidate],
    directions: DirectionScorer,
    levels: Scorer | None = None,
    weight: float = 0.0,
) -> FloatArray:
    """The potential of a finite space's candidates, ``(n,)``, by what models say of them.

    Computed once for all runs on a space that keeps its graph. Gains must have a unit: those of
    the methods ``expected`` and ``direct`` do, the log probabilities of ``classifier`` do not.

    Parameters
    ----------
    candidates
        All of the space's, as it lists them.
    levels, weight
        A throughput model whose predictions are further equations with this weight.
    """
    graph = space.graph if isinstance(space, Indexed) else _graph(space, candidates)
    key = ("potential", directions, levels, weight)
    if key not in graph.kept:
        steps = Steps(graph)
        gains = [
            directions.gains(space, candidate, ways)
            for number, candidate in enumerate(candidates)
            if (ways := graph.directions(number))
        ]
        scores = None if levels is None else finite(levels.score(space, candidates))
        graph.kept[key] = fit_potential(
            graph,
            steps,
            np.nan_to_num(np.concatenate([np.zeros(0), *gains])),
            scores,
            weight,
        )
    found: FloatArray = graph.kept[key]
    return found


def _graph(space: Space, candidates: Sequence[Candidate]) -> NeighbourGraph:
    """The neighbours of a space that keeps no graph of its own."""
    numbers = {sketch.sketch_id: s for s, sketch in enumerate(space.sketches)}
    sketch_of = np.array([numbers[c.sketch_id] for c in candidates], dtype=np.int64)
    decisions = [
        np.array(
            [c.decisions for c in candidates if c.sketch_id == sketch.sketch_id], dtype=np.int64
        ).reshape(-1, sketch.width)
        for sketch in space.sketches
    ]
    return NeighbourGraph(space.sketches, sketch_of, decisions)
