"""Figures of a dataset's analysis: latency and time, decisions, tuners."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import altair as alt

from toolkit import show
from toolkit.reports.page import charts
from toolkit.reports.page.charts import Figure, Layout, figure
from toolkit.reports.page.inputs import Section
from toolkit.reports.page.theme import light, styles

TASKS_DRAWN = 14
KNOBS_DRAWN = 3
LEAST_OF_A_WORKLOAD = 5
SKETCHES_DRAWN = 6
LEAST = 0.02
"""Tasks with a smaller share of the total gain to expect are not drawn."""

UNWEIGHTED = "How often a network runs each task is not known: all have the same weight. "
UNTIMED = "The log does not say how long measurements took. "

# Bars of a task: its key, and the role of its colour.
OF = {
    "of the summed latency": ("latency_share", "accent"),
    "of measuring time": ("time_share", "baseline"),
}


def analysis_figures(dataset: Section) -> list[Figure]:
    """All figures of a dataset's analysis that have something to show."""
    tasks = [task for task in dataset["tasks"] if task["latency_share"] is not None]
    tasks.sort(key=lambda task: -task["latency_share"])
    tuners = dataset["tuners"] or {"tuners": []}
    found = [
        _shares(tasks) if len(tasks) > 1 else None,
        _continuing(tasks) if any(task["gain_to_expect"] for task in tasks) else None,
        _knobs(dataset["knobs"]) if dataset["knobs"] else None,
        _tuners(tuners) if any(tuner["profile"] for tuner in tuners["tuners"]) else None,
    ]
    return [figure for figure in found if figure is not None]


def _shares(tasks: list[Section]) -> Figure:
    weighted = any(task["weight"] is not None for task in tasks)
    timed = any(task["time_share"] is not None for task in tasks)
    drawn = tasks[:TASKS_DRAWN]
    bars = {of: OF[of] for of in list(OF)[: 2 if timed else 1]}

    def draw(layout: Layout) -> Any:
        labels = charts.labels_of(drawn, layout)
        rows = [
            {"name": label, "series": of, "share": task[key]}
            for label, task in zip(labels, drawn, strict=True)
            for of, (key, _) in bars.items()
            if task[key] is not None
        ]
        palette = {of: light(role) for of, (_, role) in bars.items()}
        mark = charts.chart(rows).mark_bar(cornerRadiusEnd=3, height={"band": 0.9})
        return mark.encode(
            x=alt.X("share:Q", axis=alt.Axis(format="%", title="share", tickCount=5)),
            y=charts.names(labels, layout),
            yOffset=alt.YOffset("series:N", sort=list(bars)),
            color=charts.series(alt.Color, palette, charts.legend(columns=1, symbolOpacity=1)),
        ).properties(height=max(70, 26 * len(drawn)))

    covered = sum(task["latency_share"] for task in drawn)
    return figure(
        "dataset-shares",
        draw,
        by=f"best latency{' times how often the networks run the task' if weighted else ''}",
        unknown=f"{'' if weighted else UNWEIGHTED}{'' if timed else UNTIMED}",
        drawn=show.plural(len(drawn), "task"),
        tasks=len(tasks),
        covered=show.percent(covered, 0),
        first=drawn[0]["name"],
        share=show.percent(drawn[0]["latency_share"], 0),
    )


def _continuing(tasks: list[Section]) -> Figure:
    total = sum(task["gain_to_expect"] or 0.0 for task in tasks)
    drawn = [task for task in tasks if (task["gain_to_expect"] or 0.0) > LEAST * total]
    drawn = sorted(drawn, key=lambda task: -task["gain_to_expect"])[:TASKS_DRAWN]

    def draw(layout: Layout) -> Any:
        rows = [{"name": task["name"], "gain": task["gain_to_expect"]} for task in drawn]
        axis = alt.Axis(format="~%", title="of the summed best latency to gain", tickCount=5)
        mark = charts.named(rows, layout).mark_bar(
            cornerRadiusEnd=3, color=light("good"), height={"band": 0.6}
        )
        return mark.encode(x=alt.X("gain:Q", axis=axis)).properties(height=max(60, 22 * len(drawn)))

    return figure(
        "dataset-continuing",
        draw,
        total=show.percent(total),
        first=drawn[0]["name"],
        gain=show.percent(drawn[0]["gain_to_expect"]),
    )


def _knobs(knobs: list[Section]) -> Figure:
    sketches: dict[str, list[Section]] = {}
    for row in knobs:
        sketches.setdefault(row["sketch_id"], []).append(row)
    groups = list(sketches.values())[:SKETCHES_DRAWN]
    drawn = [row for rows in groups for row in rows[:KNOBS_DRAWN]]

    rows = [
        {
            "name": f"{row['knob']} · {row['workload']}",
            "effect": row["effect"],
            "text": f"{show.percent(row['effect'], 0)} · {show.percent(row['gain'], 0)} less",
        }
        for row in drawn
    ]

    def draw(layout: Layout) -> Any:
        title = "variance of log latency explained"
        x = alt.X(
            "effect:Q",
            # The numbers need room to the right of the longest bar.
            scale=alt.Scale(domain=[0, 1.6]),
            axis=alt.Axis(format="%", title=title, values=[0, 0.5, 1]),
        )
        base = charts.named(rows, layout, decision_label)
        bars = base.mark_bar(
            cornerRadiusEnd=3, color=light("accent"), opacity=0.55, height={"band": 0.75}
        ).encode(x=x)
        both = bars + charts.numbers(base, layout)
        return both.properties(height=max(70, 22 * len(rows)))

    top = max(drawn, key=lambda row: row["effect"])
    return figure(
        "dataset-knobs",
        draw,
        sketches=show.plural(len(groups), "sketch", "sketches"),
        knob=top["knob"],
        workload=top["workload"],
        effect=show.percent(top["effect"], 0),
    )


def _tuners(found: Section) -> Figure:
    tuners: list[Section] = found["tuners"]
    last = {t["tuner"]: float(t["profile"][-1][1]) if t["profile"] else 0.0 for t in tuners}
    longest = max(tuner["evaluations"] for tuner in tuners)
    longest = max(longest, *(at for tuner in tuners for at, _ in tuner["profile"]))
    rows: list[Mapping[str, Any]] = [
        {"series": name, "x": at, "value": share}
        for tuner in tuners
        for name in [tuner["tuner"]]
        for at, share in [(1, 0.0), *tuner["profile"], (longest, last[name])]
    ]

    def draw(layout: Layout) -> Any:
        x, y = charts.log_axis(1, longest, "evaluations"), charts.share_axis("runs within 1 %")
        return charts.curves(rows, styles(list(last), None), x, y, charts.wide_legend(layout))

    told = [f"{name} {show.percent(share, 0)}" for name, share in last.items()]
    tasks = show.plural(found["tasks"], "task")
    return figure("dataset-tuners", draw, tasks=tasks, ends=", ".join(told))


def decision_label(name: str, chars: int) -> str:
    """Shorten ``DECISION · WORKLOAD``: first the workload: the decision often names it, too."""
    decision, _, workload = name.partition(" · ")
    room = chars - len(decision) - len(" · ")
    if room >= len(workload):
        return name
    main = show.main_operator(workload[:8] if show.is_hash(workload) else workload)
    if room >= LEAST_OF_A_WORKLOAD:
        return f"{decision} · {charts.short_name(main, room)}"
    return charts.short_name(decision, chars)
