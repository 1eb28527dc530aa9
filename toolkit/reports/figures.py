"""All figures of a report, in the order of its sections."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

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
    for i, replay in enumerate(summary["simulations"]):
        name = replay["name"]
        found[f"replay-{i}"] = [figure.of(name) for figure in strategy_figures(replay)]
        found[f"network-{i}"] = [figure.of(name) for figure in network_figures(replay["network"])]
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
                content = draw_svg(figure).encode() if form == "svg" else draw_png(figure)
                path.write_bytes(content)
                written.append(path)
            step.advance(note=figure.key)
    return written
