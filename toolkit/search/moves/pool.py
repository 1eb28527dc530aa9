"""Candidates worth a model's look in a space that cannot be listed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from toolkit.records import Candidate, Trial
from toolkit.search.base import Space
from toolkit.search.strategy import throughput


def sampled_pool(
    space: Space, rng: np.random.Generator, n: int, trials: Sequence[Trial], *, share: float = 0.5
) -> list[Candidate]:
    """Sample about n candidates: random ones, and mutants of the fastest measured.

    Parameters
    ----------
    share
        Share of mutants, once something succeeded.
    """
    good = sorted((t for t in trials if throughput(t) > 0), key=throughput, reverse=True)
    mutants = int(n * share) if good else 0
    found = {c.candidate_id: c for c in space.sample(rng, n - mutants)}
    parents = [trial.candidate for trial in good[: max(1, len(good) // 5)]]
    for _ in range(mutants):
        # The faster a parent, the more mutants: ranks are drawn by a triangular distribution.
        parent = parents[int(len(parents) * rng.random() * rng.random())]
        directions = space.directions(parent)
        if not directions:
            continue
        moved = space.mutate(parent, directions[int(rng.integers(len(directions)))], rng)
        if moved is not None:
            found.setdefault(moved.candidate_id, moved)
    return list(found.values())
