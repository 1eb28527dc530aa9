"""``toolkit predict``: scores of candidates by a trained model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from toolkit.cli.common import BarProgress, Force, Json, command, err, out, print_json
from toolkit.workspace import Workspace


def register(app: typer.Typer) -> None:
    """Add this group's commands."""
    app.command("predict")(predict)


@command
def predict(
    data: Annotated[
        Path | None,
        typer.Argument(help="Dataset, log, or MetaSchedule database (default: tuning/dataset)."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="Model folder, or its name under tuning/models (default: the latest)."),
    ] = None,
    validity: Annotated[
        str | None,
        typer.Option(help="Validity model that adds each candidate's probability of failure."),
    ] = None,
    task: Annotated[
        list[str] | None, typer.Option(help="Task id, or its beginning; repeatable.")
    ] = None,
    machine: Annotated[
        str | None, typer.Option(help="Name of the machine that the logs are of.")
    ] = None,
    to: Annotated[
        Path | None, typer.Option("--out", help="File for all rows: .parquet, .csv or .json.")
    ] = None,
    force: Force = False,
    top: Annotated[int, typer.Option(min=1, help="Rows shown of each task.")] = 5,
    json: Json = False,
) -> None:
    """Score the candidates of a dataset, log or database with a trained model.

    Example: toolkit predict database/ --model tuning/models/throughput --out scores.parquet
    """
    from toolkit.datasets.opening import opened
    from toolkit.datasets.read.rows_out import check_rows_target, write_rows
    from toolkit.training import load_throughput, load_validity
    from toolkit.training.tasks import prediction as library
    from toolkit.training.trained.loading import find_model

    folder = find_model(model, "throughput")
    loaded = load_throughput(folder)
    guard = None if validity is None else load_validity(find_model(validity, "validity"))
    with opened(data or Workspace().dataset, machine=machine, progress=BarProgress()) as dataset:
        if to is not None:
            check_rows_target(to, dataset, force=force)
        found = library.predict(
            loaded,
            dataset,
            validity=guard,
            task_ids=task or None,
            progress=BarProgress(),
        )
    if to is not None:
        write_rows(found.rows, to)
    tasks = [{**entry, "top": _top(found, entry, top)} for entry in found.tasks]
    if json:
        print_json(
            {
                "model": str(folder),
                "rows": found.rows.height,
                "out": None if to is None else str(to),
                "unreadable_tasks": found.unreadable,
                "warnings": _notes(found, library.LOW_COVERAGE),
                "tasks": tasks,
            }
        )
        return
    _show(tasks)
    for note in _notes(found, library.LOW_COVERAGE):
        err.print(note, style="yellow", highlight=False, markup=False, soft_wrap=True)
    if to is not None:
        out.print(f"{found.rows.height:,} rows: {to}", highlight=False)


def _top(found: Any, entry: dict[str, Any], top: int) -> list[dict[str, Any]]:
    import polars as pl

    own = found.rows.filter(pl.col("task_id") == entry["task_id"]).head(top)
    rows: list[dict[str, Any]] = own.drop("task_id", "trained_on", "member").to_dicts()
    return rows


def _show(tasks: list[dict[str, Any]]) -> None:
    from rich.table import Table

    table = Table(
        "task", "rank", "candidate", "predicted", "failure", "measured", box=None,
        title="relative throughput: 1 is the task's best",
    )  # fmt: skip
    for column in table.columns[3:]:
        column.justify = "right"
    for entry in tasks:
        name = f"{entry['task_id'][:8]} {entry['name'][:40]}"
        name += " (trained on)" if entry["trained_on"] else ""
        for row in entry["top"]:
            failure, latency = row.get("failure_probability"), row["latency_s"]
            table.add_row(
                name,
                str(row["rank"]),
                row["candidate_id"],
                f"{row['relative_throughput']:.3f}",
                "" if failure is None else f"{failure:.2f}",
                row["state"] if latency is None else f"{latency * 1e6:,.1f} µs",
            )
            name = ""
    out.print(table)


def _notes(found: Any, low: float) -> list[str]:
    """What a reader of the scores must know."""
    seen = [entry for entry in found.tasks if entry["trained_on"]]
    leaked = sum(entry["leaked"] for entry in seen)
    notes = []
    if seen:
        notes.append(
            f"{len(seen)} of {len(found.tasks)} tasks were trained on (or their workloads); "
            + (
                f"{leaked} of them are scored by a member that saw them"
                if leaked
                else "each is scored by a member that left it out"
            )
        )
    poor = [entry for entry in found.tasks if entry["coverage"] < low]
    if poor:
        notes.append(
            f"{len(poor)} tasks have columns for less than {low:.0%} of what the model goes by: "
            "their scores are hardly more than a guess"
        )
    if found.unreadable:
        notes.append(f"{len(found.unreadable)} tasks cannot be read by the model's extractor")
    return [*notes, *found.warnings]
