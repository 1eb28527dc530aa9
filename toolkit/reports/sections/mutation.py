"""Mutation models: how much of the possible gain a direction picks up, and where."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import altair as alt

from toolkit import show
from toolkit.reports.page import charts
from toolkit.reports.page.charts import Figure, Layout, figure
from toolkit.reports.page.inputs import Section
from toolkit.reports.page.theme import light
from toolkit.reports.sections.models import (
    fit_facts,
    importance_figures,
    judged_tasks,
    model_facts,
    place_axis,
    spots,
    with_intervals,
)

LEVELS = {
    "knob": "which decision",
    "rule": "which kind of decision",
    "way": "which decision, and up or down",
}
# Ways to choose the direction: key of the share of the oracle's gain, name, colour and shape.
POLICIES = {
    "model": ("gain_share", "this model", "s1", "circle"),
    "base_rate": ("gain_share_base_rate", "best on average", "s2", "diamond"),
    "fixed_weights": ("gain_share_fixed_weights", "TVM's fixed weights", "s3", "square"),
    "uniform": ("gain_share_uniform", "uniform", "baseline", "triangle-up"),
}
SHARES = {policy: key for policy, (key, *_) in POLICIES.items()}
WORDS = {policy: words for policy, (_, words, *_) in POLICIES.items()}
CEILINGS = ("gain_share_ceiling", "gain_share_blind_ceiling", "gain_share_told_half")
LEADS = ("gain_share_by_task", "ahead_of_base_rate", "ahead_of_fixed_weights")
METRICS = (*SHARES.values(), *CEILINGS, "accuracy", *LEADS)


def mutation_section(folder: Path, manifest: Section) -> dict[str, Any]:
    """Summarise one mutation model; every figure is of tasks that the judging member never saw.

    ``levels`` has one entry per level of detail, the recipe's own first: the shares of the oracle's
    gain by policy (1: always the best recorded direction; 0: no gain), and the accuracy. Gains are
    differences of log latency, higher is better.
    """
    metrics = manifest["metrics"]
    own = str(metrics["level"])
    others = {name: metrics.get("levels", {}).get(name, {}) for name in LEVELS if name != own}
    kept = ("tie", "judged_candidates", "model_gain", "oracle_gain", "calibration_error")
    tasks = judged_tasks(manifest, _share)
    return {
        **model_facts(folder, manifest),
        **fit_facts(manifest),
        **{key: metrics.get(key) for key in kept},
        "method": manifest["recipe"]["mutation"]["method"],
        "level": own,
        "metrics": with_intervals(metrics, METRICS),
        "reliability": metrics.get("reliability") or [],
        "levels": [_level(name, found) for name, found in {own: metrics, **others}.items()],
        "tasks": [row for row in tasks if row["gain_oracle"] > 0],
    }


def _level(name: str, metrics: Section) -> dict[str, Any]:
    found = with_intervals(metrics, [*SHARES.values(), "accuracy"])
    return {
        "level": name,
        "meaning": LEVELS.get(name, name),
        "tasks": metrics.get("n_test_tasks", 0),
        "accuracy": found.get("accuracy"),
        "shares": {policy: found[key] for policy, key in SHARES.items() if key in found},
    }


def _share(row: Section) -> float:
    """Share of the oracle's gain that the model picked up on a task."""
    return float(row["gain_model"] / row["gain_oracle"]) if row["gain_oracle"] > 0 else 0.0


def mutation_figures(model: Section) -> list[Figure]:
    """All figures of one mutation model."""
    known = {
        _shares: any(level["shares"] for level in model["levels"]),
        _tasks: model["tasks"],
        _reliability: model["reliability"] and model["calibration_error"] is not None,
    }
    return [*(draw(model) for draw, there in known.items() if there), *importance_figures(model)]


def _told_apart(policies: Iterable[str], legend: Any) -> dict[str, Any]:
    """Colour and shape of policies, by their words."""
    return charts.told_apart({WORDS[policy]: POLICIES[policy][2:] for policy in policies}, legend)


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
                rows.append({"place": place, "series": WORDS[name], **level["shares"][name]})
        place += 1
    low = min(0.0, *(row["low"] if row["low"] is not None else row["value"] for row in rows))
    low = max(-1.0, low - 0.02)

    def draw(layout: Layout) -> Any:
        ticks = [tick / 5 for tick in range(-5, 6) if tick / 5 >= low]
        x = {
            # Room to the right of 100 % for the numbers.
            "scale": alt.Scale(domain=[low, 1.15], nice=False, clamp=True),
            "axis": alt.Axis(format="%", title="share of the oracle's gain", values=ticks),
        }
        y = alt.Y("place:Q", scale=alt.Scale(domain=[place - 0.4, -0.6], nice=False), axis=None)
        apart = _told_apart(present, charts.wide_legend(layout))
        base = charts.chart(rows).encode(y=y)
        head = charts.chart(heads).mark_text(
            align="left", fontWeight=600, fontSize=layout.font_size
        )
        return alt.layer(
            charts.upright(0.0, 0.6, **x),
            charts.bar_of_interval(base, x=alt.X("low:Q", **x), x2="high:Q", color=apart["color"]),
            charts.points(base, 80, x=alt.X("value:Q", **x), **apart),
            charts.numbers(base, layout, alt.Text("value:Q", format=".0%")),
            head.encode(x=alt.value(0), y=y, text="level:N"),
        ).properties(height=21 * place)

    own = levels[0]
    told = [
        f"{WORDS[name]} {show.percent(share['value'])}" for name, share in own["shares"].items()
    ]
    return figure("shares", draw, level=own["meaning"], told="; ".join(told))


def _reliability(model: Section) -> Figure:
    rows = model["reliability"]
    most = max(row["picks"] for row in rows)

    def draw(layout: Layout) -> Any:
        x = charts.share_axis("predicted probability of the pick")
        y = charts.share_axis("picks that were right")
        size = alt.Scale(domain=[0, most], range=[20, 300])
        picks = charts.chart(rows).mark_point(filled=True, color=light("s1"), opacity=0.9)
        picks = picks.encode(
            x=alt.X("probability:Q", **x),
            y=alt.Y("right:Q", **y),
            size=alt.Size("picks:Q", scale=size, legend=None),
        )
        return (charts.diagonal(0.0, x, y) + picks).properties(height=260)

    return figure("reliability", draw, error=show.percent(model["calibration_error"]))


def _tasks(model: Section) -> Figure:
    tasks, drawn = model["tasks"], ("model", "base_rate")
    rows = [
        {
            "place": place,
            "series": WORDS[name],
            "value": max(-1.0, task[f"gain_{name}"] / task["gain_oracle"]),
        }
        for place, task in enumerate(tasks, start=1)
        for name in drawn
    ]
    low = min(0.0, *(row["value"] for row in rows))

    def draw(layout: Layout) -> Any:
        return spots(
            rows,
            tasks,
            x=place_axis(tasks, "left-out tasks, least share to the left"),
            y=alt.Y("value:Q", **charts.share_axis("share of the oracle's gain", low)),
            **_told_apart(drawn, charts.legend()),
        ).properties(height=260)

    ahead = sum(task["gain_model"] > task["gain_base_rate"] for task in tasks)
    return figure("directions", draw, ahead=ahead, tasks=len(tasks))
