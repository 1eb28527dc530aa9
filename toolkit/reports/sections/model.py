"""The report's section on throughput models: how well tasks were ranked that were left out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from toolkit.datasets import task_name
from toolkit.errors import ModelError
from toolkit.records import Task
from toolkit.training.trained.store import read_manifest

TOP_K = (1, 5, 10)
FEATURES_SHOWN = 15
BINS = 32
SLOWEST_SHOWN = math.log(1 / 64)

# What a task's row in the manifest is judged by, and which way is better.
METRICS: dict[str, str] = {
    "top1": "speed of the first pick, relative to the best recorded (1 is perfect)",
    "top5": "speed of the best of the first five picks, likewise",
    "top10": "speed of the best of the first ten picks, likewise",
    "to_1pct": "candidates taken in predicted order until one within 1 % of the best recorded",
    "pairwise": "share of pairs ordered rightly (0.5 is chance)",
    "spearman": "rank correlation of prediction and measurement (1 is perfect)",
    "recall10": "share of the ten fastest among the first ten picks",
    "rmse": "root mean square error of the log relative speed (0 is perfect)",
    "calibration": "slope of measured on predicted log relative speed (1 is calibrated)",
}


def model_sections(folders: Sequence[Path]) -> dict[str, list[dict[str, Any]]]:
    """Read manifests and sort them by kind: ``throughput``, ``mutation`` and ``validity``.

    Raises
    ------
    ModelError
        When a manifest cannot be read, or is of a kind that is not known here.
    """
    from toolkit.reports.sections.mutation import mutation_section
    from toolkit.reports.sections.validity import validity_section

    summarise = {
        "throughput": throughput_section,
        "mutation": mutation_section,
        "validity": validity_section,
    }
    found: dict[str, list[dict[str, Any]]] = {kind: [] for kind in summarise}
    for folder in folders:
        manifest = read_manifest(folder)
        kind = manifest["kind"]
        if kind not in summarise:
            raise ModelError(
                f"is a model of kind {kind!r}",
                where=folder,
                cure=f"a report shows: {', '.join(summarise)}",
            )
        found[kind].append(summarise[kind](folder, manifest))
    return found


def throughput_section(folder: Path, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Summarise one throughput model; every figure is of tasks that the judging member never saw.

    ``top_k`` has one row a k: the model, the predictor that knows nothing (ties in random order)
    and the one that is told a measurement, each with an interval where the manifest has one.
    """
    metrics = manifest["metrics"]
    constant = metrics.get("baseline_constant", {})
    ceiling = metrics.get("noise_ceiling", {})
    complete = metrics.get("enumerated") or {}
    names = task_names(manifest.get("tasks", {}))
    return {
        "path": str(folder),
        "extractor": manifest.get("extractor"),
        "extractor_versions": manifest.get("extractor_versions", {}),
        "columns": len(manifest.get("columns", [])),
        "libraries": sorted({model["library"] for model in manifest["recipe"]["models"]}),
        "seed": manifest.get("seed"),
        "versions": manifest.get("versions", {}),
        "dataset_fingerprint": manifest.get("dataset", {}).get("fingerprint"),
        "split": metrics.get("split"),
        "folds": metrics.get("n_folds"),
        "train_tasks": metrics.get("n_train_tasks"),
        "test_tasks": metrics.get("n_test_tasks"),
        "judged_records": metrics.get("judged_records"),
        "candidates": metrics.get("candidates"),
        "metrics": with_intervals(metrics, METRICS),
        "enumerated": {
            "tasks": complete.get("n_test_tasks", 0),
            "metrics": with_intervals(complete, METRICS),
        },
        "median_to_1pct": metrics.get("median_to_1pct"),
        "max_to_1pct": metrics.get("max_to_1pct"),
        "constant": with_intervals(constant, METRICS),
        "ceiling_tasks": ceiling.get("n_tasks", 0),
        "ceiling": with_intervals(ceiling, METRICS),
        "noise_spread": ceiling.get("spread"),
        "top_k": [
            {
                "k": k,
                "model": with_intervals(metrics, [f"top{k}"]).get(f"top{k}"),
                "nothing": with_intervals(constant, [f"top{k}"]).get(f"top{k}"),
                "measurement": with_intervals(ceiling, [f"top{k}"]).get(f"top{k}"),
            }
            for k in TOP_K
        ],
        "networks": metrics.get("networks", {}),
        "tasks": [
            {**row, "name": names.get(row["task_id"], row["task_id"])}
            for row in sorted(metrics.get("tasks", []), key=lambda row: row["top1"])
        ],
        "importance": importance_rows(manifest),
        "density": density(manifest.get("predictions")),
    }


def importance_rows(manifest: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the features with the largest shares of what the members gained."""
    shares = manifest.get("importance") or {}
    total = sum(shares.values()) or 1.0
    ordered = sorted(shares.items(), key=lambda item: (-item[1], item[0]))
    return [{"feature": name, "share": share / total} for name, share in ordered[:FEATURES_SHOWN]]


def with_intervals(
    metrics: Mapping[str, Any], names: Mapping[str, str] | Sequence[str]
) -> dict[str, dict[str, float | None]]:
    """Turn ``{name, name_interval}`` into ``{name: {value, low, high}}``; absent ones are left."""
    found = {}
    for name in names:
        if metrics.get(name) is None:
            continue
        low, high = metrics.get(f"{name}_interval") or (None, None)
        found[name] = {"value": metrics[name], "low": low, "high": high}
    return found


def task_names(tasks: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Short names of tasks that are known by workload and arguments alone."""
    return {task_id: task_name(Task.stand_in(task_id, entry)) for task_id, entry in tasks.items()}


def density(predictions: Mapping[str, Sequence[float]] | None) -> dict[str, Any] | None:
    """Count predicted against measured log relative speed in square bins.

    Both axes reach from the slowest candidate shown to the task's best (0); what lies outside is
    counted in the bins at the edge. ``edges`` are relative speeds.
    """
    if not predictions or not len(predictions["measured"]):
        return None
    measured = np.asarray(predictions["measured"], dtype=np.float64)
    predicted = np.asarray(predictions["predicted"], dtype=np.float64)
    kept = np.isfinite(measured) & np.isfinite(predicted)
    measured, predicted = measured[kept], predicted[kept]
    if not len(measured):
        return None
    low = max(SLOWEST_SHOWN, float(np.quantile(measured, 0.01)))
    low = min(low, math.log(0.5))
    edges = np.linspace(low, 0.0, BINS + 1)
    inside = np.stack([predicted, measured], axis=1).clip(low, -1e-9)
    counts, _ = np.histogramdd(inside, bins=(edges, edges))
    speeds = np.exp(edges)
    cells = [
        {
            "predicted": [float(speeds[i]), float(speeds[i + 1])],
            "measured": [float(speeds[j]), float(speeds[j + 1])],
            "candidates": int(counts[i, j]),
        }
        for i, j in zip(*np.nonzero(counts), strict=True)
    ]
    return {"candidates": len(measured), "slowest": float(speeds[0]), "cells": cells}
