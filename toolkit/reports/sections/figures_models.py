"""Figures of models: predicted against measured, picks, tasks and features."""

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
    unique_labels,
)
from toolkit.reports.page.theme import light

Section = Mapping[str, Any]

MODEL, MEASUREMENT, NOTHING = "this model", "told one measurement", "knows nothing"
SERIES = {MODEL: "s1", MEASUREMENT: "s3", NOTHING: "baseline"}
SPEED_LABEL = "format(datum.value, '.0%')"


def throughput_figures(model: Section, key: str) -> list[Figure]:
    """All figures of one throughput model; ``key`` tells models apart."""
    found = []
    if model["density"]:
        found.append(_density(model))
    if model["top_k"][0]["model"]:
        found.append(_top_k(model))
    if model["tasks"]:
        found.append(_tasks(model))
    if model["importance"]:
        found.append(importance_figure(model["importance"]))
    return [
        Figure(f"{key}-{f.key}", f.title, f.reading, f.limits, f.description, f.draw) for f in found
    ]


def validity_figures(model: Section, key: str) -> list[Figure]:
    """All figures of one validity model: what it leans on."""
    if not model["importance"]:
        return []
    figure = importance_figure(model["importance"])
    return [
        Figure(
            f"{key}-{figure.key}",
            "What failures are foreseen by",
            figure.reading,
            figure.limits,
            figure.description,
            figure.draw,
        )
    ]


def _density(model: Section) -> Figure:
    density = model["density"]
    slowest = density["slowest"]
    most = max(cell["candidates"] for cell in density["cells"])
    rows = [
        {
            "x": cell["predicted"][0],
            "x2": cell["predicted"][1],
            "y": cell["measured"][0],
            "y2": cell["measured"][1],
            "candidates": cell["candidates"],
        }
        for cell in density["cells"]
    ]

    def draw(layout: Layout) -> Any:
        scale = log_scale(slowest, 1.0)
        x_axis = log_axis(slowest, 1.0, "predicted speed, relative to the best", SPEED_LABEL)
        y_axis = log_axis(slowest, 1.0, "measured speed, relative to the best", SPEED_LABEL)
        cells = (
            alt.Chart(data(rows))
            .mark_rect(color=light("accent"), clip=True)
            .encode(
                x=alt.X("x:Q", scale=scale, axis=x_axis),
                x2="x2",
                y=alt.Y("y:Q", scale=scale, axis=y_axis),
                y2="y2",
                opacity=alt.Opacity(
                    "candidates:Q",
                    scale=alt.Scale(type="sqrt", domain=[0, most], range=[0.08, 1]),
                    legend=None,
                ),
            )
        )
        diagonal = (
            alt.Chart(data([{"at": slowest}, {"at": 1.0}]))
            .mark_line(color=light("ink"), strokeDash=[4, 4], strokeWidth=1.2, opacity=0.8)
            .encode(x=alt.X("at:Q", scale=scale), y=alt.Y("at:Q", scale=scale))
        )
        return (cells + diagonal).properties(height=min(380, layout.width - 40))

    correlation = model["metrics"].get("spearman")
    told = (
        f"The rank correlation is {show.number(correlation['value'])} (mean over tasks)."
        if correlation
        else ""
    )
    return Figure(
        key="predicted",
        title="Predicted against measured speed",
        reading="Each candidate was predicted by a member that never saw its task; darker means "
        "more candidates. On the dashed line prediction and measurement agree; 100 % is the "
        "task's best recorded. What matters most is the upper right corner: fast programs that "
        "are predicted fast.",
        limits=f"A sample of {density['candidates']:,} candidates that ran; failures are not "
        "predicted. Candidates outside the frame are counted at its edge. Tasks are pooled: a "
        "shift of a whole task does not harm the ranking inside it.",
        description=told or "Density of predicted against measured relative speed.",
        draw=draw,
    )


def _top_k(model: Section) -> Figure:
    rows = []
    for row in model["top_k"]:
        for name, figure in (
            (MODEL, row["model"]),
            (MEASUREMENT, row["measurement"]),
            (NOTHING, row["nothing"]),
        ):
            if figure is not None:
                rows.append({"k": row["k"], "predictor": name, **figure})
    present = [name for name in SERIES if any(row["predictor"] == name for row in rows)]
    bounds = [row["low"] for row in rows if row["low"] is not None]
    floor = max(0.0, int(min([*bounds, *(row["value"] for row in rows)]) * 10) / 10)

    def draw(layout: Layout) -> Any:
        scale = alt.Scale(domain=[floor, 1.0], nice=False)
        axis = alt.Axis(format="%", title="speed of the best of the k picks", tickCount=6)
        colour = alt.Color(
            "predictor:N",
            scale=alt.Scale(domain=present, range=[light(SERIES[name]) for name in present]),
            legend=alt.Legend(title=None, orient="top", columns=layout.columns, symbolOpacity=1),
        )
        x = alt.X(
            "k:O",
            axis=alt.Axis(title="picks k, in predicted order", labelAngle=0),
            scale=alt.Scale(type="point", padding=0.6),
        )
        offset = alt.XOffset("predictor:N", sort=present, scale=alt.Scale(range=[-22, 22]))
        base = alt.Chart(data(rows))
        band = base.mark_rule(strokeWidth=3, opacity=0.45, strokeCap="round").encode(
            x=x, xOffset=offset, y=alt.Y("low:Q", scale=scale, axis=axis), y2="high:Q", color=colour
        )
        point = base.mark_point(filled=True, size=90, opacity=1).encode(
            x=x, xOffset=offset, y=alt.Y("value:Q", scale=scale, axis=axis), color=colour
        )
        return (band + point).properties(height=300)

    told = "; ".join(
        f"k = {row['k']}: {show.percent(row['model']['value'])}"
        for row in model["top_k"]
        if row["model"]
    )
    return Figure(
        key="top-k",
        title="What the best of k picks is worth",
        reading="The best recorded latency over the best latency among the k candidates that are "
        "predicted fastest; 100 % is perfect. Points are means over tasks, bars 95 % intervals "
        "(tasks resampled). “Knows nothing” picks at random; “told one measurement” is a "
        "predictor that is given one of several measurements of each candidate: what noise leaves "
        "to be had (only where candidates were measured on several occasions).",
        limits="Means over tasks of equal weight, not over a network's time. Tasks were left out "
        "one fold at a time: another kind of operator or machine may go worse.",
        description=f"{told}.",
        draw=draw,
    )


def _tasks(model: Section) -> Figure:
    ordered = sorted(model["tasks"], key=lambda task: task["top1"])
    series = {"first pick": ("top1", "s2"), "best of five": ("top5", "s1")}
    rows = [
        {"place": i + 1, "picks": name, "value": task[key]}
        for i, task in enumerate(ordered)
        for name, (key, _) in series.items()
    ]
    gaps = [
        {"place": i + 1, "low": task["top1"], "high": task["top5"]}
        for i, task in enumerate(ordered)
    ]
    floor = max(0.0, int(min(row["value"] for row in rows) * 10) / 10)

    def draw(layout: Layout) -> Any:
        scale = alt.Scale(domain=[floor, 1.0], nice=False)
        axis = alt.Axis(format="%", title="relative speed", tickCount=6)
        x = alt.X(
            "place:Q",
            scale=alt.Scale(domain=[0.5, len(ordered) + 0.5], nice=False),
            axis=alt.Axis(
                title="left-out tasks, worst first pick to the left",
                grid=False,
                tickMinStep=1,
                format="d",
            ),
        )
        colour = alt.Color(
            "picks:N",
            scale=alt.Scale(
                domain=list(series), range=[light(role) for _, role in series.values()]
            ),
            legend=alt.Legend(title=None, orient="top", symbolType="circle"),
        )
        size = 70 if len(ordered) <= 40 else 28
        gap = (
            alt.Chart(data(gaps))
            .mark_rule(color=light("axis"), opacity=0.6)
            .encode(x=x, y=alt.Y("low:Q", scale=scale, axis=axis), y2="high:Q")
        )
        points = (
            alt.Chart(data(rows))
            .mark_point(filled=True, size=size, opacity=0.9)
            .encode(
                x=x,
                y=alt.Y("value:Q", scale=scale, axis=axis),
                color=colour,
                shape=alt.Shape(
                    "picks:N",
                    scale=alt.Scale(domain=list(series), range=["circle", "diamond"]),
                    legend=None,
                ),
            )
        )
        return (gap + points).properties(height=260)

    worst = ordered[0]
    good = sum(task["top1"] >= 0.95 for task in ordered)
    return Figure(
        key="tasks",
        title="Task by task",
        reading="One column a left-out task: relative speed of the first pick and of the best of "
        "the first five. Columns at 100 % picked the best recorded candidate.",
        limits="A task with few candidates is easier: see the table for how many each has.",
        description=f"{good} of {len(ordered)} tasks have a first pick of at least 95 %; the "
        f"worst is {show.percent(worst['top1'])} ({worst['name']}).",
        draw=draw,
    )


def importance_figure(rows: list[Section]) -> Figure:
    """Return the figure of a model's features by their share of the gain."""

    def draw(layout: Layout) -> Any:
        shown = rows[: min(layout.rows, 12)]
        labels = unique_labels([short(row["feature"], layout.label_chars) for row in shown])
        values = [
            {"feature": label, "share": row["share"]}
            for label, row in zip(labels, shown, strict=True)
        ]
        return (
            alt.Chart(data(values))
            .mark_bar(color=light("accent"), cornerRadiusEnd=3, height=12)
            .encode(
                x=alt.X("share:Q", axis=alt.Axis(format="%", title="share of the gain")),
                y=alt.Y(
                    "feature:N",
                    sort=labels,
                    axis=names_axis(labels, layout),
                ),
            )
            .properties(height=alt.Step(20))
        )

    first = ", ".join(row["feature"] for row in rows[:3])
    return Figure(
        key="importance",
        title="Features that the model leans on",
        reading="Share of what splits on a feature gained in training, mean over members.",
        limits="Says what the model uses, not what causes speed; of features that go together one "
        "may take the share of the others.",
        description=f"First: {first}.",
        draw=draw,
    )
