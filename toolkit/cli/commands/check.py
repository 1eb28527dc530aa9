"""``toolkit check``."""

from __future__ import annotations

import typer

from toolkit.cli.common import EXIT_ERROR, DatasetDir, Json, command, err, out, print_json
from toolkit.workspace import Workspace


def register(app: typer.Typer) -> None:
    """Add this group's commands."""
    app.command("check")(check)


@command
def check(dataset: DatasetDir = None, json: Json = False) -> None:
    """Compare every file of the dataset with the checksum that was kept when it was written.

    Exit code 1 says that a file is damaged or missing.

    Example: toolkit check
    """
    from toolkit.datasets.read.integrity import check as run

    report = run(dataset or Workspace().dataset)
    if json:
        print_json(report)
    else:
        size = report["size_bytes"] / 2**20
        out.print(f"{report['files']:,} files of {size:,.1f} MiB compared", highlight=False)
        for entry in report["damaged"]:
            err.print(f"{entry['file']}: {entry['why']}", highlight=False, markup=False)
        if not report["damaged"]:
            out.print(f"all {report['records']:,} records are as they were written")
    if report["damaged"]:
        raise typer.Exit(EXIT_ERROR)
