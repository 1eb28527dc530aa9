"""The report's section on mutation models: how much of the possible gain a direction picks up."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from toolkit.reports.sections.model import importance_rows, task_names, with_intervals

LEVELS = {
    "knob": "which decision",
    "rule": "which kind of decision",
    "way": "which decision, and up or down",
}
# Who chooses the direction, and the key of its share of the oracle's gain.
POLICIES = {
    "model": "gain_share",
    "base_rate": "gain_share_base_rate",
    "fixed_weights": "gain_share_fixed_weights",
    "uniform": "gain_share_uniform",
}
CEILINGS = ("gain_share_ceiling", "gain_share_blind_ceiling", "gain_share_told_half")
METRICS = (
    *POLICIES.values(),
    *CEILINGS,
    "accuracy",
    "gain_share_by_task",
    "ahead_of_base_rate",
    "ahead_of_fixed_weights",
)


def mutation_section(folder: Path, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Summarise one mutation model; every figure is of tasks that the judging member never saw.

    ``levels`` has one entry a level of detail, the recipe's own first: the shares of the oracle's
    gain by policy (1: always the best recorded direction; 0: no gain), and the accuracy. Gains are
    differences of log latency, higher is better.
    """
    metrics = manifest["metrics"]
    names = task_names(manifest.get("tasks", {}))
    own = str(metrics["level"])
    return {
        "path": str(folder),
        "method": manifest["recipe"]["mutation"]["method"],
        "libraries": sorted({model["library"] for model in manifest["recipe"]["models"]}),
        "extractor": manifest.get("extractor"),
        "columns": len(manifest.get("columns", [])),
        "seed": manifest.get("seed"),
        "versions": manifest.get("versions", {}),
        "dataset_fingerprint": manifest.get("dataset", {}).get("fingerprint"),
        "level": own,
        "tie": metrics.get("tie"),
        "train_tasks": metrics.get("n_train_tasks"),
        "test_tasks": metrics.get("n_test_tasks"),
        "folds": metrics.get("n_folds"),
        "judged_candidates": metrics.get("judged_candidates"),
        "model_gain": metrics.get("model_gain"),
        "oracle_gain": metrics.get("oracle_gain"),
        "metrics": with_intervals(metrics, METRICS),
        "calibration_error": metrics.get("calibration_error"),
        "reliability": metrics.get("reliability") or [],
        "levels": [
            _level(name, metrics if name == own else metrics.get("levels", {}).get(name, {}))
            for name in [own, *(other for other in LEVELS if other != own)]
        ],
        "tasks": [
            {**row, "name": names.get(row["task_id"], row["task_id"])}
            for row in sorted(metrics.get("tasks", []), key=_share)
            if row["gain_oracle"] > 0
        ],
        "importance": importance_rows(manifest),
    }


def _level(name: str, metrics: Mapping[str, Any]) -> dict[str, Any]:
    found = with_intervals(metrics, [*POLICIES.values(), "accuracy"])
    return {
        "level": name,
        "meaning": LEVELS.get(name, name),
        "tasks": metrics.get("n_test_tasks", 0),
        "accuracy": found.get("accuracy"),
        "shares": {policy: found[key] for policy, key in POLICIES.items() if key in found},
    }


def _share(row: Mapping[str, Any]) -> float:
    """Share of the oracle's gain that the model picked up on a task."""
    return float(row["gain_model"] / row["gain_oracle"]) if row["gain_oracle"] > 0 else 0.0
