"""Throughput models: how well they rank the candidates of left-out tasks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np

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

TOP_K = (1, 5, 10)
BINS = 32
SLOWEST_SHOWN = math.log(1 / 64)

# What a task's row in the manifest is judged by, and which way is better.
METRICS: dict[str, str] = {
    "top1": "speed of the first pick, relative to the best recorded (1 is perfect)",
    "top5": "speed of the best of the first five picks, relative to the best recorded",
    "top10": "speed of the best of the first ten picks, relative to the best recorded",
    "to_1pct": "candidates taken in predicted order until one within 1 % of the best recorded",
    "pairwise": "share of pairs in the right order (0.5 is chance)",
    "spearman": "rank correlation of prediction and measurement (1 is perfect)",
    "recall10": "share of the ten fastest among the first ten picks",
    "rmse": "root mean square error of the log relative speed (0 is perfect)",
    "calibration": "slope of measured on predicted log relative speed (1 is calibrated)",
}
# Predictors by the key of a row of ``top_k``: the name, and the role of its colour.
PREDICTORS = {
    "model": ("this model", "s1"),
    "measurement": ("told one measurement", "s3"),
    "nothing": ("knows nothing", "baseline"),
}
PICKS = {"first pick": ("top1", "s2", "circle"), "best of five": ("top5", "s1", "diamond")}


def throughput_section(folder: Path, manifest: Section) -> dict[str, Any]:
    """Summarise one throughput model; every figure is of tasks that the judging member never saw.

    ``top_k`` has one row per k: the model, the predictor that knows nothing (ties in random order)
    and the one that is given a measurement, each with an interval if the manifest has one.
    """
    metrics = manifest["metrics"]
    own = with_intervals(metrics, METRICS)
    constant = with_intervals(metrics.get("baseline_constant", {}), METRICS)
    told = metrics.get("noise_ceiling", {})
    ceiling = with_intervals(told, METRICS)
    pickers = {"model": own, "nothing": constant, "measurement": ceiling}
    complete = metrics.get("enumerated") or {}
    kept = ("judged_records", "candidates", "median_to_1pct", "max_to_1pct", "split")
    return {
        **model_facts(folder, manifest),
        **fit_facts(manifest),
        **{key: metrics.get(key) for key in kept},
        "extractor_versions": manifest.get("extractor_versions", {}),
        "metrics": own,
        "enumerated": {
            "tasks": complete.get("n_test_tasks", 0),
            "metrics": with_intervals(complete, METRICS),
        },
        "constant": constant,
        "ceiling_tasks": told.get("n_tasks", 0),
        "ceiling": ceiling,
        "noise_spread": told.get("spread"),
        "top_k": [
            {"k": k, **{who: found.get(f"top{k}") for who, found in pickers.items()}} for k in TOP_K
        ],
        "networks": metrics.get("networks", {}),
        "tasks": judged_tasks(manifest, lambda row: row["top1"]),
        "density": density(manifest.get("predictions")),
    }


def density(predictions: Mapping[str, Sequence[float]] | None) -> dict[str, Any] | None:
    """Count predicted against measured log relative speed in square bins.

    Both axes reach from the slowest candidate shown to the task's best (0); what lies outside is
    counted in the bins at the edge. ``edges`` are relative speeds.
    """
    if not predictions:
        return None
    pairs = np.array([predictions["predicted"], predictions["measured"]], dtype=np.float64).T
    pairs = pairs[np.isfinite(pairs).all(axis=1)]
    if not len(pairs):
        return None
    low = max(SLOWEST_SHOWN, float(np.quantile(pairs[:, 1], 0.01)))
    low = min(low, math.log(0.5))
    edges = np.linspace(low, 0.0, BINS + 1)
    counts, _ = np.histogramdd(pairs.clip(low, -1e-9), bins=(edges, edges))
    speeds = np.exp(edges).tolist()
    cells = [
        {
            "predicted": speeds[i : i + 2],
            "measured": speeds[j : j + 2],
            "candidates": int(counts[i, j]),
        }
        for i, j in zip(*np.nonzero(counts), strict=True)
    ]
    return {"candidates": len(pairs), "slowest": speeds[0], "cells": cells}


def throughput_figures(model: Section) -> list[Figure]:
    """All figures of one throughput model."""
    known = {_density: model["density"], _top_k: model["top_k"][0]["model"], _tasks: model["tasks"]}
    return [*(draw(model) for draw, there in known.items() if there), *importance_figures(model)]


def _density(model: Section) -> Figure:
    found = model["density"]
    most = max(cell["candidates"] for cell in found["cells"])
    rows = [
        {
            **dict(zip(("x", "x2"), cell["predicted"], strict=True)),
            **dict(zip(("y", "y2"), cell["measured"], strict=True)),
            "candidates": cell["candidates"],
        }
        for cell in found["cells"]
    ]

    def draw(layout: Layout) -> Any:
        x, y = (
            charts.log_axis(
                found["slowest"],
                1.0,
                f"{how} speed, relative to the best",
                "format(datum.value, '.0%')",
            )
            for how in ("predicted", "measured")
        )
        scale = alt.Scale(type="sqrt", domain=[0, most], range=[0.08, 1])
        cells = charts.chart(rows).mark_rect(color=light("accent"), clip=True)
        cells = cells.encode(
            x=alt.X("x:Q", **x),
            x2="x2",
            y=alt.Y("y:Q", **y),
            y2="y2",
            opacity=alt.Opacity("candidates:Q", scale=scale, legend=None),
        )
        both = cells + charts.diagonal(found["slowest"], x, y)
        return both.properties(height=min(380, layout.width - 40))

    correlation = model["metrics"].get("spearman")
    told = "Density of predicted against measured relative speed"
    if correlation:
        told = f"The rank correlation is {show.number(correlation['value'])} (mean over tasks)"
    return figure("predicted", draw, candidates=found["candidates"], told=told)


def _top_k(model: Section) -> Figure:
    rows = [
        {"k": row["k"], "series": name, **row[key]}
        for row in model["top_k"]
        for key, (name, _) in PREDICTORS.items()
        if row[key] is not None
    ]
    present = {row["series"] for row in rows}
    palette = {name: light(role) for name, role in PREDICTORS.values() if name in present}
    bounds = [row[end] for row in rows for end in ("low", "value") if row[end] is not None]

    def draw(layout: Layout) -> Any:
        y = charts.share_axis("speed of the best of the k picks", charts.tenth_below(bounds))
        base = charts.chart(rows).encode(
            x=alt.X(
                "k:O",
                axis=alt.Axis(title="picks k, in predicted order", labelAngle=0),
                scale=alt.Scale(type="point", padding=0.6),
            ),
            xOffset=alt.XOffset("series:N", sort=list(palette), scale=alt.Scale(range=[-22, 22])),
            color=charts.series(alt.Color, palette, charts.wide_legend(layout)),
        )
        bars = charts.bar_of_interval(base, y=alt.Y("low:Q", **y), y2="high:Q")
        return (bars + charts.points(base, y=alt.Y("value:Q", **y))).properties(height=300)

    told = [
        f"k = {r['k']}: {show.percent(r['model']['value'])}" for r in model["top_k"] if r["model"]
    ]
    return figure("top-k", draw, told="; ".join(told))


def _tasks(model: Section) -> Figure:
    ordered = model["tasks"]
    rows = [
        {"place": place, "series": name, "value": task[key]}
        for place, task in enumerate(ordered, start=1)
        for name, (key, _, _) in PICKS.items()
    ]
    gaps = [
        {"place": place, "low": task["top1"], "high": task["top5"]}
        for place, task in enumerate(ordered, start=1)
    ]

    def draw(layout: Layout) -> Any:
        x = place_axis(ordered, "left-out tasks, worst first pick to the left")
        y = charts.share_axis("relative speed", charts.tenth_below(row["value"] for row in rows))
        palette = {name: light(role) for name, (_, role, _) in PICKS.items()}
        shapes = {name: shape for name, (_, _, shape) in PICKS.items()}
        gap = charts.chart(gaps).mark_rule(color=light("axis"), opacity=0.6)
        picks = spots(
            rows,
            ordered,
            x=x,
            y=alt.Y("value:Q", **y),
            color=charts.series(alt.Color, palette, charts.legend(symbolType="circle")),
            shape=charts.series(alt.Shape, shapes),
        )
        gap = gap.encode(x=x, y=alt.Y("low:Q", **y), y2="high:Q")
        return (gap + picks).properties(height=260)

    return figure(
        "tasks",
        draw,
        good=sum(task["top1"] >= 0.95 for task in ordered),
        tasks=len(ordered),
        worst=show.percent(ordered[0]["top1"]),
        name=ordered[0]["name"],
    )
