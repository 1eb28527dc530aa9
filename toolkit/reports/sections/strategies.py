"""Strategies: the results of a replay, and how soon each strategy reaches them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np
import polars as pl

from toolkit import show
from toolkit.datasets import task_name
from toolkit.records import Task
from toolkit.reports.page import charts
from toolkit.reports.page.charts import Figure, Layout, figure
from toolkit.reports.page.inputs import SUMMARY_FILE, Section, reading
from toolkit.reports.page.theme import Style, styles
from toolkit.reports.sections.network import network_section

TURNED = {"better": "worse", "worse": "better"}
"""A verdict as seen from the other strategy; a tie stays a tie."""

RESULTS_FILE = "results.parquet"
PROFILE_POINTS = 60

UNITS = {"evaluations": "evaluations", "seconds": "recorded seconds of measuring"}
TICKS = {"evaluations": charts.COUNT, "seconds": charts.CLOCK}
CURVE_LIMITS = {
    "evaluations": "A mean hides single tasks (see the table). Candidates that were never recorded "
    "may be better. An evaluation counts the same whether it failed or not.",
    "seconds": "Seconds are those of the machine that was recorded, without the strategy's own "
    "computing. A mean hides single tasks (see the table).",
}

# Figures that not every replay has: a score needs a defined random search, S a baseline; results
# of older versions lack some.
OPTIONAL = (
    "score",
    "median_time_ratio",
    "median_evaluations_to_5pct",
    "restricted_mean_evaluations_to_1pct",
)
ABSENT: dict[str, Any] = {
    **dict.fromkeys([*OPTIONAL, *(f"{name}_interval" for name in OPTIONAL)]),
    "median_evaluations_to_1pct_if_unrecorded": None,
    "effective_runs": None,
}


def simulation_sections(folders: Sequence[Path]) -> list[dict[str, Any]]:
    """Summarise every simulation, in the order of the folders."""
    found = []
    for folder in folders:
        with reading(folder / SUMMARY_FILE, "toolkit simulate") as summary:
            found.append(simulation_section(folder, summary))
    names = Counter(one["name"] for one in found)
    for one in found:
        if names[one["name"]] > 1:
            one["name"] += f" ({one['path']})"
    return found


def simulation_section(folder: Path, summary: Section) -> dict[str, Any]:
    """Summarise one simulation: strategies best first, tasks by name, what holds and what is tied.

    Figures and intervals are the replay's own. Two keys are added: ``profile`` (the share of runs
    within 1 % of the best recorded, against evaluations or seconds) and ``rank`` (one more than the
    number of strategies that are proven better).
    """
    scenario = summary["scenario"]
    tasks = {
        task_id: {"task_id": task_id, "name": task_name(Task.stand_in(task_id, facts)), **facts}
        for task_id, facts in summary["tasks"].items()
    }
    pairs = summary["comparisons"]["pairs"]
    means = {row["strategy"]: row["mean"] for row in summary["comparisons"]["ranking"]}
    beaten_by = {label: _proven(label, pairs, "worse") for label in means}
    labels = sorted(means, key=lambda label: (len(beaten_by[label]), -means[label], label))
    return {
        "path": str(folder),
        "name": scenario["name"],
        "description": scenario.get("description", ""),
        "budget": scenario.get("budget", {}),
        "missing_rule": scenario.get("missing"),
        "baseline": scenario.get("baseline") if scenario.get("baseline") in labels else None,
        "seeds": summary["seeds"],
        "confidence": scenario.get("confidence", 0.95),
        "strategies": [
            {
                **ABSENT,
                **summary["strategies"][label],
                "rank": 1 + len(beaten_by[label]),
                "beaten_by": beaten_by[label],
                "tied_with": _proven(label, pairs, "tied"),
            }
            for label in labels
        ],
        "tasks": list(tasks.values()),
        "enumerated_tasks": sum(facts["enumerated"] for facts in tasks.values()),
        "noise_unknown_tasks": sum(facts.get("noise") == "unknown" for facts in tasks.values()),
        "seconds_from": _seconds_from(tasks),
        "per_task": _per_task(summary["per_task"], labels, tasks),
        "pairs": pairs,
        "compared_by": summary["comparisons"]["metric"],
        "power": summary["comparisons"].get("power"),
        "curves": summary["curves"],
        "profile": _profile(folder / RESULTS_FILE, labels),
        # The scenario's first strategy searches inside, whatever its rank.
        "network": network_section(summary.get("network"), scenario["strategy"][0]["label"]),
        "forecast": summary.get("forecast"),
        "left_out": summary.get("left_out", []),
        "dataset_fingerprint": summary.get("dataset", {}).get("fingerprint"),
        "models_fingerprint": summary.get("models", {}).get("fingerprint"),
    }


def _proven(label: str, pairs: Sequence[Section], verdict: str) -> list[str]:
    """Strategies against which the comparison in pairs gives this verdict to ``label``."""
    found = [p["second"] for p in pairs if p["first"] == label and p["verdict"] == verdict]
    other = TURNED.get(verdict, verdict)
    return found + [p["first"] for p in pairs if p["second"] == label and p["verdict"] == other]


def _seconds_from(tasks: Mapping[str, Section]) -> dict[str, float]:
    """Shares of the measurements whose seconds were recorded, dated, or follow a cost model."""
    counts: Counter[str] = Counter()
    for facts in tasks.values():
        counts.update(facts.get("elapsed_from", {}))
    total = counts.total()
    return {source: count / total for source, count in counts.items()} if total else {}


def _per_task(
    rows: Sequence[Section], labels: Sequence[str], tasks: Mapping[str, Section]
) -> list[dict[str, Any]]:
    """One row per task: median evaluations to 1 % for each strategy, hardest task first."""
    cells: dict[str, dict[str, dict[str, Any]]] = {}
    for row in rows:
        cells.setdefault(row["task_id"], {})[row["strategy"]] = {
            "evaluations": row["median_evaluations_to_1pct"],
            "seconds": row["median_seconds_to_1pct"],
            "reached": row["reached_share"],
        }

    def effort(task_id: str) -> tuple[float, str]:
        spent = [cell["evaluations"] for cell in cells[task_id].values()]
        return -min((n for n in spent if n is not None), default=float("inf")), task_id

    return [
        {
            **{key: tasks[task_id][key] for key in ("task_id", "name", "candidates", "enumerated")},
            "cells": [{"strategy": label, **cells[task_id][label]} for label in labels],
        }
        for task_id in sorted(cells, key=effort)
    ]


def _profile(path: Path, labels: Sequence[str]) -> dict[str, Any]:
    """Share of runs within 1 % of the best recorded, by unit and strategy."""
    if not path.is_file():
        return {}
    found: dict[str, Any] = {}
    for unit, spent in (("evaluations", "budget"), ("seconds", "seconds")):
        key = f"{unit}_to_1pct"
        frame = pl.read_parquet(path, columns=["strategy", key, spent])
        efforts = frame.get_column(key).cast(pl.Float64).drop_nulls().to_numpy()
        if not len(efforts):
            continue
        low, high = float(efforts.min()), float(frame.get_column(spent).cast(pl.Float64).max())
        grid = np.unique(np.geomspace(low, max(high, low * 1.01), PROFILE_POINTS))
        shares = {}
        for label in labels:
            own = frame.filter(pl.col("strategy") == label).get_column(key).cast(pl.Float64)
            reached = np.sort(own.drop_nulls().to_numpy())
            at = np.searchsorted(reached, grid * (1 + 1e-12), side="right")
            shares[label] = [float(n) / max(len(own), 1) for n in at]
        found[unit] = {"grid": grid.tolist(), "strategies": shares}
    return found


def strategy_styles(simulation: Section) -> dict[str, Style]:
    """Colours and dashes of a replay's strategies, in the order of their ranks."""
    return styles([row["strategy"] for row in simulation["strategies"]], simulation["baseline"])


def strategy_figures(simulation: Section) -> list[Figure]:
    """All figures of one replay."""
    return [
        *(_best_so_far(simulation, unit) for unit in UNITS),
        *(_reached(simulation, unit) for unit in UNITS if unit in simulation["profile"]),
        *(_effort(simulation, unit) for unit in UNITS),
    ]


def _best_so_far(simulation: Section, unit: str) -> Figure:
    found = simulation["curves"][unit]
    lines = {
        label: {"value": line["mean"], "low": line["low"], "high": line["high"]}
        for label, line in found["strategies"].items()
    }
    # One run alone has no band.
    lowest = [
        value if low is None else low
        for line in lines.values()
        for value, low in zip(line["value"], line["low"], strict=True)
    ]
    floor = charts.tenth_below(lowest) if min(lowest) > 0.15 else 0.0
    y = charts.share_axis("best so far, relative to best recorded", floor)
    return _lines("best-so-far", simulation, unit, found["grid"], lines, y)


def _reached(simulation: Section, unit: str) -> Figure:
    found = simulation["profile"][unit]
    lines = {label: {"value": shares} for label, shares in found["strategies"].items()}
    y = charts.share_axis("runs within 1 %")
    return _lines("reached", simulation, unit, found["grid"], lines, y)


def _lines(
    caption: str, simulation: Section, unit: str, grid: list[float], lines: Section, y: Section
) -> Figure:
    """Return the figure of all strategies' curves against what was spent."""
    labels = [row["strategy"] for row in simulation["strategies"]]
    rows = [
        {"series": label, "x": x, **{key: values[i] for key, values in lines[label].items()}}
        # The worst strategy first, so that the best lies on top.
        for label in reversed(labels)
        for i, x in enumerate(grid)
    ]
    x = charts.log_axis(grid[0], grid[-1], UNITS[unit], TICKS[unit])
    ends = [f"{label} {show.percent(lines[label]['value'][-1])}" for label in labels]

    def draw(layout: Layout) -> Any:
        legend = alt.Legend(title=None) if layout.legend else None
        return charts.curves(rows, strategy_styles(simulation), x, y, legend)

    return figure(
        caption,
        draw,
        unit=unit,
        tasks=show.plural(len(simulation["tasks"]), "task"),
        seeds=show.plural(simulation["seeds"], "seed"),
        confidence=show.percent(simulation["confidence"], 0),
        limits=CURVE_LIMITS[unit],
        ends=", ".join(ends),
    )


def _effort(simulation: Section, unit: str) -> Figure:
    key = f"median_{unit}_to_1pct"
    form, write = ("seconds", show.seconds) if unit == "seconds" else ("number", show.number)
    strategies = simulation["strategies"]
    bounds = [bound for row in strategies for bound in (row[key], *row[f"{key}_interval"]) if bound]
    low = min([*bounds, simulation["curves"][unit]["grid"][-1]]) / 1.6
    high = max([*bounds, low * 10]) * 1.8
    rows = []
    for row in strategies:
        left, right = row[f"{key}_interval"]
        value = row[key]
        told = f"{write(value)} {show.interval([left, right], form)}"
        if value is not None and left is None and right is None:
            left = right = value  # A single run has no interval.
        rows.append(
            {
                "name": row["strategy"],
                "series": row["strategy"],
                "value": value,
                "low": high if left is None else left,
                "high": high if right is None else right,
                "open": right is None,
                "edge": high,
                "text": told if value is not None else "fewer than half of the runs",
            }
        )

    def draw(layout: Layout) -> Any:
        x = charts.log_axis(low, high, f"{unit} to within 1 %, median over runs", TICKS[unit])
        plain = charts.named(rows, layout, charts.short_name)
        base = plain.encode(color=charts.colours(strategy_styles(simulation)))
        known = base.transform_filter("datum.value !== null")
        arrow = base.transform_filter("datum.open").mark_point(
            shape="triangle-right", filled=True, size=80, opacity=0.7
        )
        return alt.layer(
            charts.bar_of_interval(base, x=alt.X("low:Q", **x), x2="high:Q"),
            arrow.encode(x=alt.X("edge:Q", **x)),
            charts.points(known, x=alt.X("value:Q", **x)),
            charts.numbers(plain, layout, dy=-12),
        ).properties(height=max(90, 40 * len(rows)))

    return figure(
        "effort",
        draw,
        unit=unit,
        Unit=unit.capitalize(),
        confidence=show.percent(simulation["confidence"], 0),
        told="; ".join(f"{row['series']} {row['text']}" for row in rows),
    )
