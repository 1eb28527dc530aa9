"""``toolkit predict``: scores of candidates by a trained model."""

from __future__ import annotations

from collections.abc import Mapping
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Option

from toolkit.cli.common import BarProgress, Force, Json, Rows, Tasks, answer, folder_at
from toolkit.cli.tables import note, print_table, say
from toolkit.workspace import Workspace


def predict(
    data: Annotated[
        Path | None,
        typer.Argument(
            parser=folder_at,
            help="Dataset or its URL, log, or MetaSchedule database (default: tuning/dataset).",
        ),
    ] = None,
    model: Annotated[
        str | None,
        Option(help="Model folder or URL, or a name under tuning/models (default: the latest)."),
    ] = None,
    validity: Annotated[
        str | None, Option(help="Validity model that adds each candidate's probability of failure.")
    ] = None,
    task: Tasks = None,
    machine: Annotated[str | None, Option(help="Name of the machine that was measured.")] = None,
    to: Rows = None,
    force: Force = False,
    top: Annotated[int, Option(min=1, help="Rows to show per task.")] = 5,
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
            loaded, dataset, validity=guard, task_ids=task or None, progress=BarProgress()
        )
    if to is not None:
        write_rows(found.rows, to)
    rows = found.rows.drop("trained_on", "member")
    tasks = [
        {**entry, "top": rows.filter(task_id=entry["task_id"]).head(top).drop("task_id").to_dicts()}
        for entry in found.tasks
    ]
    result = {
        "model": str(folder),
        "rows": found.rows.height,
        "out": None if to is None else str(to),
        "unreadable_tasks": found.unreadable,
        "warnings": _notes(found, library.LOW_COVERAGE),
        "tasks": tasks,
    }
    answer(result, json, _show)


def _show(result: Mapping[str, Any]) -> None:
    def name(row: Mapping[str, Any]) -> str:
        seen = " (trained on)" if row["trained_on"] else ""
        return f"{row['task_id'][:8]} {row['name'][:40]}{seen}" if row["rank"] == 1 else ""

    def measured(row: Mapping[str, Any]) -> str:
        latency = row["latency_s"]
        return str(row["state"]) if latency is None else f"{latency * 1e6:,.1f} µs"

    print_table(
        {
            "task": name,
            "rank": itemgetter("rank"),
            "candidate": itemgetter("candidate_id"),
            ">predicted": lambda row: f"{row['relative_throughput']:.3f}",
            ">failure": lambda row: (
                ""
                if row.get("failure_probability") is None
                else f"{row['failure_probability']:.2f}"
            ),
            ">measured": measured,
        },
        [{**entry, **row} for entry in result["tasks"] for row in entry["top"]],
        box=None,
        title="relative throughput: 1 is the task's best",
    )
    for warning in result["warnings"]:
        note(warning, "yellow")
    if result["out"] is not None:
        say(f"{result['rows']:,} rows: {result['out']}")


def _notes(found: Any, low: float) -> list[str]:
    """Return the warnings that a reader of the scores needs."""
    seen = [entry for entry in found.tasks if entry["trained_on"]]
    leaked = sum(entry["leaked"] for entry in seen)
    poor = [entry for entry in found.tasks if entry["coverage"] < low]
    notes = []
    if seen:
        how = "each is scored by a member that was not trained on it"
        if leaked:
            how = f"{leaked} of them are scored by a member that was trained on them"
        notes.append(
            f"the model was trained on {len(seen)} of {len(found.tasks)} tasks, or on their "
            f"workloads; {how}"
        )
    if poor:
        notes.append(
            f"{len(poor)} tasks have columns for less than {low:.0%} of the model's feature "
            "importance: their scores are hardly more than a guess"
        )
    strange = [entry for entry in found.tasks if entry["relatives"] == 0]
    if strange:
        families = ", ".join(sorted({entry["family"] for entry in strange}))
        notes.append(
            f"{len(strange)} of {len(found.tasks)} tasks are of a family without a training task "
            f"({families}): measure as many of their candidates as without a model"
        )
    if found.unreadable:
        notes.append(f"the model's feature extractor cannot read {len(found.unreadable)} tasks")
    return [*notes, *found.warnings]
