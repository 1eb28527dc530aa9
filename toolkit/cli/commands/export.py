"""``toolkit export`` and ``toolkit query``: write data of a dataset."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import orjson
import typer
from typer import Option

from toolkit import show
from toolkit.cli import common
from toolkit.cli.tables import out, print_table, say

ROWS_SHOWN = 50
ROWS_DOWN = 10
"""Rows that are shown with one value per line."""
LEAST = 12
"""Characters of the terminal per column below which rows are shown with one value per line."""
CELL = 80
"""Characters of a value that a table shows."""
FILES_SHOWN = 10


def export(
    to: Annotated[Path, typer.Argument(help="File to write; a folder for databases and T4.")],
    format: Annotated[
        str | None,
        Option(
            help="autotvm, ansor, metaschedule, t4 or kernel-tuner (default: the records' own)."
        ),
    ] = None,
    dataset: common.DatasetDir = None,
    task: common.Tasks = None,
    best: Annotated[bool, Option("--best", help="Only the best record of a task.")] = False,
    top: Annotated[int | None, Option(min=1, help="Only the N best candidates of a task.")] = None,
    where: Annotated[str | None, Option(help="SQL condition on the columns of records.")] = None,
    machine: common.Machines = None,
    target: Annotated[
        list[str] | None,
        Option(help="Only records for this target (as written) or target kind; repeatable."),
    ] = None,
    mixed: Annotated[
        bool, Option("--mixed", help="Write records of several machines or targets into one log.")
    ] = False,
    force: common.Force = False,
    json: common.Json = False,
) -> None:
    """Write records as logs that TVM or Kernel Tuner read.

    The formats are AutoTVM 0.2 (for ApplyHistoryBest), Ansor v0.6, a MetaSchedule database, T4,
    and a Kernel Tuner cache for its simulation mode.

    Example: toolkit export best.json --format ansor --best
    """
    from toolkit.datasets import export as run

    report = run(
        common.opened_dataset(dataset),
        to,
        format,
        task_ids=task or None,
        top=1 if best else top,
        where=where,
        machines=machine,
        targets=target,
        mixed=mixed,
        force=force,
    )
    common.answer(report, json, _show_export)


def _show_export(report: Any) -> None:
    count, files = report["records"], report["files"]
    out.print(f"{count:,} records of {report['tasks']:,} tasks written as {report['format']}")
    if report["left_out"]:
        why = "of other formats"
        if report["format"] == "kernel-tuner":  # It can hold all formats, but no repeats.
            why = "that repeat a candidate"
        out.print(f"{report['left_out']:,} selected records {why} were left out")
    for path in files[:FILES_SHOWN]:
        out.print(f"  {path}", highlight=False, soft_wrap=True)
    if len(files) > FILES_SHOWN:
        out.print(f"  and {len(files) - FILES_SHOWN:,} more files")


def query(
    sql: Annotated[str, typer.Argument(help="One SELECT statement.")],
    dataset: common.DatasetDir = None,
    to: common.Rows = None,
    full: Annotated[
        bool, Option("--full", help="Print each value in full, on its own line.")
    ] = False,
    force: common.Force = False,
    json: common.Json = False,
) -> None:
    """Run SQL on the dataset.

    The tables are records, candidates, tasks, sketches, sources, labels and rejected. Their
    columns are described in docs/reference/schema.md.

    Example: toolkit query "SELECT state, COUNT(*) AS n FROM records GROUP BY state"
    """
    from toolkit.datasets import query as run
    from toolkit.datasets.read.rows_out import check_rows_target, with_text, write_rows

    opened = common.opened_dataset(dataset)
    if to is not None:
        check_rows_target(to, opened, force=force)
    frame = run(opened, sql)
    if to is not None:
        write_rows(frame, to)
    if json:
        rows = with_text(frame).to_dicts() if to is None else []
        written = None if to is None else str(to)
        found = {"columns": frame.columns, "rows": rows, "count": frame.height, "out": written}
        common.print_json(found)
    elif to is not None:
        say(f"{frame.height:,} rows written to {to}")
    elif full:
        _print_full(frame)
    elif len(frame.columns) * LEAST > out.width:
        # A table with so many columns would show none of them.
        _print_full(frame.head(ROWS_DOWN), out.width)
        if frame.height > ROWS_DOWN:
            say(f"and {frame.height - ROWS_DOWN:,} more rows (--out or --json gives all)")
        say("one value per line, cut to the terminal (--full prints whole values)")
    else:
        cells = {
            name: lambda row, n=n: "" if row[n] is None else _cut(str(row[n]), CELL)
            for n, name in enumerate(frame.columns)
        }
        print_table(cells, frame.head(ROWS_SHOWN).iter_rows(), box=None)
        if frame.height > ROWS_SHOWN:
            out.print(f"and {frame.height - ROWS_SHOWN:,} more rows (--out or --json gives all)")


def _cut(text: str, width: int) -> str:
    """Shorten a value; of a path the end is kept."""
    is_path = "/" in text and " " not in text
    return show.cut_front(text, width) if is_path else show.cut(text, width)


def _print_full(frame: Any, most: int | None = None) -> None:
    """Print rows with one value per line and an empty line between rows; lists, structs as JSON.

    Lines are cut to ``most`` characters, if given.
    """
    width = max((len(name) for name in frame.columns), default=0)
    for number, row in enumerate(frame.iter_rows(named=True)):
        if number:
            say("")
        for name, value in row.items():
            nested = isinstance(value, (list, dict))
            text = orjson.dumps(value, default=str).decode() if nested else str(value)
            text = text if most is None else _cut(text, max(most - width - 2, 8))
            out.print(f"{name:{width}}  {text}", highlight=False, soft_wrap=True)
