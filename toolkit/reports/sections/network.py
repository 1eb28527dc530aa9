"""The report's section on task schedulers: whole networks under one budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

GRID_POINTS = 48
SPREAD = (0.1, 0.9)


def network_section(network: Mapping[str, Any] | None, strategy: str) -> dict[str, Any] | None:
    """Summarise the networks of a replay; ``None`` where it had none.

    ``schedulers`` holds the replay's own figures, the soonest first. ``curves`` has, against
    evaluations for each task of the network, the mean over all runs of best recorded over reached
    (weighted sums of latencies; 1 is perfect), and between which values eight of ten runs lie.
    """
    if network is None:
        return None
    sizes = {name: len(entry["tasks"]) for name, entry in network["networks"].items()}

    def soonest(row: Mapping[str, Any]) -> tuple[float, float, str]:
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
    runs: Sequence[Mapping[str, Any]], sizes: Mapping[str, int], schedulers: Sequence[str]
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
