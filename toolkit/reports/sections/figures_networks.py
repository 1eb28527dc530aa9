"""Figure of task schedulers: how soon a whole network is fast."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import altair as alt

from toolkit import show
from toolkit.reports.page.charts import Figure, Layout, data, log_axis, log_scale
from toolkit.reports.page.theme import styles

Section = Mapping[str, Any]


def network_figures(network: Section | None, key: str) -> list[Figure]:
    """Return the figure of a replay's networks, where it had any; ``key`` tells replays apart."""
    if network is None or network["curves"] is None:
        return []
    return [_curves(network, key)]


def _curves(network: Section, key: str) -> Figure:
    curves = network["curves"]
    grid = curves["grid"]
    lines = curves["schedulers"]
    rows = [
        {"scheduler": name, "x": x, "mean": mean, "low": low, "high": high}
        for name, line in lines.items()
        for x, mean, low, high in zip(grid, line["mean"], line["low"], line["high"], strict=True)
    ]

    def draw(layout: Layout) -> Any:
        found = styles(list(lines), baseline=None)
        names = list(found)
        legend = alt.Legend(title=None, orient="top", columns=layout.columns, symbolOpacity=1)
        colour = alt.Color(
            "scheduler:N",
            scale=alt.Scale(domain=names, range=[found[name].colour for name in names]),
            legend=legend,
        )
        x = alt.X(
            "x:Q",
            scale=log_scale(grid[0], grid[-1]),
            axis=log_axis(
                grid[0], grid[-1], "evaluations for each task", "format(datum.value, ',')"
            ),
        )
        scale = alt.Scale(domain=[0, 1], nice=False)
        axis = alt.Axis(format="%", title="whole network, relative to best recorded", tickCount=6)
        base = alt.Chart(data(rows))
        band = base.mark_area(opacity=0.13, clip=True, interpolate="step-after").encode(
            x=x, y=alt.Y("low:Q", scale=scale, axis=axis), y2="high:Q", color=colour
        )
        line = base.mark_line(clip=True, interpolate="step-after").encode(
            x=x, y=alt.Y("mean:Q", scale=scale, axis=axis), color=colour
        )
        return (band + line).properties(height=300)

    ends = ", ".join(f"{name} {show.percent(line['mean'][-1])}" for name, line in lines.items())
    return Figure(
        key=f"{key}-schedulers",
        title="Whole networks by task scheduler",
        reading="Every task of a network needs a program before the network has a latency, so "
        "lines begin at 0. 100 % is a network in which every task has its best recorded program. "
        "Lines: means over all networks and seeds; bands: eight of ten runs lie inside.",
        limits="Bands show the spread of runs, they are no intervals of the mean. Inside, every "
        f"task is searched by {network['strategy']}: another strategy may profit from another "
        "scheduler.",
        description=f"At the end of the budget: {ends}.",
        draw=draw,
    )
