"""Figures of a replay: how soon each strategy gets how far."""

from __future__ import annotations

from typing import Any

import altair as alt

from toolkit import show
from toolkit.reports.page.charts import (
    CLOCK,
    COUNT,
    Figure,
    Layout,
    bar_of_interval,
    chart,
    colours,
    curves,
    log_axis,
    names,
    numbers,
    points,
    share_axis,
    short_labels,
    tenth_below,
)
from toolkit.reports.page.inputs import Section
from toolkit.reports.page.theme import Style, styles

UNITS = {"evaluations": "evaluations", "seconds": "recorded seconds of measuring"}
TICKS = {"evaluations": COUNT, "seconds": CLOCK}
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
    return [
        *(_curves(simulation, unit) for unit in UNITS),
        *(_profile(simulation, unit) for unit in UNITS if unit in simulation["profile"]),
        *(_effort(simulation, unit) for unit in UNITS),
    ]


def _lines(
    simulation: Section, unit: str, grid: list[float], rows: list[dict[str, Any]], y: Any
) -> Any:
    """Draw curves of all strategies against what was spent."""
    x = log_axis(grid[0], grid[-1], UNITS[unit], TICKS[unit])

    def draw(layout: Layout) -> Any:
        legend = alt.Legend(title=None) if layout.legend else None
        return curves(rows, strategy_styles(simulation), x, y, legend)

    return draw


def _at_the_end(simulation: Section, values: Section) -> str:
    labels = [row["strategy"] for row in simulation["strategies"]]
    ends = [f"{label} {show.percent(values[label][-1])}" for label in labels]
    return f"At the end of the budget: {', '.join(ends)}."


def _curves(simulation: Section, unit: str) -> Figure:
    found = simulation["curves"][unit]
    lines = found["strategies"]
    rows = [
        {"series": row["strategy"], "x": x, "value": mean, "low": low, "high": high}
        # The worst strategy first, so that the best lies on top.
        for row in reversed(simulation["strategies"])
        for line in [lines[row["strategy"]]]
        for x, mean, low, high in zip(
            found["grid"], line["mean"], line["low"], line["high"], strict=True
        )
    ]
    # One run alone has no band.
    least = min(row["value"] if row["low"] is None else row["low"] for row in rows)
    floor = tenth_below([least]) if least > 0.15 else 0.0
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
        description=_at_the_end(simulation, {name: line["mean"] for name, line in lines.items()}),
        draw=_lines(
            simulation,
            unit,
            found["grid"],
            rows,
            share_axis("best so far, relative to best recorded", floor),
        ),
    )


def _profile(simulation: Section, unit: str) -> Figure:
    found = simulation["profile"][unit]
    rows = [
        {"series": row["strategy"], "x": x, "value": share}
        for row in reversed(simulation["strategies"])
        for x, share in zip(found["grid"], found["strategies"][row["strategy"]], strict=True)
    ]
    return Figure(
        key=f"reached-{unit}",
        title=f"Runs within 1 % of the best recorded, against {unit}",
        reading="How many of all runs (tasks times seeds) have measured a candidate within 1 % "
        f"of the best recorded after so many {unit}. Where a line crosses 50 % is the median "
        "of the table below.",
        limits="Runs of one task are alike, so a step can be a single task. A run that never got "
        "there does not say how far off it stayed.",
        description=_at_the_end(simulation, found["strategies"]),
        draw=_lines(simulation, unit, found["grid"], rows, share_axis("runs within 1 %")),
    )


def _effort(simulation: Section, unit: str) -> Figure:
    key = f"median_{unit}_to_1pct"
    form = "seconds" if unit == "seconds" else "number"
    write = show.seconds if unit == "seconds" else show.number
    strategies = simulation["strategies"]
    bounds = [bound for row in strategies for bound in (row[key], *row[f"{key}_interval"]) if bound]
    low = min([*bounds, simulation["curves"][unit]["grid"][-1]]) / 1.6
    high = max([*bounds, low * 10]) * 1.8
    rows = []
    for row in strategies:
        left, right = row[f"{key}_interval"]
        value = row[key]
        # Both ends open, but the median known: a single run, of which no interval is known.
        alone = value is not None and left is None and right is None
        told = f"{write(value)} {show.interval([left, right], form)}"
        rows.append(
            {
                "series": row["strategy"],
                "value": value,
                "low": value if alone else left if left is not None else high,
                "high": value if alone else right if right is not None else high,
                "open": right is None and not alone,
                "edge": high,
                "text": told if value is not None else "fewer than half of the runs",
            }
        )

    def draw(layout: Layout) -> Any:
        labels = short_labels((row["series"] for row in rows), layout)
        drawn = [{**row, "name": label} for label, row in zip(labels, rows, strict=True)]
        x = log_axis(low, high, f"{unit} to within 1 %, median over runs", TICKS[unit])
        plain = chart(drawn).encode(y=names(labels, layout))
        base = plain.encode(color=colours(strategy_styles(simulation)))
        arrow = base.transform_filter("datum.open").mark_point(
            shape="triangle-right", filled=True, size=80, opacity=0.7
        )
        return alt.layer(
            bar_of_interval(base, x=alt.X("low:Q", **x), x2="high:Q"),
            arrow.encode(x=alt.X("edge:Q", **x)),
            points(base.transform_filter("datum.value !== null"), x=alt.X("value:Q", **x)),
            numbers(plain, layout, dy=-12),
        ).properties(height=max(90, 40 * len(rows)))

    return Figure(
        key=f"{unit}-to-1pct",
        title=f"{unit.capitalize()} to within 1 % of the best recorded",
        reading="Further left is sooner. The point is the median over all runs, the bar its "
        f"{show.percent(simulation['confidence'], 0)} interval; an arrow says that the interval "
        "has no upper end, because too many runs did not get there. Strategies stand in the order "
        "of their rank.",
        limits="Overlapping bars do not say that two strategies are tied: the paired comparison "
        "below does.",
        description=f"{'; '.join(f'''{row['series']} {row['text']}''' for row in rows)}.",
        draw=draw,
    )
