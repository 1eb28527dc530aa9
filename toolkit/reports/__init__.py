"""Reports: a plain summary first, then figures, then one self-contained HTML file."""

from __future__ import annotations

from pathlib import Path

from toolkit.progress import SILENT, Progress
from toolkit.reports.figures import export_figures
from toolkit.reports.follow import follow_report
from toolkit.reports.html import render_html, write_html
from toolkit.reports.page.inputs import ReportInputs, find_inputs
from toolkit.reports.summary import report_summary
from toolkit.workspace import Workspace

__all__ = [
    "ReportInputs",
    "export_figures",
    "find_inputs",
    "follow_report",
    "render_html",
    "report_summary",
    "write_html",
    "write_report",
]


def write_report(
    workspace: Workspace,
    out: Path | None = None,
    *,
    title: str = "Tuning report",
    generated: str | None = None,
    progress: Progress = SILENT,
) -> Path:
    """Report on all that lies in a workspace; returns the file (default: its ``report.html``).

    Raises ``DatasetError`` when there is nothing to report.
    """
    inputs = find_inputs(workspace.root)
    summary = report_summary(inputs, title=title, generated=generated)
    return write_html(summary, out or workspace.report, progress=progress)
