"""The report as one HTML file that needs nothing else: no network, no other file."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from toolkit import show
from toolkit.atomic import sweep, write_atomically
from toolkit.progress import SILENT, Progress
from toolkit.reports.figures import report_figures
from toolkit.reports.page.charts import NARROW, WIDE
from toolkit.reports.page.drawing import inline_svg, sparkline
from toolkit.reports.page.theme import FONT, css_variables
from toolkit.reports.sections.strategies import TURNED, strategy_styles
from toolkit.reports.sections.throughput import METRICS
from toolkit.reports.sections.validity import METRICS as VALIDITY_METRICS

TEMPLATES = ("page", "sections")
"""Folders of templates: each template is next to the module of its rows and figures."""

TASKS_LISTED = 200
SHORT_NAME = 46


def render_html(summary: Mapping[str, Any], *, progress: Progress = SILENT) -> str:
    """Draw all figures and write the page; equal summaries give equal bytes."""
    figures = report_figures(summary)
    drawn: dict[str, list[dict[str, Any]]] = {section: [] for section in figures}
    with progress.step("drawing figures", total=sum(map(len, figures.values()))) as step:
        for section, found in figures.items():
            for figure in found:
                drawings = [Markup(inline_svg(figure, layout)) for layout in (WIDE, NARROW)]
                drawn[section].append({"figure": figure, "drawings": drawings})
                step.advance(note=figure.key)
    template = _environment().get_template("report.html.j2")
    return template.render(
        **summary,
        figures=drawn,
        styles=[strategy_styles(simulation) for simulation in summary["simulations"]],
        metric_meanings=METRICS,
        validity_meanings=VALIDITY_METRICS,
        tasks_listed=TASKS_LISTED,
        light_variables=Markup(css_variables(dark=False)),
        dark_variables=Markup(css_variables(dark=True)),
        font=Markup(FONT),
    )


def write_html(summary: Mapping[str, Any], out: Path | str, *, progress: Progress = SILENT) -> Path:
    """Draw the page and write it to a file, completely or not at all."""
    return write_page(render_html(summary, progress=progress), out)


def write_page(page: str, out: Path | str) -> Path:
    """Write a drawn page; a browser sees the old page or the new one, never half a page."""
    target = Path(out)
    target.parent.mkdir(parents=True, exist_ok=True)
    sweep(target.parent)
    write_atomically(target, page.encode(errors="backslashreplace"))
    return target


def _environment() -> Environment:
    environment = Environment(
        loader=ChoiceLoader([PackageLoader("toolkit.reports", room) for room in TEMPLATES]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        counted="{:,}".format,
        number=show.number,
        seconds=show.seconds,
        percent=show.percent,
        gain=show.gain,
        ratio=show.ratio,
        interval=show.interval,
        bounds=show.bounds,
        or_empty=lambda value: "" if value is None else value,
        short_task=lambda name: show.task_label(name, SHORT_NAME),
        sparkline=lambda logs: Markup(sparkline(logs)),
    )
    environment.globals.update(heat=_heat, pair=_pair, plural=show.plural)
    return environment


def _heat(value: float | None, row: list[float | None]) -> float:
    """Shade of a cell: 1 for the row's least effort, 0 for ten times it or more."""
    known = [other for other in row if other]
    if not value or not known:
        return 0.0
    return round(max(0.0, 1.0 - math.log10(value / min(known))), 3)


def _pair(pairs: list[dict[str, Any]], first: str, second: str) -> dict[str, Any] | None:
    """Return the comparison of two strategies as seen from the first."""
    for pair in pairs:
        if (pair["first"], pair["second"]) == (first, second):
            return pair
        if (pair["first"], pair["second"]) == (second, first):
            low, high = pair["difference_interval"]
            return {
                **pair,
                "difference": -pair["difference"],
                "difference_interval": [None if end is None else -end for end in (high, low)],
                "verdict": TURNED.get(pair["verdict"], pair["verdict"]),
            }
    return None
