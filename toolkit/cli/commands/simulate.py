"""``toolkit simulate``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

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
from toolkit.workspace import Workspace

EXAMPLE = """Replay search strategies against recorded measurements.

[dim]Example:[/] toolkit simulate --scenario enumerated --model tuning/models/throughput --seeds 25
"""
CAPTION = "median over all runs [95 % interval]; - : not reached, [-] : unknown"


def default_models(workspace: Workspace) -> list[Path]:
    """Models that 'toolkit train' left, of either kind."""
    folders = [workspace.model(kind) for kind in ("throughput", "mutation")]
    return [folder for folder in folders if (folder / "manifest.json").is_file()]


def register(app: typer.Typer) -> None:
    """Add this group's commands."""
    app.command(help=EXAMPLE)(simulate)


@command
def simulate(
    dataset: DatasetDir = None,
    scenario: Annotated[
        str, typer.Option(help="Name of a bundled scenario, or a TOML file.")
    ] = "quick",
    model: Annotated[
        list[Path] | None,
        typer.Option(help="Folder of a trained model (default: those in tuning/models)."),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, max=10_000, help="Seeds, in place of the scenario's.")
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(min=1, max=PROCESSES_MAX, help="Processes (default: one a core)."),
    ] = None,
    forecast: Annotated[
        int,
        typer.Option(
            min=0,
            max=100_000,
            metavar="DRAWS",
            help="Also forecast what a run on the device will show, in so many draws of what the "
            "readings leave open (0: none; 200 are a good number).",
        ),
    ] = 0,
    out_dir: Annotated[
        Path | None,
        typer.Option("--out", help="Results (default: tuning/simulations/SCENARIO)."),
    ] = None,
    json: Json = False,
) -> None:
    """Replay search strategies against recorded measurements."""
    from toolkit.replay import load_scenario
    from toolkit.replay import simulate as replay

    workspace = Workspace()
    chosen = load_scenario(scenario)
    folder = out_dir or workspace.simulation(chosen.name)
    summary = replay(
        dataset or workspace.dataset,
        chosen,
        models=default_models(workspace) if model is None else model,
        seeds=seeds,
        workers=workers or os.cpu_count() or 1,
        out=folder,
        forecast_draws=forecast,
        progress=BarProgress(),
    )
    if json:
        print_json({**summary, "out": str(folder)})
        return
    print_table(summary)
    err.print(f"written to {folder}", highlight=False)


def print_table(summary: Mapping[str, Any]) -> None:
    """Draw one row a strategy: evaluations and seconds to within 1 %, share reached, coverage."""
    from rich.table import Table

    tasks, seeds = len(summary["tasks"]), summary["seeds"]
    enumerated = sum(task["enumerated"] for task in summary["tasks"].values())
    table = Table(
        title=f"{tasks} tasks ({enumerated} enumerated), {seeds} seeds: to within 1 % of the "
        f"best recorded",
        caption=CAPTION,
    )
    for name in ("strategy", "evaluations", "seconds", "reached", "coverage", "rank"):
        table.add_column(name, justify="left" if name == "strategy" else "right")
    ranks = {row["strategy"]: row["rank"] for row in summary["comparisons"]["ranking"]}
    for label in sorted(summary["strategies"], key=lambda one: ranks[one]):
        row = summary["strategies"][label]
        table.add_row(
            label,
            interval_text(row, "median_evaluations_to_1pct"),
            interval_text(row, "median_seconds_to_1pct"),
            f"{row['reached_share']:.0%}",
            f"{row['coverage']:.0%}",
            str(ranks[label]),
        )
    out.print(table)
    if "network" in summary:
        print_networks(summary["network"])
    if "forecast" in summary:
        print_forecast(summary["forecast"])
    for missing in summary["left_out"]:
        err.print(f"left out: {missing['strategy']} ({missing['reason']})", highlight=False)


def print_networks(network: dict[str, Any]) -> None:
    """Draw one row a scheduler: what a network's weighted sum of latencies took to come near."""
    from rich.table import Table

    count = len(network["networks"])
    table = Table(
        title=f"{count} network{'s' if count > 1 else ''}: the weighted sum of latencies to within "
        "5 % of the best recorded",
        caption=CAPTION,
    )
    for name in ("scheduler", "evaluations", "seconds", "reached"):
        table.add_column(name, justify="left" if name == "scheduler" else "right")
    for label, row in network["schedulers"].items():
        table.add_row(
            label,
            interval_text(row, "median_evaluations_to_5pct"),
            interval_text(row, "median_seconds_to_5pct"),
            f"{row['reached_share_5pct']:.0%}",
        )
    out.print(table)


def print_forecast(forecast: dict[str, Any]) -> None:
    """Draw one row a strategy: what one run on the device will show, with its interval."""
    from rich.table import Table

    tasks = len(forecast["tasks"])
    table = Table(
        title=f"forecast of one run on the device, mean of {tasks} task{'s' if tasks > 1 else ''}: "
        f"{forecast['nominal']:.0%} intervals of {forecast['draws']} draws",
        caption="best recorded latency over the best seen; best there is over what would be chosen",
    )
    for name in ("strategy", "seen, mean over the run", "seen at its end", "what it is worth"):
        table.add_column(name, justify="left" if name == "strategy" else "right")
    rows = forecast["strategies"]
    for label in sorted(rows, key=lambda one: -rows[one]["auc"]):
        row = rows[label]
        table.add_row(label, *(_share_text(row, name) for name in ("auc", "final", "chosen")))
    out.print(table)
    if forecast["left_out"]:
        count = len(forecast["left_out"])
        err.print(
            f"not forecast: {count} task{'s' if count > 1 else ''} whose noise is not known "
            "(one reading a program)",
            highlight=False,
        )


def _share_text(row: dict[str, Any], name: str) -> str:
    low, high = row[f"{name}_interval"]
    return f"{row[name]:.2f} [{low:.2f}, {high:.2f}]"


def interval_text(row: dict[str, Any], key: str) -> str:
    """A figure and its interval, as in ``13 [4, 23]``.

    ``-`` where it was not reached, ``[-]`` where nothing is known of the interval (a single run).
    """

    def show(value: float | None) -> str:
        return "-" if value is None else f"{value:.3g}" if value < 100 else f"{value:.0f}"

    low, high = row[f"{key}_interval"]
    if low is None and high is None:
        return f"{show(row[key])} [-]"
    return f"{show(row[key])} [{show(low)}, {show(high)}]"
