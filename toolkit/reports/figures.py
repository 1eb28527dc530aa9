"""All figures of a report, in the order of its sections."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from toolkit.progress import SILENT, Progress
from toolkit.reports.page.charts import EXPORT, Figure, draw_png, draw_svg
from toolkit.reports.sections.figures_analysis import analysis_figures
from toolkit.reports.sections.figures_dataset import dataset_figures
from toolkit.reports.sections.figures_live import live_figures
from toolkit.reports.sections.figures_models import throughput_figures, validity_figures
from toolkit.reports.sections.figures_mutation import mutation_figures
from toolkit.reports.sections.figures_networks import network_figures
from toolkit.reports.sections.figures_strategies import strategy_figures


def report_figures(summary: Mapping[str, Any]) -> dict[str, list[Figure]]:
    """Figures by section: ``dataset``, ``analysis``, ``throughput-0``, ``replay-0``, ..."""
    there = not summary["dataset"]["missing"]
    found = {
        "dataset": dataset_figures(summary["dataset"]) if there else [],
        "analysis": analysis_figures(summary["dataset"]) if there else [],
    }
    for i, model in enumerate(summary["throughput"]):
        found[f"throughput-{i}"] = throughput_figures(model, f"throughput-{i}")
    for i, model in enumerate(summary["mutation"]):
        found[f"mutation-{i}"] = mutation_figures(model, f"mutation-{i}")
    for i, model in enumerate(summary["validity"]):
        found[f"validity-{i}"] = validity_figures(model, f"validity-{i}")
    for i, simulation in enumerate(summary["simulations"]):
        found[f"replay-{i}"] = strategy_figures(simulation)
        found[f"network-{i}"] = network_figures(simulation["network"], simulation["name"])
    found["live"] = live_figures(summary["live"])
    return found


def export_figures(
    summary: Mapping[str, Any],
    folder: Path | str,
    formats: Iterable[Literal["svg", "png"]] = ("svg", "png"),
    *,
    progress: Progress = SILENT,
) -> list[Path]:
    """Write every figure as a file of its own, in light colours, without a browser."""
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    figures = [figure for part in report_figures(summary).values() for figure in part]
    written = []
    wanted = tuple(formats)
    with progress.step("exporting figures", total=len(figures)) as step:
        for figure in figures:
            for form in wanted:
                path = target / f"{figure.key}.{form}"
                if form == "svg":
                    path.write_text(draw_svg(figure, EXPORT), encoding="utf-8")
                else:
                    path.write_bytes(draw_png(figure, EXPORT))
                written.append(path)
            step.advance(note=figure.key)
    return written
