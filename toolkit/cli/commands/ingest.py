"""``toolkit ingest``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolkit.cli.commands import check, describe, export
from toolkit.cli.common import (
    PROCESSES_MAX,
    BarProgress,
    DatasetDir,
    Json,
    command,
    err,
    out,
    print_json,
)
from toolkit.errors import LogError
from toolkit.show import plural
from toolkit.workspace import Workspace

if TYPE_CHECKING:
    from toolkit.datasets import IngestReport

TASKS_FOLLOWED = 5


def register(app: typer.Typer) -> None:
    """Add this group's commands."""
    app.command("ingest")(ingest)
    describe.register(app)
    check.register(app)
    export.register(app)


@command
def ingest(
    logs: Annotated[list[Path], typer.Argument(help="Log files, or folders that hold them.")],
    dataset: DatasetDir = None,
    machine: Annotated[
        str | None, typer.Option(help="Name of the machine that was measured.")
    ] = None,
    path_rule: Annotated[
        str | None,
        typer.Option(help="Regular expression on paths; named groups become labels."),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            min=0, max=PROCESSES_MAX, help="Reading processes (default: by size and cores)."
        ),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Keep reading what is added, until interrupted.")
    ] = False,
    interval: Annotated[
        float, typer.Option(min=0.1, help="Seconds between two looks, with --follow.")
    ] = 2.0,
    json: Json = False,
) -> None:
    """Read tuning logs into the dataset.

    AutoTVM, Ansor, MetaSchedule, T4 and Kernel Tuner logs are recognised by their content; .gz,
    .zst, .xz, .zip and .tar are read as they are, folders are walked. Ingesting again adds only
    what is new.

    Example: toolkit ingest logs/ --machine "Ryzen 3700X"
    """
    from toolkit.datasets import ingest as run

    folder = dataset or Workspace().dataset
    if follow:
        _follow(logs, folder, machine, path_rule, interval, json)
        return
    report = run(
        logs,
        folder,
        machine=machine,
        path_rule=path_rule,
        workers=workers,
        progress=BarProgress(),
    )
    if json:
        print_json(report)
    else:
        _show_ingest(report)
    if report.lines and not report.total_records:
        raise LogError(
            f"none of {plural(report.lines, 'line')} is a record",
            cure='say why: toolkit query "SELECT reason, count(*) FROM rejected GROUP BY reason"',
        )


def _show_ingest(report: IngestReport) -> None:
    from rich.table import Table

    table = Table("format", "files", "lines", "records", "duplicates", "rejected", box=None)
    for column in table.columns[1:]:
        column.justify = "right"
    read = [source for source in report.per_source if source.outcome != "skipped"]
    for name in sorted({source.format for source in read}):
        group = [source for source in read if source.format == name]
        numbers = [
            sum(getattr(source, key) for source in group)
            for key in ("lines", "records", "duplicates", "rejected")
        ]
        table.add_row(name, f"{len(group):,}", *(f"{number:,}" for number in numbers))
    out.print(table)
    if report.unchanged:
        out.print(f"{report.unchanged:,} files were ingested before and have not changed")
    for reason, count in report.reasons.items():
        out.print(f"rejected {count:,}: {reason}", highlight=False, markup=False, soft_wrap=True)
    for source in report.per_source:
        if source.outcome == "damaged":
            _warn(f"{source.path}: {source.message}; what stands before it was kept")
    skipped = report.skipped
    for file in skipped[:5]:
        _warn(f"not read: {file.path}: {file.reason}")
    if len(skipped) > 5:
        _warn(f"not read: {len(skipped) - 5:,} more files (--json lists them)")
    out.print(
        f"{report.records:,} records added in {report.seconds:.1f} s; the dataset "
        f"{report.dataset} holds {report.total_records:,} records of {report.total_tasks:,} tasks"
    )
    if report.machines_unknown:
        out.print(
            f"the machine of {report.machines_unknown:,} tasks is unknown: "
            "name it with --machine or --path-rule"
        )
    if report.total_records:
        out.print("next: toolkit describe", style="bold")


def _follow(
    logs: list[Path],
    folder: Path,
    machine: str | None,
    path_rule: str | None,
    interval: float,
    json: bool,
) -> None:
    """Print what each look added and the best so far; with --json one object a line."""
    from toolkit.datasets import follow, open_dataset
    from toolkit.datasets.describe import best_so_far

    for report in follow(logs, folder, machine=machine, path_rule=path_rule, interval_s=interval):
        best = best_so_far(open_dataset(folder))
        if json:
            print_json({**report, "best": best}, indent=False)
            continue
        out.print(
            f"{report.records:,} new records, {report.duplicates:,} duplicates, "
            f"{report.rejected:,} rejected; {report.total_records:,} in all"
        )
        for task in best[:TASKS_FOLLOWED]:
            latency = task["best_latency_s"]
            value = "none" if latency is None else f"{latency * 1e6:,.1f} µs"
            out.print(
                f"  {task['task_id'][:8]} {task['name'][:50]}: best {value} "
                f"after {task['records']:,} records",
                highlight=False,
                markup=False,
            )


def _warn(text: str) -> None:
    err.print(text, style="yellow", highlight=False, markup=False, soft_wrap=True)
