"""Strategies: what a replay of a scenario found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from toolkit.datasets import task_name
from toolkit.records import Task
from toolkit.reports.page.inputs import SUMMARY_FILE, Section, complete, read_json
from toolkit.reports.sections.network import network_section

TURNED = {"better": "worse", "worse": "better"}
"""What a verdict is from the other's side; a tie is one from both."""

RESULTS_FILE = "results.parquet"
PROFILE_POINTS = 60

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
        path = folder / SUMMARY_FILE
        with complete(path, "toolkit simulate"):
            found.append(simulation_section(folder, read_json(path, "toolkit simulate")))
    return found


def simulation_section(folder: Path, summary: Section) -> dict[str, Any]:
    """Summarise one simulation: strategies best first, tasks by name, what holds and what is tied.

    Figures and intervals are the replay's own; new are ``profile`` (the
    share of runs within 1 % of the best recorded after so many evaluations or seconds) and
    ``rank``: one more than the number of strategies that are proven better.
    """
    scenario = summary["scenario"]
    tasks = summary["tasks"]
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
        "tasks": [
            {"task_id": task_id, "name": _name(task_id, facts), **facts}
            for task_id, facts in tasks.items()
        ],
        "enumerated_tasks": sum(facts["enumerated"] for facts in tasks.values()),
        "noise_unknown_tasks": sum(facts.get("noise") == "unknown" for facts in tasks.values()),
        "seconds_from": _seconds_from(tasks),
        "per_task": _per_task(summary["per_task"], labels, tasks),
        "pairs": pairs,
        "compared_by": summary["comparisons"]["metric"],
        "curves": summary["curves"],
        "profile": _profile(folder / RESULTS_FILE, labels),
        "network": network_section(summary.get("network"), labels[0]),
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


def _name(task_id: str, facts: Section) -> str:
    return task_name(Task(task_id, facts["format"], facts["workload"], facts["arguments"], "", ""))


def _seconds_from(tasks: Mapping[str, Section]) -> dict[str, float]:
    """Shares of the measurements whose seconds were recorded, dated, or follow a cost model."""
    counts: dict[str, int] = {}
    for facts in tasks.values():
        for source, count in facts.get("elapsed_from", {}).items():
            counts[source] = counts.get(source, 0) + count
    total = sum(counts.values())
    return {source: count / total for source, count in counts.items()} if total else {}


def _per_task(
    rows: Sequence[Section],
    labels: Sequence[str],
    tasks: Mapping[str, Section],
) -> list[dict[str, Any]]:
    """One row a task: median evaluations to 1 % for each strategy, hardest task first."""
    cells: dict[str, dict[str, dict[str, Any]]] = {}
    for row in rows:
        cells.setdefault(row["task_id"], {})[row["strategy"]] = {
            "evaluations": row["median_evaluations_to_1pct"],
            "seconds": row["median_seconds_to_1pct"],
            "reached": row["reached_share"],
        }

    def effort(task_id: str) -> tuple[float, str]:
        spent = [
            float("inf") if cell["evaluations"] is None else cell["evaluations"]
            for cell in cells[task_id].values()
        ]
        return -min(spent, default=float("inf")), task_id

    return [
        {
            "task_id": task_id,
            "name": _name(task_id, tasks[task_id]),
            "candidates": tasks[task_id]["candidates"],
            "enumerated": tasks[task_id]["enumerated"],
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
