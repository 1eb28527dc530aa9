"""The report's section on mutation models: how much of the possible gain a direction picks up."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from toolkit.reports.model_part import importance_rows


def mutation_section(folder: Path, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Summarise one mutation model; every figure is of tasks that the judging member never saw."""
    metrics = manifest["metrics"]
    figures = {
        name: {"value": value, "low": bounds[0], "high": bounds[1]}
        for name, value in metrics.items()
        if isinstance(value, (int, float)) and (bounds := metrics.get(f"{name}_interval"))
    }
    return {
        "path": str(folder),
        "extractor": manifest.get("extractor"),
        "seed": manifest.get("seed"),
        "versions": manifest.get("versions", {}),
        "dataset_fingerprint": manifest.get("dataset", {}).get("fingerprint"),
        "metrics": figures,
        "importance": importance_rows(manifest),
    }
