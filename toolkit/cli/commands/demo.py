"""``toolkit demo``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from typer import Option

from toolkit import show
from toolkit.cli.commands.simulate import efforts
from toolkit.cli.common import BarProgress, Json, Seed, answer
from toolkit.cli.tables import bracketed, note, out, print_table, say


def demo(
    folder: Annotated[Path, Option("--out", help="Workspace to create.")] = Path("toolkit-demo"),
    live: Annotated[bool, Option(help="Also measure on this machine (about two minutes).")] = True,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Run the whole workflow on the bundled logs: ingest, train, simulate, confirm live, report.

    Example: toolkit demo --out toolkit-demo
    """
    from toolkit.cli.demo import run_demo

    answer(run_demo(folder, live=live, seed=seed, progress=BarProgress()), json, _show)


def _show(result: Mapping[str, Any]) -> None:
    ranking = sorted(result["ranking"], key=lambda one: one["rank"])
    print_table(
        efforts(),
        [{**result["strategies"][one["strategy"]], "strategy": one["strategy"]} for one in ranking],
        title=f"{result['records']:,} records of {result['tasks']} tasks; to within 1 % of the "
        "best recorded, on tasks that no model saw",
        caption="median [95 % interval]",
    )
    for verdict in result["verdicts"]:
        say(_told(verdict))
    if result["live_error"]:
        note(f"live phase left out: {result['live_error']}")
    out.print(f"report: {result['report']} ({result['seconds']['all']:.0f} s in all)")
    say("next, on your own logs:")
    for line in result["next"]:
        say(f"  {line}")


def _told(verdict: Mapping[str, Any]) -> str:
    """Return one live verdict as a sentence."""
    word = verdict["verdict"]
    text = (
        f"live, {verdict['name']}: {word} {'against' if word == 'undecided' else 'than'} "
        f"{verdict['incumbent']} {show.seconds(verdict['incumbent_latency_s'])}"
    )
    if verdict["ratio"] is None:
        return text
    if verdict["interval"] is None:
        return f"{text}; too few blocks"
    ratio = bracketed(verdict["ratio"], verdict["interval"])
    return f"{text}; {show.seconds(verdict['winner_latency_s'])}, ratio {ratio}"
