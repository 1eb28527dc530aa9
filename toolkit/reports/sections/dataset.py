"""The dataset: what was recorded, and how hard each task is."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np
import polars as pl
from numpy.typing import NDArray

from toolkit import show
from toolkit.datasets import Dataset, describe, open_dataset
from toolkit.features.computations import (
    formats_compared,
    in_several_formats,
    told_comparison,
    told_computation,
    with_computations,
)
from toolkit.reports.page import charts
from toolkit.reports.page.charts import Figure, Layout, figure
from toolkit.reports.page.inputs import DATASET_FILE, Section
from toolkit.reports.page.theme import light
from toolkit.results import plain

SOURCES_LISTED = 200
LOGS_DRAWN = 8
TASKS_DRAWN = 60
CURVE_POINTS = 48
QUANTILES = {"q05": 0.05, "q25": 0.25, "q50": 0.5, "q75": 0.75, "q95": 0.95}
TWIN = ("format", "machine", "task_id", "best_s", "gflop_per_s")
SHARES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0)
"""Shares of a task's candidates, fastest first, at which ``rarity`` is given."""


def dataset_section(
    folder: Path | None, peaks: Mapping[str | None, float] | None = None
) -> dict[str, Any]:
    """Summarise a dataset for the report.

    In addition to the keys of ``toolkit describe``, each task has ``spread`` (quantiles of the
    candidates' values over ``best_s``), ``rarity`` (the same at ``SHARES``) and ``curves`` (best
    so far in recorded order, one curve per log). ``peaks`` as for ``with_computations``.
    """
    if folder is None:
        return {"missing": "toolkit ingest LOGS"}
    dataset = open_dataset(folder)
    found: dict[str, Any] = plain(describe(dataset))
    tasks = with_computations(dataset, found["tasks"], peaks)
    spread = _spreads(dataset)
    curves = _curves(dataset, {task["task_id"]: task["best_s"] for task in tasks})
    for task in tasks:
        task.update(spread.get(task["task_id"], {"spread": None, "rarity": None}))
        task["curves"] = curves.get(task["task_id"], [])
    twins = in_several_formats(tasks)
    known = found["measuring_s"] is not None
    failing = [entry["seconds"] for entry in found["failures"] if entry["seconds"] is not None]
    return {
        **found,
        "missing": None,
        "path": str(folder / DATASET_FILE),
        "sources_total": len(found["sources"]),
        "sources": found["sources"][:SOURCES_LISTED],
        "failing_s": float(sum(failing)) if known else None,
        "rarity_shares": list(SHARES),
        "enumerated_tasks": sum(task["enumerated"] for task in tasks),
        "repeated_tasks": sum(task["occasions"] > 1 for task in tasks),
        "unknown_machine_tasks": sum(task["machine"] is None for task in tasks),
        "tasks": tasks,
        "several_formats": [
            {"computes": told_computation(task["computes"]), **{key: task[key] for key in TWIN}}
            for task in twins
        ],
        "formats_compared": [told_comparison(one) for one in formats_compared(twins)],
    }


def _spreads(dataset: Dataset) -> dict[str, dict[str, Any]]:
    """Quantiles of the candidates' values over the best, by task."""
    ok = dataset.records(["task_id", "candidate_id", "latency_s"]).drop_nulls("latency_s")
    candidates = ok.group_by("task_id", "candidate_id").agg(value=pl.col("latency_s").median())
    relative = pl.col("value") / pl.col("value").min()
    quantiles = {name: relative.quantile(q, "linear") for name, q in QUANTILES.items()}
    shares = {f"s{i}": relative.quantile(share, "linear") for i, share in enumerate(SHARES)}
    rows = candidates.group_by("task_id").agg(**quantiles, **shares).collect()
    return {
        row["task_id"]: {
            "spread": {name: row[name] for name in QUANTILES},
            "rarity": [row[name] for name in shares],
        }
        for row in rows.iter_rows(named=True)
    }


def _curves(dataset: Dataset, best: dict[str, float | None]) -> dict[str, list[dict[str, Any]]]:
    """Best so far over the task's best, in each log's own order, thinned for drawing."""
    columns = ["task_id", "source_id", "order", "latency_s"]
    frame = dataset.records(columns).sort("task_id", "source_id", "order").collect()
    paths = dict(dataset.sources().select("source_id", "path").iter_rows())
    curves: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for (task_id, source_id), part in frame.partition_by(
        "task_id", "source_id", as_dict=True, maintain_order=True
    ).items():
        reference = best.get(str(task_id))
        if reference is None:
            continue
        latency = part["latency_s"].cast(pl.Float64).to_numpy()
        reached = np.fmin.accumulate(np.where(np.isfinite(latency), latency, np.nan))
        # A single lucky repeat can lie below the median-based best: cut at 1.
        relative = np.minimum(1.0, np.nan_to_num(reference / reached, nan=0.0))
        at = _thin(relative)
        # File names alone are often the same.
        name = "/".join(Path(paths.get(str(source_id), str(source_id))).parts[-3:])
        curves[str(task_id)].append(
            {
                "log": name,
                "records": len(relative),
                "at": (at + 1).tolist(),
                "relative": [round(float(v), 4) for v in relative[at]],
            }
        )
    return {
        task_id: sorted(logs, key=lambda log: -log["records"])[:LOGS_DRAWN]
        for task_id, logs in curves.items()
    }


def _thin(curve: NDArray[np.float64]) -> NDArray[np.int64]:
    """Indices that keep a curve's shape: where it changes, else evenly in the logarithm."""
    n = len(curve)
    if n <= CURVE_POINTS:
        return np.arange(n)
    changes = np.flatnonzero(np.diff(curve, prepend=-1.0) != 0)
    if len(changes) > CURVE_POINTS:
        picks = np.unique(np.geomspace(1, len(changes), CURVE_POINTS).astype(np.int64)) - 1
        changes = changes[picks]
    return np.unique(np.r_[0, changes, n - 1])


def dataset_figures(dataset: Section) -> list[Figure]:
    """All figures of a dataset: how far typical candidates are from the best recorded."""
    tasks = [task for task in dataset["tasks"] if task["spread"] is not None]
    return [_spread(tasks), _rarity(tasks, dataset["rarity_shares"])] if tasks else []


def _spread(tasks: list[Section]) -> Figure:
    def draw(layout: Layout) -> Any:
        # The most recorded tasks are shown, the hardest of them first.
        shown = sorted(tasks[: layout.rows], key=lambda task: -task["spread"]["q50"])
        rows = [{"name": task["name"], **task["spread"]} for task in shown]
        high = max(1.25, *(row["q95"] for row in rows))
        x = charts.log_axis(1.0, high, "latency over the best recorded of the task", charts.TIMES)
        base = charts.named(rows, layout)
        thin = base.mark_rule(strokeWidth=1.5, color=light("axis"))
        thick = base.mark_bar(height=8, cornerRadius=4, color=light("accent"), opacity=0.55)
        tick = base.mark_point(
            shape="stroke", angle=90, size=150, strokeWidth=2.5, color=light("ink"), opacity=1
        )
        return alt.layer(
            thin.encode(x=alt.X("q05:Q", **x), x2="q95:Q"),
            thick.encode(x=alt.X("q25:Q", **x), x2="q75:Q"),
            tick.encode(x=alt.X("q50:Q", **x)),
        ).properties(height=max(60, 15 * len(rows)))

    middle = statistics.median(task["spread"]["q50"] for task in tasks)
    count = show.plural(len(tasks), "task")
    return figure("dataset-spread", draw, tasks=count, middle=show.number(middle))


def _rarity(tasks: list[Section], shares: list[float]) -> Figure:
    """Latency of the task's fastest candidates, share by share."""
    middle = [statistics.median(task["rarity"][i] for task in tasks) for i in range(len(shares))]
    high = max(1.25, *(max(task["rarity"][:-1]) for task in tasks))

    def curve(ratios: Iterable[float], **more: Any) -> list[dict[str, Any]]:
        pairs = zip(shares, ratios, strict=True)
        return [{"share": share, "ratio": min(ratio, high), **more} for share, ratio in pairs]

    def draw(layout: Layout) -> Any:
        # A quantile below one candidate of n is interpolated: it starts at 1 / n.
        rows = [
            row
            for task in tasks[:TASKS_DRAWN]
            for row in curve(task["rarity"], task=task["task_id"])
            if row["share"] * task["candidates"] >= 1
        ]
        title = "share of a task's candidates, fastest first"
        x = charts.log_axis(shares[0], 1.0, title, "format(datum.value, '~%')")
        y = charts.log_axis(1.0, high, "latency over the best recorded", charts.TIMES)
        thin = charts.chart(rows).mark_line(color=light("accent"), strokeWidth=1, opacity=0.25)
        bold = charts.chart(curve(middle)).mark_line(color=light("ink"), strokeWidth=2.5)
        channels = {"x": alt.X("share:Q", **x), "y": alt.Y("ratio:Q", **y)}
        both = thin.encode(detail="task:N", **channels) + bold.encode(**channels)
        return both.properties(height=360)

    return figure("dataset-rarity", draw, at_one=show.number(middle[shares.index(0.01)]))
