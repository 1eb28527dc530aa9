"""Small curves for table cells, drawn as SVG by hand: a chart each would weigh too much."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

WIDTH, HEIGHT, PAD = 120, 26, 2


def sparkline(logs: Sequence[Mapping[str, Any]]) -> str:
    """Best so far (0 to 1, upwards) against records (logarithmic), one line a log.

    ``logs`` are a task's ``curves``.
    """
    most = max((log["records"] for log in logs), default=0)
    if most < 2:
        return ""
    paths = []
    for log in logs:
        points = [
            (_across(at, most), _up(relative))
            for at, relative in zip(log["at"], log["relative"], strict=True)
        ]
        steps = [f"M{points[0][0]:.1f},{points[0][1]:.1f}"]
        steps += [f"H{x:.1f}V{y:.1f}" for x, y in points[1:]]
        paths.append(f'<path d="{"".join(steps)}"/>')
    last = logs[0]["relative"][-1]
    label = f"best so far in {len(logs)} logs, {100 * last:.0f} % at the end of the longest"
    return (
        f'<svg class="spark" role="img" aria-label="{label}" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'width="{WIDTH}" height="{HEIGHT}">{"".join(paths)}</svg>'
    )


def _across(record: int, most: int) -> float:
    return PAD + (WIDTH - 2 * PAD) * math.log(record) / math.log(most)


def _up(relative: float) -> float:
    return PAD + (HEIGHT - 2 * PAD) * (1.0 - relative)
