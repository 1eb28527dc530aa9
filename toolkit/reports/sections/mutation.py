"""Mutation models: how much of the possible gain a direction picks up, and where."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import altair as alt

from toolkit import show
from toolkit.reports.page.charts import (
    Figure,
    Layout,
    bar_of_interval,
    chart,
    diagonal,
    legend,
    numbers,
    points,
    series,
    share_axis,
    upright,
    wide_legend,
)
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
# Who chooses the direction: the key of its share of the oracle's gain, and how it is drawn.
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

    ``levels`` has one entry a level of detail, the recipe's own first: the shares of the oracle's
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
    drawn = [POLICIES[policy] for policy in policies]
    return {
        "color": series(alt.Color, {words: light(role) for _, words, role, _ in drawn}, legend),
        "shape": series(alt.Shape, {words: shape for _, words, _, shape in drawn}, legend),
    }


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
        apart = _told_apart(present, wide_legend(layout))
        base = chart(rows).encode(y=y)
        head = chart(heads).mark_text(align="left", fontWeight=600, fontSize=layout.font_size)
        return alt.layer(
            upright(0.0, 0.6, **x),
            bar_of_interval(base, x=alt.X("low:Q", **x), x2="high:Q", color=apart["color"]),
            points(base, 80, x=alt.X("value:Q", **x), **apart),
            numbers(base, layout, alt.Text("value:Q", format=".0%")),
            head.encode(x=alt.value(0), y=y, text="level:N"),
        ).properties(height=21 * place)

    own = levels[0]
    told = [
        f"{WORDS[name]} {show.percent(share['value'])}" for name, share in own["shares"].items()
    ]
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
        description=f"{own['meaning']}: {'; '.join(told)}.",
        draw=draw,
    )


def _reliability(model: Section) -> Figure:
    rows = model["reliability"]
    most = max(row["picks"] for row in rows)

    def draw(layout: Layout) -> Any:
        x = share_axis("predicted probability of the pick")
        y = share_axis("picks that were right")
        size = alt.Scale(domain=[0, most], range=[20, 300])
        picks = chart(rows).mark_point(filled=True, color=light("s1"), opacity=0.9)
        picks = picks.encode(
            x=alt.X("probability:Q", **x),
            y=alt.Y("right:Q", **y),
            size=alt.Size("picks:Q", scale=size, legend=None),
        )
        return (diagonal(0.0, x, y) + picks).properties(height=260)

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
            y=alt.Y("value:Q", **share_axis("share of the oracle's gain", low)),
            **_told_apart(drawn, legend()),
        ).properties(height=260)

    ahead = sum(task["gain_model"] > task["gain_base_rate"] for task in tasks)
    return Figure(
        key="tasks",
        title="Directions task by task",
        reading="One column a left-out task: the share of the oracle's gain that the model's "
        "directions picked up, and that of the direction that is best on average. Below 0 the "
        "picks made candidates slower.",
        limits="Shares below −100 % are drawn there. A task with few judged candidates moves "
        "much by chance: the table has their numbers.",
        description=f"The model is ahead of the best direction on average in {ahead} of "
        f"{len(tasks)} tasks.",
        draw=draw,
    )
