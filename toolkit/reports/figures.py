"""All figures of a report, in the order of its sections."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from toolkit.progress import SILENT, Progress
from toolkit.reports.page.charts import Figure
from toolkit.reports.page.drawing import draw_png, draw_svg
from toolkit.reports.page.inputs import Section
from toolkit.reports.sections.analysis import analysis_figures
from toolkit.reports.sections.dataset import dataset_figures
from toolkit.reports.sections.live import live_figures
from toolkit.reports.sections.models import importance_figures
from toolkit.reports.sections.mutation import mutation_figures
from toolkit.reports.sections.network import network_figures
from toolkit.reports.sections.strategies import strategy_figures
from toolkit.reports.sections.throughput import throughput_figures
from toolkit.reports.sections.validity import FIGURE_TITLE
from toolkit.workspace import folder_name

OF_MODELS: dict[str, Callable[[Section], list[Figure]]] = {
    "throughput": throughput_figures,
    "mutation": mutation_figures,
    "validity": lambda model: importance_figures(model, FIGURE_TITLE),
}


def report_figures(summary: Mapping[str, Any]) -> dict[str, list[Figure]]:
    """Figures by section: ``dataset``, ``analysis``, ``throughput-0``, ``replay-0``, ..."""
    there = not summary["dataset"]["missing"]
    found = {
        "dataset": dataset_figures(summary["dataset"]) if there else [],
        "analysis": analysis_figures(summary["dataset"]) if there else [],
    }
    for kind, figures_of in OF_MODELS.items():
        for i, model in enumerate(summary[kind]):
            part = f"{kind}-{i}"
            found[part] = [figure.of(part) for figure in figures_of(model)]
    # A key is a file name and an id: replays with the same name get a number.
    names = [folder_name(replay["name"]) for replay in summary["simulations"]]
    for i, replay in enumerate(summary["simulations"]):
        name = names[i] if names.count(names[i]) == 1 else f"{names[i]}-{i}"
        found[f"replay-{i}"] = [figure.of(name) for figure in strategy_figures(replay)]
        found[f"network-{i}"] = [figure.of(name) for figure in network_figures(replay["network"])]
    found["live"] = live_figures(summary["live"])
    return found


def export_figures(
    summary: Mapping[str, Any], folder: Path | str, *, progress: Progress = SILENT
) -> list[Path]:
    """Write every figure as SVG and as PNG, in light colours, without a browser."""
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    figures = [figure for part in report_figures(summary).values() for figure in part]
    written = []
    with progress.step("exporting figures", total=len(figures)) as step:
        for figure in figures:
            for form in ("svg", "png"):
                path = target / f"{figure.key}.{form}"
                path.write_bytes(draw_svg(figure).encode() if form == "svg" else draw_png(figure))
                written.append(path)
            step.advance(note=figure.key)
    return written
