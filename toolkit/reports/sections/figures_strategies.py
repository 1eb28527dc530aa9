"""Figures of a replay: how soon each strategy gets how far."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import altair as alt

from toolkit import show
from toolkit.reports.page.charts import (
    Figure,
    Layout,
    clock_axis,
    data,
    log_axis,
    log_scale,
    names_axis,
    short,
    unique_labels,
)
from toolkit.reports.page.theme import Style, styles

Section = Mapping[str, Any]

UNITS = {"evaluations": "evaluations", "seconds": "recorded seconds of measuring"}
CURVE_LIMITS = {
    "evaluations": "A mean hides single tasks (see the table), and how good what was never "
    "recorded would be. An evaluation counts the same whether it failed or not.",
    "seconds": "Seconds are those of the machine that was recorded, without the strategy's own "
    "computing. A mean hides single tasks (see the table).",
}


def strategy_styles(simulation: Section) -> dict[str, Style]:
    """Colours and dashes of a replay's strategies, in the order of their ranks."""
    labels = [row["strategy"] for row in simulation["strategies"]]
    return styles(labels, simulation["baseline"])


def strategy_figures(simulation: Section) -> list[Figure]:
    """All figures of one replay."""
    name = simulation["name"]
    found = [_curves(simulation, unit) for unit in UNITS]
    found += [_profile(simulation, unit) for unit in UNITS if unit in simulation["profile"]]
    found += [_effort(simulation, unit) for unit in UNITS]
    return [
        Figure(f"{name}-{f.key}", f.title, f.reading, f.limits, f.description, f.draw)
        for f in found
    ]


def _colour(simulation: Section, *, legend: bool) -> Any:
    """Colour of the field ``strategy``, the same in every figure of a replay."""
    found = strategy_styles(simulation)
    return alt.Color(
        "strategy:N",
        scale=alt.Scale(domain=list(found), range=[style.colour for style in found.values()]),
        legend=alt.Legend(title=None) if legend else None,
    )


def _dash(simulation: Section, *, legend: bool) -> Any:
    """Dashes of the field ``strategy``; in one legend with its colour."""
    found = strategy_styles(simulation)
    return alt.StrokeDash(
        "strategy:N",
        scale=alt.Scale(domain=list(found), range=[list(style.dash) for style in found.values()]),
        legend=alt.Legend(title=None) if legend else None,
    )


def _drawn_order(simulation: Section) -> list[str]:
    """Worst strategy first, so that the best lies on top."""
    return [row["strategy"] for row in reversed(simulation["strategies"])]


def _curves(simulation: Section, unit: str) -> Figure:
    curves = simulation["curves"][unit]
    grid = curves["grid"]
    rows = [
        {"strategy": label, "x": x, "mean": mean, "low": low, "high": high}
        for label in _drawn_order(simulation)
        for x, mean, low, high in zip(
            grid,
            curves["strategies"][label]["mean"],
            curves["strategies"][label]["low"],
            curves["strategies"][label]["high"],
            strict=True,
        )
    ]
    # One run alone has no band.
    lowest = [row["mean"] if row["low"] is None else row["low"] for row in rows]
    floor = min(lowest, default=0.0)
    floor = max(0.0, int(floor * 10) / 10 if floor > 0.15 else 0.0)

    def draw(layout: Layout) -> Any:
        colour = _colour(simulation, legend=layout.legend)
        dash = _dash(simulation, legend=layout.legend)
        x = alt.X(
            "x:Q",
            scale=log_scale(grid[0], grid[-1]),
            axis=_axis(unit, grid[0], grid[-1], UNITS[unit]),
        )
        scale = alt.Scale(domain=[floor, 1.0], nice=False)
        axis = alt.Axis(format="%", title="best so far, relative to best recorded", tickCount=6)
        base = alt.Chart(data(rows))
        band = base.mark_area(opacity=0.13, clip=True, interpolate="step-after").encode(
            x=x,
            y=alt.Y("low:Q", scale=scale, axis=axis),
            y2="high:Q",
            color=colour,
        )
        line = base.mark_line(clip=True, interpolate="step-after").encode(
            x=x, y=alt.Y("mean:Q", scale=scale, axis=axis), color=colour, strokeDash=dash
        )
        return (band + line).properties(height=300)

    ends = [
        f"{row['strategy']} {show.percent(curves['strategies'][row['strategy']]['mean'][-1])}"
        for row in simulation["strategies"]
    ]
    return Figure(
        key=f"best-so-far-{unit}",
        title=f"Best so far against {unit}",
        reading="A line that is higher further left finds good programs sooner. Each is the mean "
        f"over {show.plural(len(simulation['tasks']), 'task')} and "
        f"{show.plural(simulation['seeds'], 'seed')}; 100 % is the best recorded of a task; 0 "
        "before the first success. Bands: "
        f"{show.percent(simulation['confidence'], 0)} intervals, tasks and seeds resampled "
        "together.",
        limits=CURVE_LIMITS[unit],
        description=f"At the end of the budget: {', '.join(ends)}.",
        draw=draw,
    )


def _profile(simulation: Section, unit: str) -> Figure:
    profile = simulation["profile"][unit]
    rows = [
        {"strategy": label, "x": x, "share": share}
        for label in _drawn_order(simulation)
        for x, share in zip(profile["grid"], profile["strategies"][label], strict=True)
    ]
    grid = profile["grid"]

    def draw(layout: Layout) -> Any:
        colour = _colour(simulation, legend=layout.legend)
        dash = _dash(simulation, legend=layout.legend)
        line = (
            alt.Chart(data(rows))
            .mark_line(clip=True, interpolate="step-after")
            .encode(
                x=alt.X(
                    "x:Q",
                    scale=log_scale(grid[0], grid[-1]),
                    axis=_axis(unit, grid[0], grid[-1], UNITS[unit]),
                ),
                y=alt.Y(
                    "share:Q",
                    scale=alt.Scale(domain=[0, 1]),
                    axis=alt.Axis(format="%", title="runs within 1 %", tickCount=6),
                ),
                color=colour,
                strokeDash=dash,
            )
        )
        return line.properties(height=300)

    ends = [
        f"{row['strategy']} {show.percent(profile['strategies'][row['strategy']][-1])}"
        for row in simulation["strategies"]
    ]
    return Figure(
        key=f"reached-{unit}",
        title=f"Runs within 1 % of the best recorded, against {unit}",
        reading="How many of all runs (tasks times seeds) have measured a candidate within 1 % "
        f"of the best recorded after so many {unit}. Where a line crosses 50 % is the median "
        "of the table below.",
        limits="Runs of one task are alike, so a step can be a single task. A run that never got "
        "there does not say how far off it stayed.",
        description=f"At the end of the budget: {', '.join(ends)}.",
        draw=draw,
    )


def _effort(simulation: Section, unit: str) -> Figure:
    key = f"median_{unit}_to_1pct"
    write = show.seconds if unit == "seconds" else show.number
    strategies = simulation["strategies"]
    finite = [
        bound
        for row in strategies
        for bound in (row[key], *row[f"{key}_interval"])
        if bound is not None and bound > 0
    ]
    grid = simulation["curves"][unit]["grid"]
    low = min([*finite, grid[-1]]) / 1.6
    high = max([*finite, low * 10]) * 1.8
    labels = [row["strategy"] for row in strategies]
    rows = []
    for row in strategies:
        left, right = row[f"{key}_interval"]
        value = row[key]
        # Both ends open, but the median known: a single run, of which no interval is known.
        alone = value is not None and left is None and right is None
        rows.append(
            {
                "strategy": row["strategy"],
                "value": value,
                "low": value if alone else left if left is not None else high,
                "high": value if alone else right if right is not None else high,
                "open": right is None and not alone,
                "edge": high,
                "text": f"{write(value)} {show.interval([left, right], _form(unit))}"
                if value is not None
                else "fewer than half of the runs",
            }
        )

    def draw(layout: Layout) -> Any:
        colour = _colour(simulation, legend=False)
        names = unique_labels([short(label, layout.label_chars) for label in labels])
        shown = dict(zip(labels, names, strict=True))
        values = [{**row, "label": shown[row["strategy"]]} for row in rows]
        y = alt.Y(
            "label:N",
            sort=[shown[label] for label in labels],
            axis=names_axis(names, layout),
        )
        x_axis = _axis(unit, low, high, f"{unit} to within 1 %, median over runs")
        x_scale = log_scale(low, high)
        base = alt.Chart(data(values))
        rule = base.mark_rule(strokeWidth=3, opacity=0.45, strokeCap="round").encode(
            x=alt.X("low:Q", scale=x_scale, axis=x_axis), x2="high:Q", y=y, color=colour
        )
        arrow = (
            base.transform_filter("datum.open")
            .mark_point(shape="triangle-right", filled=True, size=80, opacity=0.7)
            .encode(x=alt.X("edge:Q", scale=x_scale), y=y, color=colour)
        )
        point = (
            base.transform_filter("datum.value !== null")
            .mark_point(filled=True, size=90, opacity=1)
            .encode(x=alt.X("value:Q", scale=x_scale), y=y, color=colour)
        )
        text = base.mark_text(dy=-12, align="right", fontSize=layout.font_size - 1).encode(
            x=alt.value("width"), y=y, text="text:N"
        )
        return alt.layer(rule, arrow, point, text).properties(height=max(90, 40 * len(labels)))

    told = [f"{row['strategy']} {row['text']}" for row in rows]
    return Figure(
        key=f"{unit}-to-1pct",
        title=f"{unit.capitalize()} to within 1 % of the best recorded",
        reading="Further left is sooner. The point is the median over all runs, the bar its "
        f"{show.percent(simulation['confidence'], 0)} interval; an arrow says that the interval "
        "has no upper end, because too many runs did not get there. Strategies stand in the order "
        "of their rank.",
        limits="Overlapping bars do not say that two strategies are tied: the paired comparison "
        "below does.",
        description=f"{'; '.join(told)}.",
        draw=draw,
    )


def _axis(unit: str, low: float, high: float, title: str) -> Any:
    if unit == "seconds":
        return clock_axis(low, high, title)
    return log_axis(low, high, title, "format(datum.value, ',')")


def _form(unit: str) -> str:
    return "seconds" if unit == "seconds" else "number"
