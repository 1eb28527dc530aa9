"""``toolkit demo``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from toolkit.cli.common import BarProgress, Json, Seed, command, err, out, print_json


def register(app: typer.Typer) -> None:
    """Add this group's commands."""
    app.command()(demo)


@command
def demo(
    folder: Annotated[Path, typer.Option("--out", help="Workspace that is made for it.")] = Path(
        "toolkit-demo"
    ),
    live: Annotated[
        bool, typer.Option(help="Measure on this machine as well (about two minutes).")
    ] = True,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Run the whole circle on the bundled logs: ingest, train, simulate, confirm live, report.

    Example: toolkit demo --out toolkit-demo
    """
    from toolkit.demo import run_demo

    result = run_demo(folder, live=live, seed=seed, progress=BarProgress())
    if json:
        print_json(result)
        return
    _print(result)


def _print(result: dict[str, Any]) -> None:
    from toolkit.cli.commands.simulate import interval_text

    table = Table(
        title=f"{result['records']:,} records of {result['tasks']} tasks; to within 1 % of the "
        "best recorded, on tasks that no model saw",
        caption="median [95 % interval]",
    )
    table.add_column("strategy")
    for name in ("evaluations", "seconds", "reached"):
        table.add_column(name, justify="right")
    for row in sorted(result["ranking"], key=lambda one: one["rank"]):
        figures = result["strategies"][row["strategy"]]
        table.add_row(
            row["strategy"],
            interval_text(figures, "median_evaluations_to_1pct"),
            interval_text(figures, "median_seconds_to_1pct"),
            f"{figures['reached_share']:.0%}",
        )
    out.print(table)
    for verdict in result["verdicts"]:
        out.print(verdict_line(verdict), highlight=False)
    if result["live_error"]:
        err.print(f"live phase left out: {result['live_error']}", highlight=False)
    out.print(f"report: {result['report']} ({result['seconds']['all']:.0f} s in all)")
    out.print("next, on your own logs:", highlight=False)
    for line in result["next"]:
        out.print(f"  {line}", highlight=False)


def verdict_line(verdict: dict[str, Any]) -> str:
    """One live verdict as a sentence."""
    before = f"{verdict['incumbent']} {verdict['incumbent_latency_s'] * 1e6:.1f} us"
    text = f"live, {verdict['name']}: {verdict['verdict']} than {before}"
    if verdict["verdict"] == "undecided":
        text = f"live, {verdict['name']}: undecided against {before}"
    if verdict["ratio"] is None:
        return text
    if verdict["interval"] is None:
        return f"{text}; too few blocks"
    text += f"; {verdict['winner_latency_s'] * 1e6:.1f} us, ratio {verdict['ratio']:.3f}"
    low, high = verdict["interval"]
    return f"{text} [{low:.3f}, {high:.3f}]"
