"""What a comparison of strategies can prove with its tasks, and how many it would take."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from scipy import special

from toolkit import show
from toolkit.search.moves.knobs import FloatArray

ENUMERATED = 12
"""Tasks up to which all sign patterns are tried; with more, so many are drawn:"""
FLIPS = 4999
CHANCE = 0.8
"""With which a comparison of ``tasks_to_decide`` tasks proves what is there."""


def units_needed(strategies: int, confidence: float = 0.95) -> int | None:
    """Fewest tasks (or seeds of a single task) with which ``compare`` can prove any difference.

    That of the clearest pair, which wins on every task. ``None``: no number will do, since there
    are too many pairs for the sign patterns that are drawn.
    """
    level = _level(strategies, confidence)
    if level >= 2.0 ** (1 - ENUMERATED):
        return max(1, math.ceil(1 - math.log2(level)))
    # Of the patterns that are drawn, 2 in 2^n flip all tasks alike.
    rest = (level * (FLIPS + 1) - 1) / FLIPS
    return max(ENUMERATED + 1, math.ceil(1 - math.log2(rest))) if rest > 0 else None


def tasks_to_decide(
    differences: FloatArray, strategies: int, confidence: float = 0.95
) -> int | None:
    """Tasks like these with which a difference like this would be proven with a chance of 80 %.

    Normal approximation at the level of the first of Holm's steps; ``differences`` are
    ``(tasks, seeds)``. ``None``: unknown (a single task), or there is no difference.
    """
    by_task = differences.mean(axis=1)
    least = units_needed(strategies, confidence)
    if len(by_task) < 2 or least is None or by_task.mean() == 0.0:
        return None
    level = _level(strategies, confidence)
    normal = -float(special.ndtri(level / 2) + special.ndtri(1.0 - CHANCE))
    apart = float(by_task.std(ddof=1) / by_task.mean())
    return max(least, math.ceil((normal * apart) ** 2))


def _level(strategies: int, confidence: float) -> float:
    """Level of the first of Holm's steps."""
    return (1.0 - confidence) / math.comb(strategies, 2)


def power(tasks: int, seeds: int, strategies: int, confidence: float) -> dict[str, Any] | None:
    """Say what is compared (``units``: tasks, or seeds of a single task) and what it can prove.

    ``count`` of them there are, ``needed`` are the fewest with which any of the pairs can be told
    apart (``None``: no number will do), ``can_decide`` whether there are enough. ``None`` for one
    strategy.
    """
    if strategies < 2:
        return None
    units, count = ("tasks", tasks) if tasks > 1 else ("seeds", seeds)
    needed = units_needed(strategies, confidence)
    can = needed is not None and count >= needed
    told = {"units": units, "count": count, "needed": needed, "can_decide": can}
    return {**told, "strategies": strategies}


def told_power(found: Mapping[str, Any]) -> str:
    """Say in a sentence what a comparison can prove."""
    units, needed, strategies = found["units"], found["needed"], found["strategies"]
    have = show.plural(found["count"], units[:-1]) + ("" if units == "tasks" else " of one task")
    if found["can_decide"]:
        return (
            f"{have} can prove a difference between {strategies} strategies that shows on nearly "
            f"all {units} ({needed} are the fewest)"
        )
    takes = f"it takes {needed} {units}" if needed else "compare fewer strategies"
    return f"no difference between {strategies} strategies can be proven with {have}: {takes}"
