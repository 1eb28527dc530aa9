"""Task schedulers: how soon a whole network becomes fast under one budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from toolkit import show
from toolkit.reports.page import charts
from toolkit.reports.page.charts import Figure, Layout, figure
from toolkit.reports.page.inputs import Section
from toolkit.reports.page.theme import styles

GRID_POINTS = 48
SPREAD = (0.1, 0.9)


def network_section(network: Section | None, strategy: str) -> dict[str, Any] | None:
    """Summarise the networks of a replay; ``None`` where it had none.

    ``schedulers`` holds the replay's own figures, the soonest first. ``curves`` has, against
    evaluations per task of the network, the mean over all runs of best recorded over reached
    (weighted sums of latencies; 1 is perfect), and the band in which eight of ten runs lie.
    """
    if network is None:
        return None
    sizes = {name: len(entry["tasks"]) for name, entry in network["networks"].items()}

    def soonest(row: Section) -> tuple[float, float, str]:
        effort = row["median_evaluations_to_1pct"]
        reached = -float(row["reached_share_1pct"])
        return float("inf") if effort is None else effort, reached, str(row["scheduler"])

    schedulers = sorted(network["schedulers"].values(), key=soonest)
    return {
        "strategy": strategy,
        "networks": sizes,
        "schedulers": schedulers,
        "runs": len(network["runs"]),
        "curves": _curves(network["runs"], sizes, [row["scheduler"] for row in schedulers]),
    }


def _curves(
    runs: Sequence[Section], sizes: Mapping[str, int], schedulers: Sequence[str]
) -> dict[str, Any] | None:
    drawn = [run for run in runs if run["curve"]["evaluations"]]
    if not drawn:
        return None
    most = max(run["curve"]["evaluations"][-1] / sizes[run["network"]] for run in drawn)
    least = min(run["curve"]["evaluations"][0] / sizes[run["network"]] for run in drawn)
    grid = np.geomspace(least, max(most, least * 1.01), GRID_POINTS)
    lines = {}
    for scheduler in schedulers:
        values = []
        for run in drawn:
            if run["scheduler"] == scheduler:
                spent = np.asarray(run["curve"]["evaluations"]) / sizes[run["network"]]
                at = np.searchsorted(spent, grid * (1 + 1e-12), side="right")
                values.append(np.r_[0.0, run["curve"]["relative"]][at])
        if values:
            stacked = np.stack(values)
            low, high = np.quantile(stacked, SPREAD, axis=0)
            lines[scheduler] = {
                "mean": stacked.mean(axis=0).tolist(),
                "low": low.tolist(),
                "high": high.tolist(),
            }
    return {"grid": grid.tolist(), "schedulers": lines}


def network_figures(network: Section | None) -> list[Figure]:
    """Return the figure of a replay's networks, where it had any."""
    if network is None or network["curves"] is None:
        return []
    grid, lines = network["curves"]["grid"], network["curves"]["schedulers"]
    rows = [
        {"series": name, "x": x, "value": mean, "low": low, "high": high}
        for name, line in lines.items()
        for x, mean, low, high in zip(grid, line["mean"], line["low"], line["high"], strict=True)
    ]

    def draw(layout: Layout) -> Any:
        x = charts.log_axis(grid[0], grid[-1], "evaluations for each task")
        y = charts.share_axis("whole network, relative to best recorded")
        drawn = styles(list(lines), baseline=None)
        return charts.curves(rows, drawn, x, y, charts.wide_legend(layout), dashed=False)

    ends = [f"{name} {show.percent(line['mean'][-1])}" for name, line in lines.items()]
    return [figure("schedulers", draw, strategy=network["strategy"], ends=", ".join(ends))]
