"""Common parts of the sections on models: intervals, names of tasks, features."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import altair as alt

from toolkit.datasets import task_name
from toolkit.records import Task
from toolkit.reports.page import charts
from toolkit.reports.page.charts import Figure, Layout, figure
from toolkit.reports.page.inputs import Section
from toolkit.reports.page.theme import light

FEATURES_SHOWN = 15
FEATURES_DRAWN = 12


def model_facts(folder: Path, manifest: Section) -> dict[str, Any]:
    """Return facts on a model of any kind: its folder and its inputs."""
    metrics = manifest["metrics"]
    shares = manifest.get("importance") or {}
    total = sum(shares.values()) or 1.0
    ordered = sorted(shares.items(), key=lambda item: (-item[1], item[0]))[:FEATURES_SHOWN]
    return {
        "path": str(folder),
        "extractor": manifest.get("extractor"),
        "seed": manifest.get("seed"),
        "dataset_fingerprint": manifest.get("dataset", {}).get("fingerprint"),
        "train_tasks": metrics.get("n_train_tasks"),
        "test_tasks": metrics.get("n_test_tasks"),
        "importance": [{"feature": name, "share": share / total} for name, share in ordered],
    }


def fit_facts(manifest: Section) -> dict[str, Any]:
    """Return facts on how a model was fitted."""
    return {
        "columns": len(manifest.get("columns", [])),
        "libraries": sorted({model["library"] for model in manifest["recipe"]["models"]}),
        "versions": manifest.get("versions", {}),
        "folds": manifest["metrics"].get("n_folds"),
    }


def judged_tasks(manifest: Section, order: Callable[[Section], float]) -> list[dict[str, Any]]:
    """Rows of the tasks that a model was judged by, with their names, in the order given."""
    known = manifest.get("tasks", {})
    found = {key: task_name(Task.stand_in(key, entry)) for key, entry in known.items()}
    rows = sorted(manifest["metrics"].get("tasks", []), key=order)
    return [{**row, "name": found.get(row["task_id"], row["task_id"])} for row in rows]


def with_intervals(metrics: Section, keys: Iterable[str]) -> dict[str, dict[str, float | None]]:
    """Turn ``{name, name_interval}`` into ``{name: {value, low, high}}``; skip absent ones."""
    found = {}
    for key in keys:
        if metrics.get(key) is not None:
            low, high = metrics.get(f"{key}_interval") or (None, None)
            found[key] = {"value": metrics[key], "low": low, "high": high}
    return found


def place_axis(tasks: Sequence[Section], title: str) -> Any:
    """Horizontal axis of the field ``place``: one column per task, from 1."""
    scale = alt.Scale(domain=[0.5, len(tasks) + 0.5], nice=False)
    axis = alt.Axis(title=title, grid=False, tickMinStep=1, format="d")
    return alt.X("place:Q", scale=scale, axis=axis)


def spots(rows: Sequence[Section], tasks: Sequence[Section], **channels: Any) -> Any:
    """Points, smaller if there are many tasks."""
    return charts.points(charts.chart(rows), 70 if len(tasks) <= 40 else 28, 0.9, **channels)


def importance_figures(
    model: Section, title: str = "Features that the model leans on"
) -> list[Figure]:
    """Return the figure of a model's features by their share of the gain, where they are known."""
    rows = model["importance"]
    if not rows:
        return []

    def draw(layout: Layout) -> Any:
        shown = [{**row, "name": row["feature"]} for row in rows[:FEATURES_DRAWN]]
        x = alt.X("share:Q", axis=alt.Axis(format="%", title="share of the gain"))
        bars = charts.named(shown, layout, charts.short_name).mark_bar(
            color=light("accent"), cornerRadiusEnd=3, height=12
        )
        return bars.encode(x=x).properties(height=alt.Step(20))

    first = ", ".join(row["feature"] for row in rows[:3])
    return [figure("importance", draw, title=title, first=first)]
