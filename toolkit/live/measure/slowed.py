"""Detect that programs are slower now than when they were measured before.

Blocks measured in turns cancel a slowdown that all programs share. They cannot cancel a slowdown
that differs between programs: another process that fills the last-level cache only slows programs
that use it. So if everything is slower, a difference of a few percent may be wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

SLOWED = 1.1
"""From this factor on there is a warning. A search keeps lucky readings, a few percent too low."""

DECIDES_NOTHING = 1.5
"""From this factor on the blocks decide nothing: the machine has changed since the search."""


def slowed_by(
    read_s: Mapping[str, float], readings_s: Mapping[str, Sequence[float]]
) -> float | None:
    """Return the programs' latency in the blocks over their earlier latency (``None``: no program).

    ``read_s`` has one earlier reading of each program, ``readings_s`` its readings in the blocks;
    both in seconds. The result is the median over the programs in both (the lower of two middle
    values): a single program with a lucky reading must not count as a change of the machine.
    """
    logs = [
        float(np.log(readings_s[name]).mean() - np.log(latency_s))
        for name, latency_s in read_s.items()
        if len(readings_s.get(name, ()))
    ]
    return float(np.exp(np.quantile(logs, 0.5, method="lower"))) if logs else None


def no_verdict(factor: float | None) -> str | None:
    """Return why blocks with this factor (``slowed_by``) decide nothing; ``None``: they decide."""
    if factor is None or factor < DECIDES_NOTHING:
        return None
    return (
        "the machine was much slower than during the search: programs take "
        f"{factor:.1f} times as long as then"
    )


def slowed_warnings(what: str, factor: float | None, cure: str) -> list[str]:
    """Return warnings about a factor of ``slowed_by``; none if lucky readings can explain it."""
    if factor is None or factor <= SLOWED:
        return []
    said = f"programs take {factor - 1:.0%} longer than when they were measured before, and the "
    said += "slowdown may differ between programs"
    nothing = no_verdict(factor)
    return [f"{what}: {said if nothing is None else f'undecided: {nothing}'}: {cure}"]
