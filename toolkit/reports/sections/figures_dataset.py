"""Figures of a dataset: how far typical candidates are from the best recorded."""

from __future__ import annotations

import statistics
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
    task_labels,
)
from toolkit.reports.page.theme import light

Section = Mapping[str, Any]

TASKS_DRAWN = 60
PERCENT_LABEL = "format(datum.value, '~%')"


def dataset_figures(dataset: Section) -> list[Figure]:
    """All figures of a dataset."""
    tasks = [task for task in dataset["tasks"] if task["spread"] is not None]
    return [_spread(tasks), _rarity(tasks, dataset["rarity_shares"])] if tasks else []


def _spread(tasks: list[Section]) -> Figure:
    middle = statistics.median(task["spread"]["q50"] for task in tasks)

    def draw(layout: Layout) -> Any:
        # The most recorded tasks are shown, the hardest of them first.
        shown = sorted(tasks[: layout.rows], key=lambda task: -task["spread"]["q50"])
        labels = task_labels([task["name"] for task in shown], layout.label_chars)
        rows = [
            {"task": label, **task["spread"]} for label, task in zip(labels, shown, strict=True)
        ]
        high = max(1.25, *(row["q95"] for row in rows))
        x_scale = log_scale(1.0, high)
        axis = log_axis(
            1.0,
            high,
            "latency over the best recorded of the task",
            "format(datum.value, ',') + '×'",
        )
        y = alt.Y(
            "task:N",
            sort=labels,
            axis=names_axis(labels, layout),
        )
        base = alt.Chart(data(rows))
        thin = base.mark_rule(strokeWidth=1.5, color=light("axis")).encode(
            x=alt.X("q05:Q", scale=x_scale, axis=axis), x2="q95:Q", y=y
        )
        thick = base.mark_bar(height=8, cornerRadius=4, color=light("accent"), opacity=0.55).encode(
            x=alt.X("q25:Q", scale=x_scale), x2="q75:Q", y=y
        )
        tick = base.mark_point(
            shape="stroke", angle=90, size=150, strokeWidth=2.5, color=light("ink"), opacity=1
        ).encode(x=alt.X("q50:Q", scale=x_scale), y=y)
        return alt.layer(thin, thick, tick).properties(height=max(60, 15 * len(rows)))

    return Figure(
        key="dataset-spread",
        title="How far recorded candidates are from the best of their task",
        reading="One row a task (those with most records), the hardest first. Bar: the middle "
        "half of the good candidates; thin line: 5 % to 95 %; mark: median. A row that reaches "
        "far right is a task where a random candidate costs much.",
        limits="Only candidates that ran and were recorded: a log of a search holds more good "
        "ones than the space does. Failures are in the table below.",
        description=f"Over {show.plural(len(tasks), 'task')} the median candidate takes "
        f"{show.number(middle)} times the best recorded latency.",
        draw=draw,
    )


def _rarity(tasks: list[Section], shares: list[float]) -> Figure:
    """Latency of the task's fastest candidates, share by share."""
    middle = [statistics.median(task["rarity"][i] for task in tasks) for i in range(len(shares))]
    high = max(1.25, *(max(task["rarity"][:-1]) for task in tasks))

    def draw(layout: Layout) -> Any:
        # A quantile below one candidate of n is interpolated: it starts at 1 / n.
        lines = [
            {"task": task["task_id"], "share": share, "ratio": min(ratio, high)}
            for task in tasks[:TASKS_DRAWN]
            for share, ratio in zip(shares, task["rarity"], strict=True)
            if share * task["candidates"] >= 1
        ]
        median = [
            {"share": share, "ratio": min(ratio, high)}
            for share, ratio in zip(shares, middle, strict=True)
        ]
        scale = log_scale(1.0, high)
        x = alt.X(
            "share:Q",
            scale=log_scale(shares[0], 1.0),
            axis=log_axis(
                shares[0], 1.0, "share of a task's candidates, fastest first", PERCENT_LABEL
            ),
        )
        axis = log_axis(
            1.0, high, "latency over the best recorded", "format(datum.value, ',') + '×'"
        )
        y = alt.Y("ratio:Q", scale=scale, axis=axis)
        thin = (
            alt.Chart(data(lines))
            .mark_line(color=light("accent"), strokeWidth=1, opacity=0.25)
            .encode(x=x, y=y, detail="task:N")
        )
        bold = (
            alt.Chart(data(median))
            .mark_line(color=light("ink"), strokeWidth=2.5)
            .encode(x=x, y=alt.Y("ratio:Q", scale=scale))
        )
        return (thin + bold).properties(height=360)

    at_one = middle[shares.index(0.01)]
    return Figure(
        key="dataset-rarity",
        title="How rare good candidates are",
        reading="One thin line a task; the bold one is their median. Where a line passes 1 %, one "
        "candidate in a hundred is at least that close to the best. A line that stays low far to "
        "the right is a task where luck is enough; a steep start is one that needs a search.",
        limits="Shares are of the good candidates that were recorded, not of the space: a log of "
        "a search holds more fast ones.",
        description="In the median task the fastest 1 % of the candidates reach at least "
        f"{show.number(at_one)} times the best recorded latency.",
        draw=draw,
    )
