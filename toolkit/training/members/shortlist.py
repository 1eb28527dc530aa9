"""Choose which candidates to measure first, if several can be measured.

The k candidates with the highest means of an ensemble are often near relatives: all good, or all
bad. But a user gets the best of the k. So members count as different beliefs about the task, and
candidates are taken one by one: each time the one that adds most to the expected best of those
taken so far (greedy choice, within 1 - 1/e of the optimum: Nemhauser, Wolsey and Fisher 1978,
facility location). The first candidate has the highest mean. If no member expects more of any
other candidate, the list ends; after it the order is that of the means.
"""

from __future__ import annotations

import numpy as np

from toolkit.training.arrays import Floats

BELIEVED = 0.5
"""Share of the members' disagreement that counts as belief; the rest counts as random."""

LONGEST = 64
"""Maximum length of a list."""


def mean_opinion(opinions: Floats, weights: Floats) -> Floats:
    """Return each candidate's weighted mean of ``(members, candidates)``.

    It is summed member by member: with a matrix product, the last digits of a candidate's value
    would depend on the number of candidates.
    """
    return np.asarray((weights[:, None] * opinions).sum(axis=0))


def shortlist(opinions: Floats, weights: Floats) -> list[int]:
    """Return the candidates to measure first, in order.

    ``opinions`` are the members' predictions, ``(members, candidates)``, on one scale, higher is
    faster. ``weights`` has one value per member and adds up to 1. Candidates without a finite
    opinion of every member are not listed.
    """
    known = np.flatnonzero(np.isfinite(opinions).all(axis=0))
    if not len(known):
        return []
    opinions = opinions[:, known]
    mean = mean_opinion(opinions, weights)
    beliefs = mean + BELIEVED * (opinions - mean)
    taken = [int(mean.argmax())]
    reached = beliefs[:, taken[0]]
    while len(taken) < LONGEST:
        gain = mean_opinion(np.maximum(beliefs - reached[:, None], 0.0), weights)
        best = int(gain.argmax())
        if not gain[best] > 0.0:
            break
        taken.append(best)
        reached = np.maximum(reached, beliefs[:, best])
    listed: list[int] = known[taken].tolist()
    return listed


def preference(opinions: Floats, weights: Floats) -> Floats:
    """Return one value per candidate: candidates are measured in descending order of it.

    It is the mean, but the candidates on the ``shortlist`` come before all others.
    """
    preferred = mean_opinion(opinions, weights)
    chosen = shortlist(opinions, weights)
    if chosen:
        # The first of the list has the highest mean.
        preferred[chosen] = preferred[chosen[0]] + np.arange(len(chosen), 0.0, -1.0)
    return preferred
