"""What the arms of a race held at any time, by what was measured afterwards.

One threshold says little of a search: a leg that ends 1.1 % behind stock's final program counts as
one that found nothing. So the same question is asked with several tolerances, and without one: how
good is what an arm holds after so many seconds? Both read the programs that the confirmation built
again (``confirm.confirm_finals``), never what a search read of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from toolkit.live.race.curves import as_good_from
from toolkit.live.race.leg import STOCK

TOLERANCES = (0.0, 0.01, 0.02, 0.05)
"""Shares by which a program may take longer than stock's final one and still be as good."""

MOMENTS_S = (10.0, 30.0, 60.0, 120.0, 300.0)
"""Seconds after the start of a leg."""


def as_good_at(
    confirmed: Mapping[str, Any], arm: str, tolerance: float
) -> tuple[float, int] | None:
    """Seconds and trials after which an arm held a program that is as good; ``None``: never."""
    steps: Sequence[Mapping[str, Any]] = confirmed["steps"].get(arm, [])
    if not steps:
        return None
    readings = confirmed["readings_s"]
    names = [name if (name := f"{arm}, trial {s['trial']}") in readings else None for s in steps]
    found = as_good_from(names, readings, tolerance)
    return None if found is None else (steps[found[0]]["clock_s"], steps[found[0]]["trials"])


def add_tolerances(row: dict[str, Any], confirmed: Mapping[str, Any]) -> None:
    """Add ``by_tolerance`` to a leg's row: S by each of ``TOLERANCES``, as far as it is known.

    ``seconds`` and ``trials`` are S, ``reached`` says whether the arm got there; where it did not,
    they are what it spent over what stock needed.
    """
    row["by_tolerance"] = []
    for tolerance in TOLERANCES:
        theirs = as_good_at(confirmed, STOCK, tolerance)
        mine = as_good_at(confirmed, row["arm"], tolerance)
        if theirs is None:
            continue
        spent = (row["seconds"], row["trials"]) if mine is None else mine
        row["by_tolerance"].append(
            {
                "tolerance": tolerance,
                "reached": mine is not None,
                "seconds": spent[0] / theirs[0],
                "trials": spent[1] / theirs[1],
            }
        )


def held_at(confirmed: Mapping[str, Any], arm: str, seconds: float) -> float | None:
    """Latency over stock's final program's of what an arm held then; ``None``: nothing near."""
    held = [s for s in confirmed["steps"].get(arm, []) if s["clock_s"] <= seconds]
    ratio = held[-1]["ratio"] if held else None
    return ratio if ratio is not None and math.isfinite(ratio) else None


def add_moments(row: dict[str, Any], confirmed: Mapping[str, Any]) -> None:
    """Add ``by_moment`` to a leg's row: what this arm and stock held at each of ``MOMENTS_S``.

    ``ratio`` and ``stock_ratio`` are latencies over stock's final program's, ``None`` where there
    was none yet that read near stock's best (``curves.NEAR``): those that read slower were not
    measured again. Stock knows its programs when their batch ends.
    """
    row["by_moment"] = [
        {
            "seconds": seconds,
            "ratio": held_at(confirmed, row["arm"], seconds),
            "stock_ratio": held_at(confirmed, STOCK, seconds),
        }
        for seconds in MOMENTS_S
    ]
