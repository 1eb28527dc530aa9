"""One value per candidate, whose differences best fit the predicted gains of all single steps.

A direction model predicts each step by itself, and its errors contradict each other: two ways to
the same candidate promise different gains. Least squares over the graph of neighbours finds the
values that contradict the predictions least (HodgeRank: Jiang, Lim, Yao and Ye 2011, "Statistical
ranking and combinatorial Hodge theory"). Errors of single steps partly cancel over the many paths.

Sums over a direction's neighbours are differences of running sums, since neighbours are stored
side by side in ``NeighbourGraph.members``: one product with the matrix costs O(knobs n).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator, lsqr

from toolkit.records import Candidate
from toolkit.search.base import DirectionScorer, Indexed, Scorer, Space
from toolkit.search.graph import NeighbourGraph
from toolkit.search.moves.knobs import FloatArray

MOST_ITERATIONS = 300


class Steps:
    """The directions of all candidates of a graph as equations: mean over neighbours minus own."""

    def __init__(self, graph: NeighbourGraph) -> None:
        self.candidates = len(graph.sketch_of)
        owners = [(slot, i) for i in range(self.candidates) for slot, _ in graph.slots(i)]
        places = np.array(owners, dtype=np.int64).reshape(-1, 2)
        slots, self._owner = places[:, 0], places[:, 1]
        knob, down = slots // 2, slots % 2 == 1
        start, count = graph.start[knob, self._owner], graph.count[knob, self._owner]
        here = graph.here[knob, self._owner]
        ordered = graph.ordered[graph.sketch_of[self._owner], knob]
        self._low = np.where(ordered & ~down, start + here + 1, start)
        self._high = np.where(ordered & down, start + here, start + count)
        # The group of a knob without an order has the candidate itself in its middle.
        self._itself = (~ordered).astype(np.float64)
        self._neighbours = self._high - self._low - self._itself
        self._members = graph.members

    def differences(self, values: FloatArray) -> FloatArray:
        """Mean of the neighbours' values minus the candidate's own, by equation."""
        sums = np.concatenate(([0.0], np.cumsum(values[self._members])))
        own = values[self._owner]
        total = sums[self._high] - sums[self._low] - self._itself * own
        return np.asarray(total / self._neighbours - own)

    def transposed(self, weights: FloatArray) -> FloatArray:
        """Product of the transposed matrix of ``differences`` with one value per equation."""
        each = weights / self._neighbours
        steps = np.bincount(self._low, each, len(self._members) + 1)
        steps -= np.bincount(self._high, each, len(self._members) + 1)
        gathered = np.bincount(self._members, np.cumsum(steps)[:-1], self.candidates)
        own = np.bincount(self._owner, weights + self._itself * each, self.candidates)
        return np.asarray(gathered - own)


def fit_potential(
    steps: Steps, gains: FloatArray, levels: FloatArray | None = None, weight: float = 0.0
) -> FloatArray:
    """Find the potential ``(n,)``, up to a constant in each connected part of the graph.

    ``gains``, ``(equations,)``, are predicted gains of directions (log latency before minus after).
    ``levels`` are the predicted log throughput of each candidate, up to a constant, as further
    equations with this ``weight``. They also connect parts that no step joins.
    """
    n = steps.candidates
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
    """Replace NaN and minus infinity in scores by the lowest of 0 and the finite scores."""
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
    """Return the potential of candidates of a listed space, ``(n,)``, as models predict it.

    Computed once for all runs on the space. Gains must be in log latency: those of the methods
    ``expected`` and ``direct`` are, the log probabilities of ``classifier`` are not. ``levels`` is
    a throughput model whose predictions are further equations with this ``weight``.
    """
    assert isinstance(space, Indexed)
    graph, every = space.graph, space.candidates()

    def fit() -> FloatArray:
        gains = [
            directions.gains(space, candidate, ways)
            for number, candidate in enumerate(every)
            if (ways := graph.directions(number))
        ]
        scores = None if levels is None else finite(levels.score(space, every))
        wanted = np.nan_to_num(np.concatenate([np.zeros(0), *gains]))
        return fit_potential(Steps(graph), wanted, scores, weight)

    whole = graph.keep(("potential", directions, levels, weight), fit)
    return np.asarray(whole[space.index_of(candidates)])
