"""The quality of the programs that the arms of a race held over time, from later measurements.

One threshold says little about a search: a leg that ends 1.1 % behind stock's final program counts
like a leg that found nothing. So there are several tolerances, and one question without a
tolerance: how good is the program that an arm holds after so many seconds? Both use the
measurements of the confirmation (``confirm.confirm_finals``), never those of the search.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from toolkit.live.race.curves import as_good_from
from toolkit.live.race.leg import STOCK

TOLERANCES = (0.0, 0.01, 0.02, 0.05)
"""Shares by which a program may be slower than stock's final one and still count as as good."""

MOMENTS_S = (10.0, 30.0, 60.0, 120.0, 300.0)
"""Seconds after the start of a leg."""


def as_good_at(
    confirmed: Mapping[str, Any], arm: str, tolerance: float
) -> tuple[float, int] | None:
    """Return seconds and trials until an arm held a program that is as good; ``None``: never."""
    steps: Sequence[Mapping[str, Any]] = confirmed["steps"].get(arm, [])
    readings = confirmed["readings_s"]
    names = [name if (name := f"{arm}, trial {s['trial']}") in readings else None for s in steps]
    found = as_good_from(names, readings, tolerance)
    return None if found is None else (steps[found[0]]["clock_s"], steps[found[0]]["trials"])


def add_tolerances(row: dict[str, Any], confirmed: Mapping[str, Any]) -> None:
    """Add ``by_tolerance`` to a leg's row: S for each of ``TOLERANCES`` that stock reached.

    ``seconds`` and ``trials`` are S. ``reached`` says whether the arm reached the quality. If not,
    S is what the arm spent, over what stock needed.
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
    """Return the latency of the program held then, over stock's final; ``None``: none near it."""
    held = [s for s in confirmed["steps"].get(arm, []) if s["clock_s"] <= seconds]
    ratio = held[-1]["ratio"] if held else None
    return ratio if ratio is not None and math.isfinite(ratio) else None


def add_moments(row: dict[str, Any], confirmed: Mapping[str, Any]) -> None:
    """Add ``by_moment`` to a leg's row: the programs of this arm and of stock at ``MOMENTS_S``.

    ``ratio`` and ``stock_ratio`` are latencies over that of stock's final program. They are
    ``None`` if there was no program near stock's best (``curves.NEAR``) yet: slower ones were not
    measured again. Stock learns its programs' latencies when their batch ends.
    """
    row["by_moment"] = [
        {
            "seconds": seconds,
            "ratio": held_at(confirmed, row["arm"], seconds),
            "stock_ratio": held_at(confirmed, STOCK, seconds),
        }
        for seconds in MOMENTS_S
    ]
