"""Comparison of two workspaces: what both measured, trained, replayed and confirmed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from toolkit.reports.page.inputs import Section

COUNTS = ("records", "candidates", "failed", "duplicates", "rejected")

STRATEGY_FIGURES = {
    "median_evaluations_to_1pct": "evaluations to 1 %",
    "reached_share": "runs within 1 %",
    "auc": "area under the curve",
}
"""Figures of strategies that are compared: keys of the summary, and their names."""


def comparison_section(mine: Section, other: Section, name: str) -> dict[str, Any]:
    """Compare two summaries (``report_summary``); ``name`` is what the other one is called.

    ``groups`` have a ``title``, a ``note`` (``None``: nothing to say), a ``unit`` (``seconds``,
    ``number``) and ``rows``: ``what``, its values ``here`` and ``there``, their intervals where
    there are some, and ``ratio`` (here over there). Rows are what both have; a group without rows
    is left out. ``latency_ratio`` is the geometric mean over the tasks that both measured.
    """
    groups = [
        _group("Dataset", _counts(mine["dataset"], other["dataset"])),
        _group(
            "Best measured latency",
            _latencies(mine["dataset"], other["dataset"]),
            unit="seconds",
            note="Tasks of the same workload, kind of target and number of cores; if there are "
            "several machines, the fastest.",
        ),
        *_models(mine, other),
        *_replays(mine["simulations"], other["simulations"]),
        _group(
            "Confirmed: latency over the incumbent's",
            _verdicts(mine["live"], other["live"]),
            note="Each against its own incumbent, on its own machine.",
        ),
    ]
    found = [group for group in groups if group["rows"]]
    logs = [
        float(np.log(row["ratio"]))
        for group in found
        if group["unit"] == "seconds"
        for row in group["rows"]
    ]
    return {
        "other": name,
        "groups": found,
        "latency_ratio": float(np.exp(np.mean(logs))) if logs else None,
    }


def _group(
    title: str, rows: Iterator[dict[str, Any]], *, unit: str = "number", note: str | None = None
) -> dict[str, Any]:
    return {"title": title, "unit": unit, "note": note, "rows": list(rows)}


def _row(
    what: str, here: Any, there: Any, intervals: tuple[Any, Any] = (None, None)
) -> dict[str, Any]:
    return {
        "what": what,
        "here": here,
        "there": there,
        "here_interval": intervals[0],
        "there_interval": intervals[1],
        "ratio": here / there if here is not None and there else None,
    }


def _counts(mine: Section, other: Section) -> Iterator[dict[str, Any]]:
    if mine["missing"] is None and other["missing"] is None:
        yield _row("tasks", len(mine["tasks"]), len(other["tasks"]))
        for name in COUNTS:
            yield _row(name, mine[name], other[name])


def _latencies(mine: Section, other: Section) -> Iterator[dict[str, Any]]:
    """Rows of the tasks in both, the largest ratio (worst change) first."""
    here, there = _best(mine), _best(other)
    rows = [_row(_label(key), here[key], there[key]) for key in here if key in there]
    yield from sorted(rows, key=lambda row: -row["ratio"])


_Key = tuple[str, str, int | None]


def _best(dataset: Section) -> dict[_Key, float]:
    """Fastest latency in seconds by workload, kind of target and number of cores."""
    found: dict[_Key, float] = {}
    for task in dataset.get("tasks") or []:
        hardware = task["hardware"] or {}
        cores = hardware.get("num-cores", hardware.get("num_cores"))
        key = task["name"], task["target_kind"], cores
        if task["best_s"]:
            found[key] = min(found.get(key, np.inf), float(task["best_s"]))
    return found


def _label(key: _Key) -> str:
    name, kind, cores = key
    return f"{name} ({kind})" if cores is None else f"{name} ({kind}, cores: {cores})"


def _models(mine: Section, other: Section) -> Iterator[dict[str, Any]]:
    for kind in ("throughput", "mutation", "validity"):
        for here, there in zip(mine[kind][:1], other[kind][:1], strict=False):
            same = here["dataset_fingerprint"] == there["dataset_fingerprint"]
            judged = None if same else "Judged on two datasets: their tasks differ in difficulty."
            rows = (
                _row(name, own["value"], its["value"], (_interval(own), _interval(its)))
                for name, own in here["metrics"].items()
                if (its := there["metrics"].get(name))
            )
            yield _group(f"Model: {kind}", rows, note=judged)


def _interval(metric: Section) -> list[float] | None:
    low, high = metric.get("low"), metric.get("high")
    return None if low is None or high is None else [low, high]


def _replays(mine: list[Section], other: list[Section]) -> Iterator[dict[str, Any]]:
    """One group for each scenario that both replayed."""
    theirs = {one["name"]: one for one in other}
    for one in mine:
        its = theirs.get(one["name"])
        if its is None:
            continue
        by_label = {row["strategy"]: row for row in its["strategies"]}
        rows = (
            _row(
                f"{row['strategy']}: {called}",
                row[key],
                there[key],
                (row[f"{key}_interval"], there[f"{key}_interval"]),
            )
            for row in one["strategies"]
            if (there := by_label.get(row["strategy"]))
            for key, called in STRATEGY_FIGURES.items()
        )
        same = one["dataset_fingerprint"] == its["dataset_fingerprint"]
        note = None if same else "Replayed on two datasets."
        yield _group(f"Replay “{one['name']}”", rows, note=note)


def _verdicts(mine: Section, other: Section) -> Iterator[dict[str, Any]]:
    theirs = {verdict["name"]: verdict for verdict in other["verdicts"]}
    for verdict in mine["verdicts"]:
        if its := theirs.get(verdict["name"]):
            intervals = verdict["interval"], its["interval"]
            yield _row(verdict["name"], verdict["ratio"], its["ratio"], intervals)
