"""``toolkit report``."""

from __future__ import annotations

from contextlib import closing
from datetime import datetime, timezone
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any

from typer import Option

from toolkit.cli import common
from toolkit.cli.tables import print_table, say
from toolkit.errors import DatasetError
from toolkit.show import number, seconds
from toolkit.workspace import Workspace

OTHERS = ("throughput", "mutation", "validity", "simulations", "searches")
"""Parts of a report, apart from a dataset and live verdicts."""

SHOWN = 12
"""Rows of each group of a comparison that the terminal shows."""


def report(
    out_file: Annotated[
        Path | None, common.OutOption(help="HTML file (default: tuning/report.html).")
    ] = None,
    workspace: Annotated[Path, Option(help="Folder to search for the inputs below.")] = Path(
        "tuning"
    ),
    dataset: common.DatasetDir = None,
    model: Annotated[
        list[Path] | None,
        common.FolderOption(
            help="Folder or URL of a trained model; repeatable (default: tuning/models/*)."
        ),
    ] = None,
    simulation: Annotated[
        list[Path] | None,
        Option(help="Results of a replay; repeatable (default: tuning/simulations/*)."),
    ] = None,
    validation: Annotated[
        Path | None, Option(help="Live verdicts (default: tuning/validation).")
    ] = None,
    compare: Annotated[
        Path | None, Option(help="Another workspace, to show beside this one.")
    ] = None,
    figures: Annotated[
        Path | None, Option(help="Also write every figure into this folder, as SVG and PNG.")
    ] = None,
    title: Annotated[str, Option(help="Name of the report.")] = "Tuning report",
    peak: common.Peak = None,
    follow: Annotated[
        bool, Option("--follow", help="Rewrite the report on changes, until interrupted.")
    ] = False,
    interval: common.Interval = 2.0,
    json: common.Json = False,
) -> None:
    """Put all results into one HTML file that works offline.

    The report names what is still missing, with the command that makes it. --json prints the
    summary behind the report.

    --compare shows another workspace beside this one: what both measured, trained, replayed and
    confirmed.

    --follow shows a search while it runs: the page reloads itself in the browser.

    Example: toolkit report --out report.html --figures figures/
    """
    from toolkit import reports

    progress = common.BarProgress()
    target = out_file or Workspace(workspace).report
    limits = common.peaks(peak)

    def summed() -> dict[str, Any]:
        inputs = reports.find_inputs(
            workspace, dataset=dataset, models=model, simulations=simulation, validation=validation
        )
        today = datetime.now(timezone.utc).date().isoformat()
        other = None if compare is None else (str(compare), reports.find_inputs(compare))
        found = reports.report_summary(
            inputs, title=title, generated=today, peaks=limits, compare=other
        )
        others = any(found[part] for part in OTHERS) or "live" not in found["missing"]
        if not found["dataset"].get("records") and not others:
            raise DatasetError(
                "no line was a record: there is nothing to report",
                where=inputs.dataset,
                cure=common.SEE_WHY,
            )
        return found

    def tell(summary: dict[str, Any], written: Path) -> None:
        exported = reports.export_figures(summary, figures, progress=progress) if figures else []
        if json:
            names = [str(path) for path in exported]
            common.print_json({**summary, "out": str(written), "figures": names}, indent=not follow)
        else:
            _show(summary, written)

    if not follow:
        summary = summed()
        tell(summary, reports.write_html(summary, target, progress=progress))
        return
    last: dict[str, Any] = {}

    def drawn() -> str:
        last.update(summed())
        return reports.render_html(last)

    named = [workspace, dataset, validation, compare, *(model or ()), *(simulation or ())]
    # Folders on an object store are read again with the rest, but not watched.
    places = [place for place in named if isinstance(place, Path)]
    apart = [figures] if figures else []
    pages = reports.follow_report(
        drawn, target, places, apart=apart, interval_s=interval, progress=progress
    )
    with closing(pages):
        for written in pages:
            tell(last, written)


def _show(summary: dict[str, Any], written: Path) -> None:
    say(summary["headline"]["title"])
    if summary["comparison"]:
        _show_comparison(summary["comparison"])
    for section, made_by in summary["missing"].items():
        say(f"no {section} yet: {made_by}", "dim")
    say(f"open {written}", "bold")


def _show_comparison(found: dict[str, Any]) -> None:
    """Print the groups as tables, at most ``SHOWN`` rows each."""
    say(f"compared with {found['other']}:")
    for group in found["groups"]:
        shown = seconds if group["unit"] == "seconds" else number
        rows = [
            (row["what"], shown(row["here"]), shown(row["there"]), number(row["ratio"]))
            for row in group["rows"][:SHOWN]
        ]
        titles = ("what", ">here", ">there", ">here over there")
        columns = {title: itemgetter(at) for at, title in enumerate(titles)}
        print_table(columns, rows, elastic=0, title=group["title"])
        if len(group["rows"]) > SHOWN:
            say(f"and {len(group['rows']) - SHOWN} more in the report", "dim")
