"""Figures of what people ask of a log first: where the time goes, what decides, who got there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import altair as alt

from toolkit import show
from toolkit.reports.page.charts import (
    Figure,
    Layout,
    data,
    log_axis,
    log_scale,
    names_axis,
    short,
    task_labels,
    unique_labels,
)
from toolkit.reports.page.theme import light, styles

Section = Mapping[str, Any]

TASKS_DRAWN = 14
KNOBS_DRAWN = 3
SKETCHES_DRAWN = 6
LATENCY, TIME = "of the summed latency", "of measuring time"
LEAST = 0.02
"""Share of what is to be gained in all below which a task is not drawn."""


def analysis_figures(dataset: Section) -> list[Figure]:
    """All figures of a dataset's analysis that have something to show."""
    tasks = [task for task in dataset["tasks"] if task["latency_share"] is not None]
    tasks.sort(key=lambda task: -task["latency_share"])
    found = []
    if len(tasks) > 1:
        found.append(_shares(tasks))
    if any(task["gain_to_expect"] for task in tasks):
        found.append(_continuing(tasks))
    if dataset["knobs"]:
        found.append(_knobs(dataset["knobs"]))
    if dataset["tuners"] is not None and any(t["profile"] for t in dataset["tuners"]["tuners"]):
        found.append(_tuners(dataset["tuners"]))
    return found


def _shares(tasks: list[Section]) -> Figure:
    weighted = any(task["weight"] is not None for task in tasks)
    timed = any(task["time_share"] is not None for task in tasks)
    drawn = tasks[:TASKS_DRAWN]
    covered = sum(task["latency_share"] for task in drawn)

    def draw(layout: Layout) -> Any:
        labels = task_labels([task["name"] for task in drawn], layout.label_chars)
        rows = [
            {"task": label, "of": of, "share": task[key]}
            for label, task in zip(labels, drawn, strict=True)
            for of, key in ((LATENCY, "latency_share"), (TIME, "time_share"))
            if task[key] is not None
        ]
        present = [LATENCY, TIME] if timed else [LATENCY]
        colours = {LATENCY: light("accent"), TIME: light("baseline")}
        return (
            alt.Chart(data(rows))
            .mark_bar(cornerRadiusEnd=3, height={"band": 0.9})
            .encode(
                x=alt.X("share:Q", axis=alt.Axis(format="%", title="share", tickCount=5)),
                y=alt.Y("task:N", sort=labels, axis=names_axis(labels, layout)),
                yOffset=alt.YOffset("of:N", sort=present),
                color=alt.Color(
                    "of:N",
                    scale=alt.Scale(domain=present, range=[colours[of] for of in present]),
                    legend=alt.Legend(title=None, orient="top", columns=1, symbolOpacity=1),
                ),
            )
            .properties(height=max(70, 26 * len(drawn)))
        )

    by = "best latency times how often the networks run the task" if weighted else "best latency"
    return Figure(
        key="dataset-shares",
        title="Which tasks dominate",
        reading=f"Share of each task in the sum of {by}, largest first, and in the time that was "
        "spent on measuring it. A long upper bar with a short lower one is a task that got less "
        "than its part.",
        limits=(
            ""
            if weighted
            else "How often a network runs each task is not known: all weigh the same. "
        )
        + ("" if timed else "The log does not say how long measurements took. ")
        + f"{show.plural(len(drawn), 'task')} of {len(tasks):,}, with {show.percent(covered, 0)} "
        "of the sum.",
        description=f"{drawn[0]['name']} has {show.percent(drawn[0]['latency_share'], 0)} of the "
        "summed best latency.",
        draw=draw,
    )


def _continuing(tasks: list[Section]) -> Figure:
    total = sum(task["gain_to_expect"] or 0.0 for task in tasks)
    drawn = sorted(tasks, key=lambda task: -(task["gain_to_expect"] or 0.0))
    drawn = [task for task in drawn if (task["gain_to_expect"] or 0.0) > LEAST * total]
    drawn = drawn[:TASKS_DRAWN]

    def draw(layout: Layout) -> Any:
        labels = task_labels([task["name"] for task in drawn], layout.label_chars)
        rows = [
            {"task": label, "gain": task["gain_to_expect"]}
            for label, task in zip(labels, drawn, strict=True)
        ]
        return (
            alt.Chart(data(rows))
            .mark_bar(cornerRadiusEnd=3, color=light("good"), height={"band": 0.6})
            .encode(
                x=alt.X(
                    "gain:Q",
                    axis=alt.Axis(
                        format="~%", title="of the summed best latency to gain", tickCount=5
                    ),
                ),
                y=alt.Y("task:N", sort=labels, axis=names_axis(labels, layout)),
            )
            .properties(height=max(60, 22 * len(drawn)))
        )

    return Figure(
        key="dataset-continuing",
        title="Where continuing would pay",
        reading="What as many evaluations again are expected to gain, as a share of the summed "
        "best latency of all tasks: half of what the second half of the leading run gained, "
        f"times the task's own share. All tasks together: {show.percent(total)}; those with little "
        "of it are left out.",
        limits="An extrapolation of each run's own pace, by the tuner that ran it; another tuner "
        "may do better. The text above says how such expectations fared on this log.",
        description=f"Most is to be expected of {drawn[0]['name']}: "
        f"{show.percent(drawn[0]['gain_to_expect'])} of the sum.",
        draw=draw,
    )


def _knobs(knobs: list[Section]) -> Figure:
    sketches: dict[str, list[Section]] = {}
    for row in knobs:
        sketches.setdefault(row["sketch_id"], []).append(row)
    groups = list(sketches.values())[:SKETCHES_DRAWN]
    drawn = [row for rows in groups for row in rows[:KNOBS_DRAWN]]

    def draw(layout: Layout) -> Any:
        names = [f"{row['knob']} · {row['workload']}" for row in drawn]
        labels = unique_labels([short(name, layout.label_chars) for name in names])
        rows = [
            {
                "knob": label,
                "effect": row["effect"],
                "text": f"{show.percent(row['effect'], 0)} · {show.percent(row['gain'], 0)} less",
            }
            for label, row in zip(labels, drawn, strict=True)
        ]
        base = alt.Chart(data(rows)).encode(
            x=alt.X(
                "effect:Q",
                # Room for the numbers stands right of the longest bar.
                scale=alt.Scale(domain=[0, 1.6]),
                axis=alt.Axis(
                    format="%", title="variance of log latency explained", values=[0, 0.5, 1]
                ),
            ),
            y=alt.Y("knob:N", sort=labels, axis=names_axis(labels, layout)),
        )
        bar = base.mark_bar(
            cornerRadiusEnd=3, color=light("accent"), opacity=0.55, height={"band": 0.75}
        )
        text = base.mark_text(
            align="right", fontSize=layout.font_size - 1, color=light("ink")
        ).encode(x=alt.value("width"), text="text:N")
        return alt.layer(bar, text).properties(height=max(70, 22 * len(rows)))

    top = max(drawn, key=lambda row: row["effect"])
    return Figure(
        key="dataset-knobs",
        title="Which decision matters most",
        reading="Share of the variance of log latency that a decision explains by itself (omega "
        "squared: corrected for chance), median over the tasks of a sketch; and how much less "
        "time the best of its levels takes than the median level. The strongest three decisions of "
        f"{show.plural(len(groups), 'sketch', 'sketches')} with most tasks.",
        limits="A main effect in what was recorded: a search looks more often where it is fast, "
        "and decisions depend on each other. Tiles with too many values are judged by their "
        "strongest factor.",
        description=f"{top['knob']} of {top['workload']} explains "
        f"{show.percent(top['effect'], 0)} of the variance.",
        draw=draw,
    )


def _tuners(tuners: Section) -> Figure:
    names = [tuner["tuner"] for tuner in tuners["tuners"]]
    found = styles(names, None)
    longest = max(tuner["evaluations"] for tuner in tuners["tuners"])
    longest = max(longest, *(at for t in tuners["tuners"] for at, _ in t["profile"]))

    def draw(layout: Layout) -> Any:
        rows = [
            {"tuner": tuner["tuner"], "x": at, "share": share}
            for tuner in tuners["tuners"]
            for at, share in [(1, 0.0), *tuner["profile"], (longest, _last(tuner))]
        ]
        legend = alt.Legend(title=None, orient="top", columns=layout.columns, symbolOpacity=1)
        dashes = [list(found[name].dash) for name in names]
        return (
            alt.Chart(data(rows))
            .mark_line(interpolate="step-after", clip=True)
            .encode(
                x=alt.X(
                    "x:Q",
                    scale=log_scale(1, longest),
                    axis=log_axis(1, longest, "evaluations", "format(datum.value, ',')"),
                ),
                y=alt.Y(
                    "share:Q",
                    scale=alt.Scale(domain=[0, 1]),
                    axis=alt.Axis(format="%", title="runs within 1 %", tickCount=6),
                ),
                color=alt.Color(
                    "tuner:N",
                    scale=alt.Scale(domain=names, range=[found[name].colour for name in names]),
                    legend=legend,
                ),
                strokeDash=alt.StrokeDash(
                    "tuner:N", scale=alt.Scale(domain=names, range=dashes), legend=legend
                ),
            )
            .properties(height=300)
        )

    told = [f"{tuner['tuner']} {show.percent(_last(tuner), 0)}" for tuner in tuners["tuners"]]
    return Figure(
        key="dataset-tuners",
        title="What each tuner reached, and when",
        reading="How many of a tuner's recorded runs had measured a candidate within 1 % of the "
        "task's best recorded (by any tuner) after so many evaluations. These are the real runs, "
        f"not replays, on {show.plural(tuners['tasks'], 'task')}.",
        limits="Runs end where the tuner ended them: a line that is flat at the right says "
        "nothing of what more time would have brought. Mostly one run a task and tuner: luck is "
        "in it.",
        description=f"In the end: {', '.join(told)}.",
        draw=draw,
    )


def _last(tuner: Section) -> float:
    return float(tuner["profile"][-1][1]) if tuner["profile"] else 0.0
