"""Figure of the live verdicts: ratios with their intervals beside the floor of the machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import altair as alt

from toolkit import show
from toolkit.reports.page.charts import (
    Figure,
    Layout,
    data,
    log_scale,
    names_axis,
    task_labels,
)
from toolkit.reports.page.theme import light

Section = Mapping[str, Any]

ROLES = {"better": "good", "not better": "baseline", "undecided": "open"}
# Ratios beyond these are drawn as arrows: a few blocks can leave an interval without bounds.
LEAST, MOST = 0.4, 2.5
SHAPES = {"better": "circle", "not better": "square", "undecided": "diamond"}


def live_figures(live: Section) -> list[Figure]:
    """Return the figure of the verdicts, where enough blocks were measured for an interval."""
    measured = [verdict for verdict in live["verdicts"] if verdict["interval"] is not None]
    return [_forest(measured)] if measured else []


def _forest(verdicts: list[Section]) -> Figure:
    ends = [end for v in verdicts for end in (*v["interval"], *(v["aa_interval"] or ()))]
    low = max(LEAST, min([*ends, 0.9]) / 1.03)
    high = min(MOST, max([*ends, 1.1]) * 1.03)

    def draw(layout: Layout) -> Any:
        labels = task_labels([v["name"] for v in verdicts], layout.label_chars)
        rows = []
        for label, verdict in zip(labels, verdicts, strict=True):
            floor = verdict["aa_interval"] or [1.0, 1.0]
            rows.append(
                {
                    "task": label,
                    "verdict": verdict["verdict"],
                    "ratio": verdict["ratio"],
                    "low": max(low, verdict["interval"][0]),
                    "high": min(high, verdict["interval"][1]),
                    "beyond_low": verdict["interval"][0] < low,
                    "beyond_high": verdict["interval"][1] > high,
                    "floor_low": floor[0],
                    "floor_high": floor[1],
                    "text": f"{show.ratio(verdict['ratio'])} "
                    f"{show.interval(verdict['interval'], 'ratio')}",
                }
            )
        scale = log_scale(low, high)
        coarse = high / low > 1.7
        ticks = (0.5, 0.7, 1, 1.5, 2) if coarse else (0.8, 0.9, 1, 1.1, 1.2)
        axis = alt.Axis(
            title="latency of the winner over the incumbent's (left of 1 is faster)",
            values=[tick for tick in ticks if low <= tick <= high],
            format="~g",
        )
        y = alt.Y(
            "task:N",
            sort=labels,
            axis=names_axis(labels, layout),
        )
        present = [name for name in ROLES if any(row["verdict"] == name for row in rows)]
        colour = alt.Color(
            "verdict:N",
            scale=alt.Scale(domain=present, range=[light(ROLES[name]) for name in present]),
            legend=alt.Legend(title=None, orient="top", symbolOpacity=1),
        )
        shape = alt.Shape(
            "verdict:N",
            scale=alt.Scale(domain=present, range=[SHAPES[name] for name in present]),
            legend=alt.Legend(title=None, orient="top", symbolOpacity=1),
        )
        base = alt.Chart(data(rows))
        floor_bar = base.mark_bar(color=light("axis"), opacity=0.28, height=22).encode(
            x=alt.X("floor_low:Q", scale=scale, axis=axis), x2="floor_high:Q", y=y
        )
        one = (
            alt.Chart(data([{"at": 1.0}]))
            .mark_rule(color=light("ink"), strokeDash=[3, 3], opacity=0.7)
            .encode(x=alt.X("at:Q", scale=scale))
        )
        rule = base.mark_rule(strokeWidth=3, strokeCap="round", opacity=0.7).encode(
            x=alt.X("low:Q", scale=scale), x2="high:Q", y=y, color=colour
        )
        arrows = [
            base.transform_filter(f"datum.beyond_{end}")
            .mark_point(shape=f"triangle-{side}", filled=True, size=80, opacity=0.8)
            .encode(x=alt.X(f"{end}:Q", scale=scale), y=y, color=colour)
            for end, side in (("low", "left"), ("high", "right"))
        ]
        point = base.mark_point(filled=True, size=110, opacity=1).encode(
            x=alt.X("ratio:Q", scale=scale), y=y, color=colour, shape=shape
        )
        text = base.mark_text(dy=-19, align="right", fontSize=layout.font_size - 1).encode(
            x=alt.value("width"), y=y, text="text:N"
        )
        return alt.layer(floor_bar, one, rule, *arrows, point, text).properties(
            height=max(90, 52 * len(rows))
        )

    told = "; ".join(f"{v['name']} {show.ratio(v['ratio'])}, {v['verdict']}" for v in verdicts)
    confidence = verdicts[0]["confidence"]
    level = f"{show.percent(confidence, 2)} " if confidence else ""
    return Figure(
        key="live-verdicts",
        title="Winners against incumbents, measured on this device",
        reading="The point is the winner's latency over the incumbent's, geometric mean over "
        f"blocks of fresh processes; the line is its {level}confidence interval, after the "
        "corrections for several challengers and looks. Grey: what the incumbent shows against "
        "itself (A/A). “Better” is claimed only when the whole line lies left of the grey; an "
        "arrow says that the interval goes on.",
        limits="One machine on one day, this protocol and these inputs. The incumbent is the best "
        "recorded program that could be rebuilt, not the best there is.",
        description=f"{told}.",
        draw=draw,
    )
