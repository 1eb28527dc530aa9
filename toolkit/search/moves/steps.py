"""Steps along ordered knobs, and the test of whether one measurement beats another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, product

import numpy as np
from scipy import special

from toolkit.records import Candidate
from toolkit.search.base import Indexed, Space
from toolkit.search.moves.knobs import knob_order


def t_test_p_value(first: Sequence[float], second: Sequence[float]) -> float:
    """Two-sided p-value of Student's t-test for two independent samples of equal variance.

    The result of ``scipy.stats.ttest_ind``, a hundred times faster on a few repeats. 0 when
    neither sample varies and the means differ; 1 when neither varies and the means are equal, or
    when a sample has a single value. Never ``nan``.
    """
    a, b = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    free = len(a) + len(b) - 2
    if min(len(a), len(b)) < 2:
        return 1.0
    gap = abs(float(a.mean() - b.mean()))
    pooled = (a.var(ddof=1) * (len(a) - 1) + b.var(ddof=1) * (len(b) - 1)) / free
    error = float(np.sqrt(pooled * (1 / len(a) + 1 / len(b))))
    if error == 0.0:
        return 0.0 if gap > 0 else 1.0
    return float(2.0 * special.stdtr(free, -gap / error))


def beats(times_s: Sequence[float], best_s: Sequence[float], p_value: float) -> bool:
    """Whether the mean of ``times_s`` is lower; significantly, if both have repeats."""
    if sum(best_s) / len(best_s) <= sum(times_s) / len(times_s):
        return False
    single = min(len(best_s), len(times_s)) < 2
    return single or t_test_p_value(best_s, times_s) <= p_value


class Stepper:
    """Moves candidates along their knobs' order: s values up or down, in one knob or several.

    As published, every knob has an order: the order of its values in the template. Knobs of words
    and Kernel Tuner parameters are stepped through in the order of their choices; otherwise they
    could not be tuned.
    """

    def __init__(self, space: Space) -> None:
        self._space = space
        self._sketches = {sketch.sketch_id: sketch for sketch in space.sketches}
        self._known: dict[tuple[str, str], tuple[list[Candidate], list[Candidate]]] = {}

    def sides(self, candidate: Candidate, knob: str) -> tuple[list[Candidate], list[Candidate]]:
        """Neighbours in a knob with lower and with higher values, nearest first."""
        key = (candidate.candidate_id, knob)
        if key not in self._known:
            self._known[key] = self._sides(candidate, knob)
        return self._known[key]

    def _sides(self, candidate: Candidate, name: str) -> tuple[list[Candidate], list[Candidate]]:
        space = self._space
        if isinstance(space, Indexed):
            number = int(space.index_of([candidate])[0])
            if number < 0:
                return [], []
            k, every = space.graph.knob_number(number, name), space.candidates()
            down, up = (space.graph.one_way(number, k, way) for way in ("down", "up"))
            return [every[i] for i in down.tolist()], [every[i] for i in up.tolist()]
        knob = self._sketches[candidate.sketch_id].knob(name)
        group = [candidate, *space.neighbours(candidate, name)]
        keys = knob_order(knob, np.array([c.decisions for c in group], dtype=np.int64))
        order = np.lexsort(keys.T[::-1]).tolist()
        here = order.index(0)
        return [group[i] for i in order[:here]][::-1], [group[i] for i in order[here + 1 :]]

    def _knobs(self, candidate: Candidate) -> list[str]:
        return [knob.name for knob in self._sketches[candidate.sketch_id].knobs]

    def _shift(self, candidate: Candidate, knob: str, by: int) -> Candidate | None:
        """Candidate ``by`` values up (or down, when negative) in one knob; ``None`` at the end."""
        down, up = self.sides(candidate, knob)
        side = up if by > 0 else down
        return side[abs(by) - 1] if abs(by) <= len(side) else None

    def around(self, candidate: Candidate, step: int, together: int) -> Iterator[Candidate]:
        """Candidates ``step`` values up or down in 1 to ``together`` knobs, fewest knobs first."""
        knobs = self._knobs(candidate)
        for size in range(1, min(together, len(knobs)) + 1):
            for chosen in combinations(knobs, size):
                for signs in product((step, -step), repeat=size):
                    moved: Candidate | None = candidate
                    for knob, by in zip(chosen, signs, strict=True):
                        moved = None if moved is None else self._shift(moved, knob, by)
                    if moved is not None:
                        yield moved

    def longest(self, candidate: Candidate) -> int:
        """Number of values on the longer side of any knob: no longer step is possible."""
        sides = [side for knob in self._knobs(candidate) for side in self.sides(candidate, knob)]
        return max(map(len, sides), default=0)
