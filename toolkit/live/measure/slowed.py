"""Tells whether programs are slower now than when they were read before.

Blocks read in turns take off what slows every program alike. What slows one more than another they
cannot take off: a neighbour that fills the last-level cache harms the program that lives in it. So
a machine on which everything has become slower is one on which a few percent may mislead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

SLOWED = 1.1
"""A larger factor is told. The readings that a search kept are lucky ones, a few percent low."""

DECIDES_NOTHING = 1.5
"""From this factor on the blocks were not read on the machine that the search knew."""


def slowed_by(
    read_s: Mapping[str, float], readings_s: Mapping[str, Sequence[float]]
) -> float | None:
    """The factor by which programs take longer in the blocks than they were read to take before.

    ``read_s`` holds one earlier reading of a program, ``readings_s`` its readings in the blocks,
    both in seconds. The median over the programs in both, the lower one of two: a single program
    with a lucky reading says nothing of the machine. ``None`` without any.
    """
    logs = [
        float(np.log(readings_s[name]).mean() - np.log(latency_s))
        for name, latency_s in read_s.items()
        if len(readings_s.get(name, ()))
    ]
    return float(np.exp(np.quantile(logs, 0.5, method="lower"))) if logs else None


def no_verdict(factor: float | None) -> str | None:
    """Why blocks that are slower by this factor (``slowed_by``) decide nothing; else ``None``."""
    if factor is None or factor < DECIDES_NOTHING:
        return None
    return (
        "the machine was not the one that the search read on: programs take "
        f"{factor:.1f} times as long as when it read them"
    )


def slowed_warnings(what: str, factor: float | None, cure: str) -> list[str]:
    """What to tell of a factor by ``slowed_by``: nothing while it is within what luck explains."""
    if factor is None or factor <= SLOWED:
        return []
    said = f"programs take {factor - 1:.0%} longer than when they were read before, and what slows "
    said += "the machine may slow one more than another"
    nothing = no_verdict(factor)
    return [f"{what}: {said if nothing is None else f'undecided: {nothing}'}: {cure}"]
