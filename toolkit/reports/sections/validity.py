"""The report's section on validity models: which candidates fail, told on tasks never seen."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from toolkit.reports.sections.model import importance_rows, task_names, with_intervals

# What a validity model is judged by: what it means, and the key of what the base rate gives.
METRICS: dict[str, tuple[str, str | None]] = {
    "auc": ("probability that a failed candidate has the higher prediction (0.5 is chance)", None),
    "average_precision": (
        "mean precision over the failed candidates, by falling prediction (1 is perfect)",
        "average_precision_base_rate",
    ),
    "brier": ("mean squared error of the probability (0 is perfect)", "brier_base_rate"),
    "brier_skill": ("1 minus the ratio of both (1 is perfect, 0 knows nothing)", None),
    "calibration_error": ("distance between predicted and observed share (0 is perfect)", None),
    "avoided": ("share of the failed candidates with a probability above 0.5", None),
    "lost": ("share of the good candidates with a probability above 0.5", None),
    "lost_best": ("share of tasks whose best candidate is above it", None),
}


def validity_section(folder: Path, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Summarise one validity model; every figure is of tasks that the judging member never saw."""
    metrics = manifest["metrics"]
    names = task_names(manifest.get("tasks", {}))
    base = [key for _, key in METRICS.values() if key is not None]
    return {
        "path": str(folder),
        "extractor": manifest.get("extractor"),
        "seed": manifest.get("seed"),
        "dataset_fingerprint": manifest.get("dataset", {}).get("fingerprint"),
        "test_tasks": metrics.get("n_test_tasks"),
        "ranked_tasks": metrics.get("n_ranked_tasks"),
        "train_tasks": metrics.get("n_train_tasks"),
        "candidates": metrics.get("candidates"),
        "failed_share": metrics.get("failed_share"),
        "metrics": with_intervals(metrics, list(METRICS)),
        "base_rate": with_intervals(metrics, base),
        "tasks": [
            {**row, "name": names.get(row["task_id"], row["task_id"])}
            for row in sorted(metrics.get("tasks", []), key=lambda row: -row["failed"])
        ],
        "importance": importance_rows(manifest),
    }
