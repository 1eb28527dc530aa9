"""Figures of mutation models: what share of the possible gain is picked up, and where."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import altair as alt

from toolkit import show
from toolkit.reports.page.charts import Figure, Layout, data
from toolkit.reports.page.theme import light
from toolkit.reports.sections.figures_models import importance_figure

Section = Mapping[str, Any]

POLICIES = {
    "model": ("this model", "s1", "circle"),
    "base_rate": ("best on average", "s2", "diamond"),
    "fixed_weights": ("TVM's fixed weights", "s3", "square"),
    "uniform": ("uniform", "baseline", "triangle-up"),
}


def mutation_figures(model: Section, key: str) -> list[Figure]:
    """All figures of one mutation model; ``key`` tells models apart."""
    found = []
    if any(level["shares"] for level in model["levels"]):
        found.append(_shares(model))
    if model["tasks"]:
        found.append(_tasks(model))
    if model["reliability"] and model["calibration_error"] is not None:
        found.append(_reliability(model))
    if model["importance"]:
        found.append(importance_figure(model["importance"]))
    return [
        Figure(f"{key}-{f.key}", f.title, f.reading, f.limits, f.description, f.draw) for f in found
    ]


def _policy_scales(present: list[str]) -> tuple[Any, Any]:
    """Scales of colour and shape for the policies that are drawn, by their words."""
    words = [POLICIES[name][0] for name in present]
    colour = alt.Scale(domain=words, range=[light(POLICIES[name][1]) for name in present])
    shape = alt.Scale(domain=words, range=[POLICIES[name][2] for name in present])
    return colour, shape


def _shares(model: Section) -> Figure:
    levels = [level for level in model["levels"] if level["shares"]]
    present = [name for name in POLICIES if any(name in level["shares"] for level in levels)]
    rows: list[dict[str, Any]] = []
    heads = []
    place = 0
    for level in levels:
        heads.append({"place": place, "level": level["meaning"]})
        for name in present:
            if name in level["shares"]:
                place += 1
                rows.append({"place": place, "policy": POLICIES[name][0], **level["shares"][name]})
        place += 1
    low = min(0.0, *(row["low"] if row["low"] is not None else row["value"] for row in rows))
    low = max(-1.0, low - 0.02)

    def draw(layout: Layout) -> Any:
        colour_scale, shape_scale = _policy_scales(present)
        legend = alt.Legend(title=None, orient="top", columns=layout.columns, symbolOpacity=1)
        colour = alt.Color("policy:N", scale=colour_scale, legend=legend)
        # Room to the right of 100 % for the numbers.
        x_scale = alt.Scale(domain=[low, 1.15], nice=False, clamp=True)
        ticks = [tick / 5 for tick in range(-5, 6) if tick / 5 >= low]
        axis = alt.Axis(format="%", title="share of the oracle's gain", values=ticks)
        y = alt.Y("place:Q", scale=alt.Scale(domain=[place - 0.4, -0.6], nice=False), axis=None)
        base = alt.Chart(data(rows))
        zero = (
            alt.Chart(data([{"at": 0.0}]))
            .mark_rule(color=light("ink"), strokeDash=[3, 3], opacity=0.6)
            .encode(x=alt.X("at:Q", scale=x_scale, axis=axis))
        )
        rule = base.mark_rule(strokeWidth=3, opacity=0.45, strokeCap="round").encode(
            x=alt.X("low:Q", scale=x_scale), x2="high:Q", y=y, color=colour
        )
        point = base.mark_point(filled=True, size=80, opacity=1).encode(
            x=alt.X("value:Q", scale=x_scale),
            y=y,
            color=colour,
            shape=alt.Shape("policy:N", scale=shape_scale, legend=legend),
        )
        number = base.mark_text(align="right", fontSize=layout.font_size - 1).encode(
            x=alt.value("width"), y=y, text=alt.Text("value:Q", format=".0%")
        )
        head = (
            alt.Chart(data(heads))
            .mark_text(align="left", fontWeight=600, fontSize=layout.font_size)
            .encode(x=alt.value(0), y=y, text="level:N")
        )
        return alt.layer(zero, rule, point, number, head).properties(height=21 * place)

    own = levels[0]
    told = "; ".join(
        f"{POLICIES[name][0]} {show.percent(share['value'])}"
        for name, share in own["shares"].items()
    )
    return Figure(
        key="shares",
        title="How much of the possible gain a direction picks up",
        reading="A candidate has several recorded neighbours, each a direction in which one "
        "decision is changed. 100 % is an oracle that always picks the direction with the largest "
        "gain, 0 no gain at all; further right is better. Bars: 95 % intervals, tasks resampled. "
        "“Best on average” is the direction that gained most on the training tasks; “fixed "
        "weights” draws rules as TVM's evolutionary search does.",
        limits="Only directions that were recorded can be picked, and only candidates with two or "
        "more are judged. A step that does not pay at once may still lead somewhere.",
        description=f"{own['meaning']}: {told}.",
        draw=draw,
    )


def _reliability(model: Section) -> Figure:
    rows = model["reliability"]
    most = max(row["picks"] for row in rows)

    def draw(layout: Layout) -> Any:
        scale = alt.Scale(domain=[0, 1])
        x_axis = alt.Axis(format="%", title="predicted probability of the pick", tickCount=6)
        y_axis = alt.Axis(format="%", title="picks that were right", tickCount=6)
        diagonal = (
            alt.Chart(data([{"at": 0.0}, {"at": 1.0}]))
            .mark_line(color=light("ink"), strokeDash=[4, 4], strokeWidth=1.2, opacity=0.8)
            .encode(x=alt.X("at:Q", scale=scale, axis=x_axis), y=alt.Y("at:Q", scale=scale))
        )
        points = (
            alt.Chart(data(rows))
            .mark_point(filled=True, color=light("s1"), opacity=0.9)
            .encode(
                x=alt.X("probability:Q", scale=scale),
                y=alt.Y("right:Q", scale=scale, axis=y_axis),
                size=alt.Size(
                    "picks:Q", scale=alt.Scale(domain=[0, most], range=[20, 300]), legend=None
                ),
            )
        )
        return (diagonal + points).properties(height=260)

    return Figure(
        key="reliability",
        title="Is the model as sure as it should be?",
        reading="Picks by their predicted probability, in tenths: above the dashed line the model "
        "was right more often than it said, below it less often. Larger points hold more picks.",
        limits="A pick is right when its gain is the largest recorded one up to the tie; what was "
        "not recorded might have been better.",
        description=f"The calibration error is {show.percent(model['calibration_error'])}.",
        draw=draw,
    )


def _tasks(model: Section) -> Figure:
    ordered = model["tasks"]
    present = ["model", "base_rate"]
    rows = [
        {
            "place": i + 1,
            "policy": POLICIES[name][0],
            "share": max(-1.0, task[f"gain_{name}"] / task["gain_oracle"]),
        }
        for i, task in enumerate(ordered)
        for name in present
    ]
    low = min(0.0, *(row["share"] for row in rows))

    def draw(layout: Layout) -> Any:
        colour_scale, shape_scale = _policy_scales(present)
        legend = alt.Legend(title=None, orient="top")
        points = (
            alt.Chart(data(rows))
            .mark_point(filled=True, size=70 if len(ordered) <= 40 else 28, opacity=0.9)
            .encode(
                x=alt.X(
                    "place:Q",
                    scale=alt.Scale(domain=[0.5, len(ordered) + 0.5], nice=False),
                    axis=alt.Axis(
                        title="left-out tasks, least share to the left",
                        grid=False,
                        tickMinStep=1,
                        format="d",
                    ),
                ),
                y=alt.Y(
                    "share:Q",
                    scale=alt.Scale(domain=[low, 1.0], nice=False),
                    axis=alt.Axis(format="%", title="share of the oracle's gain", tickCount=6),
                ),
                color=alt.Color("policy:N", scale=colour_scale, legend=legend),
                shape=alt.Shape("policy:N", scale=shape_scale, legend=legend),
            )
        )
        return points.properties(height=260)

    ahead = sum(task["gain_model"] > task["gain_base_rate"] for task in ordered)
    return Figure(
        key="tasks",
        title="Directions task by task",
        reading="One column a left-out task: the share of the oracle's gain that the model's "
        "directions picked up, and that of the direction that is best on average. Below 0 the "
        "picks made candidates slower.",
        limits="Shares below −100 % are drawn there. A task with few judged candidates moves "
        "much by chance: the table has their numbers.",
        description=f"The model is ahead of the best direction on average in {ahead} of "
        f"{len(ordered)} tasks.",
        draw=draw,
    )
