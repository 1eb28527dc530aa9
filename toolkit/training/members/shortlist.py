"""Which candidates to measure first, when several may be: those that some member expects much of.

The k highest means of an ensemble are often one candidate k times over: near relatives, all right
or all wrong together. What a user gets is the best of the k. Members are taken as beliefs about the
task, and candidates are taken one by one, each time the one that adds most to the expected best of
those taken so far (the greedy choice, within 1 - 1/e of the best one: Nemhauser, Wolsey and Fisher
1978, of facility location). The first is the one with the highest mean. Where no member expects
more of any further one, the order is that of the means.
"""

from __future__ import annotations

import numpy as np

from toolkit.training.arrays import Floats

BELIEVED = 0.5
"""Share of the members' disagreement that is taken for belief; the rest is their random draws."""

LONGEST = 64
"""A list ends here at the latest."""


def mean_opinion(opinions: Floats, weights: Floats) -> Floats:
    """The weighted mean of ``(members, candidates)``, by candidate.

    Added up member by member: what a candidate gets must not depend on how many others there are,
    as it does in the last digits of a matrix product.
    """
    return np.asarray((weights[:, None] * opinions).sum(axis=0))


def shortlist(opinions: Floats, weights: Floats) -> list[int]:
    """Candidates to measure first, in order.

    ``opinions`` are what each member predicts of each candidate, ``(members, candidates)``, higher
    is faster, members on one scale; ``weights`` are one a member and add up to 1. Candidates
    without a finite opinion of every member are not listed.
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
    """One value a candidate whose falling order is the one to measure in.

    It is the mean, but for those on the ``shortlist``, which are put above all others.
    """
    preferred = mean_opinion(opinions, weights)
    chosen = shortlist(opinions, weights)
    if chosen:
        # The first of the list has the highest mean.
        preferred[chosen] = preferred[chosen[0]] + np.arange(len(chosen), 0.0, -1.0)
    return preferred
