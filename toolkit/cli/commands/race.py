"""``toolkit race``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from toolkit.cli.commands.live import Cores, Target, parse_cores
from toolkit.cli.commands.tune import Builders, DropAbove, Models, Threads, Workloads
from toolkit.cli.common import (
    EXIT_UNDECIDED,
    BarProgress,
    Json,
    command,
    out,
    print_json,
    print_warnings,
)
from toolkit.workspace import Workspace


def register(app: typer.Typer) -> None:
    """Add this group's commands."""
    app.command()(race)


@command
def race(
    workload: Workloads = None,
    target: Target = None,
    trials: Annotated[int, typer.Option(min=1, max=1_000_000, help="Trials of every leg.")] = 256,
    seeds: Annotated[int, typer.Option(min=1, max=1000, help="Legs of each arm on each task.")] = 3,
    strategy: Annotated[
        list[str] | None,
        typer.Option(help="Our arm; repeatable (default: what the models allow)."),
    ] = None,
    ablation: Annotated[
        bool,
        typer.Option(
            "--ablation",
            help="Race random, evolutionary (the engine alone), etc-sketch, "
            "mutation-guided and model-ranked (the warm model alone) as well.",
        ),
    ] = False,
    model: Models = None,
    threads: Threads = None,
    cores: Cores = None,
    number: Annotated[
        int, typer.Option(min=1, max=10_000, help="As in TVM's EvaluatorConfig.")
    ] = 3,
    repeat: Annotated[
        int, typer.Option(min=1, max=10_000, help="As in TVM's EvaluatorConfig.")
    ] = 1,
    min_repeat_ms: Annotated[
        int, typer.Option(min=0, max=5000, help="As in TVM's EvaluatorConfig.")
    ] = 100,
    drop_above: DropAbove = 1.3,
    builders: Builders = None,
    blocks: Annotated[
        int, typer.Option(min=0, max=10_000, help="Fresh readings of each final program; 0: none.")
    ] = 9,
    stock_build_timeout: Annotated[
        float | None, typer.Option(min=1.0, help="Seconds of TVM's own builder (default: its 30).")
    ] = None,
    machine: Annotated[
        str | None, typer.Option(help="Name of this machine in the logs (default: its CPU).")
    ] = None,
    folder: Annotated[
        Path | None, typer.Option("--out", help="Folder (default: tuning/race).")
    ] = None,
    json: Json = False,
) -> None:
    """Race stock MetaSchedule against strategies of the toolkit, on this device.

    Same tasks, target, trials and measurement settings, in alternating order. Finished legs are
    kept: interrupted, the same command goes on. Models must not know the raced workloads.
    Exit code 4 says: a confirmation was undecided, because the machine had become much slower.

    Example: toolkit race --workload GMM:0 --trials 64 --seeds 1 --strategy evolutionary
    """
    from toolkit.live.measure import machine as here
    from toolkit.live.measure.engines import engine_options
    from toolkit.live.measure.protocol import Protocol
    from toolkit.live.race.race import RaceSettings
    from toolkit.live.race.race import race as run
    from toolkit.live.race.rules import ABLATION
    from toolkit.live.tune.guides import load_guides
    from toolkit.networks.tasks import tasks_of
    from toolkit.training.trained.loading import default_folders

    pinned = parse_cores(cores)
    count = threads or len(pinned) or here.physical_cores()
    chosen = here.parse_target(target or here.default_target(count))
    models = default_folders() if model is None else model
    arms = list(strategy or [load_guides(models).best_strategy()])
    arms += [name for name in (ABLATION if ablation else ()) if name not in arms]
    engine = engine_options(None, builders)
    result = run(
        tasks_of(workload or ["GMM:0"], chosen),
        folder or Workspace().race,
        target=chosen,
        protocol=Protocol(
            number=number,
            repeat=repeat,
            min_repeat_ms=min_repeat_ms,
            threads=count,
            cores=pinned,
            # Stock does not repeat a reading that was disturbed.
            max_retries=0,
            drop_above=drop_above,
        ),
        settings=RaceSettings(tuple(arms), trials, seeds, blocks, engine, stock_build_timeout),
        models=models,
        machine=machine,
        progress=BarProgress(),
    )
    if json:
        print_json(result.to_json())
    else:
        _print_race(result)
    if any(one["undecided"] for one in result["confirmed"]):
        raise typer.Exit(EXIT_UNDECIDED)


def _print_race(result: Mapping[str, Any]) -> None:
    print_warnings(result["warnings"])
    table = Table(
        "task",
        "seed",
        "arm",
        "stock's best",
        "ours",
        "S time",
        "S trials",
        "as read",
        "final ratio",
    )
    confirmed = {(c["task"], c["seed"]): c for c in result["confirmed"]}
    for row in result["rows"]:
        again = confirmed.get((row["task"], row["seed"]), {"undecided": None, "finals": {}})
        final = again["finals"].get(row["arm"])
        ratio = "-" if final is None else _interval(final["ratio"], final["interval"])
        table.add_row(
            row["task"],
            str(row["seed"]),
            row["arm"],
            _microseconds(row["stock_final_s"]),
            _microseconds(row["final_s"]),
            _share(row, "quality_seconds", "quality_at_least_seconds"),
            _share(row, "quality_trials", "quality_at_least_trials"),
            _share(row, "s_seconds", "at_least_seconds"),
            "undecided" if again["undecided"] else ratio,
        )
    out.print(table)
    for arm, summary in result["summary"].items():
        said = [
            f"{label} {_interval(mean['value'], mean['interval'])}"
            for label, mean in (
                ("S time", summary["quality_seconds"]),
                ("S trials", summary["quality_trials"]),
                ("S time as read", summary["s_seconds"]),
                ("final latency", summary["final_ratio"]),
            )
            if mean is not None
        ]
        missed = summary["quality_not_reached"]
        notes = [
            f" ({count} of {summary['legs']} legs {what})"
            for count, what in (
                (missed, "did not reach stock's quality"),
                (summary["undecided"], "undecided: see the warnings"),
            )
            if count
        ]
        out.print(f"{arm}: " + ", ".join(said) + "".join(notes))


def _microseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e6:.1f} us"


def _share(row: dict[str, Any], what: str, least: str) -> str:
    if row.get(what) is not None:
        return f"{row[what]:.3f}"
    return "-" if row.get(least) is None else f"> {row[least]:.3f}"


def _interval(value: float, interval: list[float] | None) -> str:
    return f"{value:.3f}" + (f" [{interval[0]:.3f}, {interval[1]:.3f}]" if interval else "")
