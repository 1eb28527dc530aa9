"""When a leg had a program of a given quality, as measured afterwards, not as its search read it.

The lowest of five hundred readings is a lucky one: on a machine whose readings swing by a tenth, an
arm with the same program may never read as low. So the programs with which an arm got better are
built anew and read again beside stock's final program, and time runs until the arm had, and kept,
one that is as good.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from toolkit.live.confirm.rules import INCUMBENT, TWIN, trimmed_interval

AS_GOOD = 0.01
"""A program is as good as stock's final one when it takes at most this share longer."""

NEAR = 1.3
"""Programs that read slower than stock's best by more than this factor are not built again."""

MOST = 6
"""So many programs of a leg are built again, spread evenly over those that lowered its best."""


@dataclass(frozen=True, slots=True)
class Held:
    """A program that a leg would have ended with at some time.

    Attributes
    ----------
    trial
        Number of the trial (from 1) that measured it.
    trials, clock_s
        Trials and seconds that the leg had spent when it held it.
    """

    trial: int
    trials: int
    clock_s: float


def steps_of(leg: Mapping[str, Any], stock_s: float, also: Sequence[int] = ()) -> list[Held]:
    """Programs of a leg that are to be read again, the final one last.

    ``stock_s`` is the lowest latency that stock read; ``also`` are trials to be taken besides. A
    leg that named its winner by reading its best programs again (``leg["named"]``) holds that one
    from then on.
    """
    lowered, best = [], math.inf
    for number, row in enumerate(leg["trials"], start=1):
        latency = row["latency_s"]
        if latency is not None and latency < best:
            best = latency
            lowered.append((number, latency))
    if not lowered:
        return []
    near = [number for number, latency in lowered if latency <= NEAR * stock_s]
    near = near or [lowered[-1][0]]
    places = np.unique(np.linspace(0, len(near) - 1, MOST).round().astype(int)).tolist()
    chosen = sorted({*(near[place] for place in places), *also})
    steps = [Held(number, number, leg["trials"][number - 1]["clock_s"]) for number in chosen]
    named = leg.get("named")
    if named is not None and named["trial"] != chosen[-1]:
        steps.append(Held(named["trial"], len(leg["trials"]), named["clock_s"]))
    return steps


def as_good_from(
    names: Sequence[str | None], readings: Mapping[str, Sequence[float]]
) -> tuple[int, float | None] | None:
    """Find the first of a leg's programs from which on all are as good as stock's final one.

    Parameters
    ----------
    names
        Of the programs in ``readings``, in the order of the search; ``None`` is stock's final one.
    readings
        Seconds by program, a value a block. Every second block decides which program it is; the
        others say, without having chosen it, what it is worth.

    Returns
    -------
    Its place and its latency over stock's final one (``None`` with a single block); ``None`` where
    the last program is not as good.
    """
    incumbent = np.log(np.array([readings[INCUMBENT], readings[TWIN]])).mean(axis=0)
    logs = [
        np.zeros(len(incumbent)) if name is None else np.log(np.array(readings[name])) - incumbent
        for name in names
    ]
    found = None
    for place in range(len(names) - 1, -1, -1):
        if trimmed_interval(logs[place][::2], 0.95)[0] > math.log1p(AS_GOOD):
            break
        found = place
    if found is None:
        return None
    rest = logs[found][1::2]
    return found, math.exp(trimmed_interval(rest, 0.95)[0]) if len(rest) else None
