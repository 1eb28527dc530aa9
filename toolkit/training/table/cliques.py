"""Sets of candidates that differ in one decision alone, across the rows of a training table.

A model that chooses between a candidate's directions is right when it orders neighbours rightly; it
may be wrong by any amount about the candidate itself, or the task. The objective ``neighbours``
says so: squared errors of differences inside each set, and a small share of the ordinary squared
error, which ties the sets together. A set of neighbours of one knob is a clique of the graph that
joins candidates with one differing decision, and the sum over its pairs follows from its mean, so
the cost is linear in rows and knobs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from toolkit.features.base import CandidateGroup
from toolkit.training.arrays import Floats, Ints
from toolkit.training.table.neighbours import other_decisions

LEVEL_SHARE = 0.1
"""Weight of the ordinary squared error beside that of differences."""


@dataclass(frozen=True)
class Cliques:
    """Neighbour sets over numbered rows.

    ``row`` and ``clique`` have one entry a membership: a row, and the set that it is in. A row is
    in at most one set a knob; sets have two rows or more. ``size`` is the number of rows of each
    set.
    """

    row: Ints
    clique: Ints
    size: Ints

    def excess(self, values: Floats) -> Floats:
        """Each membership's value less its set's mean, one value a membership."""
        own = values[self.row]
        mean = np.bincount(self.clique, own, len(self.size)) / np.maximum(self.size, 1)
        return np.asarray(own - mean[self.clique])


def find_cliques(groups: Iterable[tuple[int, CandidateGroup]], rows: Ints) -> Cliques:
    """Find the neighbour sets among some rows of a table; memberships number ``rows`` from 0.

    ``groups`` gives each group with its first row in the table; ``rows`` ascends.
    """
    none = np.zeros(0, dtype=np.int64)
    found, total = [(none, none, none)], 0
    for start, group in groups:
        low, high = np.searchsorted(rows, (start, start + len(group)))
        if high - low < 2:
            continue
        for rest in other_decisions(group.sketch, group.decisions[rows[low:high] - start]):
            _, number, count = np.unique(rest, return_inverse=True, return_counts=True)
            number = number.reshape(-1)
            several = np.flatnonzero(count[number] > 1)
            used, dense = np.unique(number[several], return_inverse=True)
            found.append((low + several, total + dense.reshape(-1), count[used]))
            total += len(used)
    return Cliques(*(np.concatenate(parts) for parts in zip(*found, strict=True)))


def neighbour_loss(
    predicted: Floats, target: Floats, weight: Floats, cliques: Cliques
) -> tuple[Floats, Floats]:
    """Gradient and Hessian of the objective ``neighbours``, one value a row.

    The loss is, over sets, half the sum of squared excess errors, and ``LEVEL_SHARE`` times half
    the squared error of each row, both by the rows' weights. The Hessian is its diagonal.
    """
    error = predicted - target
    own, level = weight[cliques.row], LEVEL_SHARE * weight
    gradient = np.bincount(cliques.row, own * cliques.excess(error), len(target))
    curvature = np.bincount(cliques.row, own * (1 - 1 / cliques.size[cliques.clique]), len(target))
    return gradient + level * error, curvature + level
