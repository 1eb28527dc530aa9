"""Power of a comparison of strategies: what it can prove, and how many tasks it needs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from scipy import special

from toolkit import show
from toolkit.search.moves.knobs import FloatArray

ENUMERATED = 12
"""Up to this many tasks all sign patterns are tried; with more, ``FLIPS`` are drawn."""
FLIPS = 4999
CHANCE = 0.8
"""Chance that a comparison of ``tasks_to_decide`` tasks proves a real difference."""


def units_needed(strategies: int, confidence: float = 0.95) -> int | None:
    """Fewest tasks (or seeds of a single task) with which ``compare`` can prove any difference.

    That is the difference of a pair in which one wins on every task. ``None``: no number is enough,
    since there are too many pairs for ``FLIPS`` sign patterns.
    """
    level = _level(strategies, confidence)
    if level >= 2.0 ** (1 - ENUMERATED):
        return max(1, math.ceil(1 - math.log2(level)))
    # Of the drawn patterns, 2 in 2^n flip all tasks or none.
    rest = (level * (FLIPS + 1) - 1) / FLIPS
    return max(ENUMERATED + 1, math.ceil(1 - math.log2(rest))) if rest > 0 else None


def tasks_to_decide(
    differences: FloatArray, strategies: int, confidence: float = 0.95
) -> int | None:
    """Number of tasks like these that would prove this difference with a chance of 80 %.

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
    """Return what a comparison can prove with its ``units``: tasks, or seeds of a single task.

    ``count`` is the number of units, ``needed`` the fewest that can prove a difference of any pair
    (``None``: no number is enough), ``can_decide`` whether there are enough. ``None`` for one
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
            f"all {units} (at least {needed} are needed)"
        )
    takes = f"at least {needed} {units} are needed" if needed else "compare fewer strategies"
    return f"no difference between {strategies} strategies can be proven with {have}: {takes}"
