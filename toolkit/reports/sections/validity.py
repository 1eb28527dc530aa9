"""Validity models: how well failures are predicted on tasks that the model never saw."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from toolkit.reports.page.inputs import Section
from toolkit.reports.sections.models import judged_tasks, model_facts, with_intervals

# Metrics of a validity model: the meaning, and the key of the base rate's value.
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
    "lost_best": ("share of tasks whose best candidate has a probability above 0.5", None),
}
FIGURE_TITLE = "What failures are foreseen by"


def validity_section(folder: Path, manifest: Section) -> dict[str, Any]:
    """Summarise one validity model; every figure is of tasks that the judging member never saw."""
    metrics = manifest["metrics"]
    return {
        **model_facts(folder, manifest),
        "ranked_tasks": metrics.get("n_ranked_tasks"),
        "candidates": metrics.get("candidates"),
        "failed_share": metrics.get("failed_share"),
        "metrics": with_intervals(metrics, METRICS),
        "base_rate": with_intervals(metrics, [key for _, key in METRICS.values() if key]),
        "tasks": judged_tasks(manifest, lambda row: -row["failed"]),
    }
