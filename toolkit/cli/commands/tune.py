"""``toolkit tune``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from toolkit.cli.commands.live import Cores, Target, parse_cores
from toolkit.cli.common import (
    PROCESSES_MAX,
    THREADS_MAX,
    BarProgress,
    Json,
    Seed,
    command,
    out,
    print_json,
    print_warnings,
)
from toolkit.errors import LiveError
from toolkit.workspace import Workspace

Workloads = Annotated[
    list[str] | None,
    typer.Option(
        help="NAME:ARGUMENTS of TVM's te_workload (matmul:128,128,128), SET:INDEX (GMM:0), "
        "a Python file that defines WORKLOADS (Relax too), an .onnx or .pt2 file; repeatable."
    ),
]
Models = Annotated[
    list[Path] | None, typer.Option(help="Model folder; repeatable (default: tuning/models).")
]
DropAbove = Annotated[
    float,
    typer.Option(
        min=0.0,
        help="Programs whose first short reading is so many times the best so far get no full "
        "one; 0: all are read in full.",
    ),
]
Device = Annotated[
    str | None,
    typer.Option(help="Where to measure: 'rpc HOST:PORT KEY' (default: this machine)."),
]
Builders = Annotated[
    int | None,
    typer.Option(min=1, max=PROCESSES_MAX, help="Processes that build (default: one a core)."),
]
Threads = Annotated[
    int | None,
    typer.Option(min=1, max=THREADS_MAX, help="Threads of the programs (default: all cores)."),
]

Shapes = Annotated[
    list[str] | None,
    typer.Option(
        "--shape",
        help="Shape of an input that a model file leaves open: NAME=1,3,224,224; repeatable.",
    ),
]
Layout = Annotated[
    str, typer.Option(help="Layout of a network's convolutions: auto, NCHW or NHWC.")
]


def parse_shapes(texts: list[str] | None) -> dict[str, list[int]]:
    """Read ``NAME=1,3,224,224``; raise ``LiveError`` for anything else."""
    found = {}
    for text in texts or []:
        name, _, extents = text.rpartition("=")
        parts = extents.split(",")
        if not name or not all(part.strip().isdigit() and int(part) for part in parts):
            raise LiveError(f"{text!r} is no shape", cure="example: --shape data=1,3,224,224")
        found[name] = [int(part) for part in parts]
    return found


def parse_layout(text: str) -> Any:
    """Check a layout's name; raise ``LiveError`` for another."""
    known = {"auto": "auto", "nchw": "NCHW", "nhwc": "NHWC"}
    if text.lower() not in known:
        raise LiveError(f"no layout is called {text!r}", cure="give auto, NCHW or NHWC")
    return known[text.lower()]


def register(app: typer.Typer) -> None:
    """Add this group's commands."""
    app.command()(tune)


@command
def tune(
    workload: Workloads = None,
    target: Target = None,
    trials: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Trials in all (default: 256 a task; a network stops when little is gained).",
        ),
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(min=1.0, help="Seconds in all; a network stops when little is gained."),
    ] = None,
    strategy: Annotated[
        str | None, typer.Option(help="Search strategy (default: what the models allow).")
    ] = None,
    scheduler: Annotated[
        str, typer.Option(help="Task scheduler: gradient, bandit or round-robin.")
    ] = "gradient",
    round_size: Annotated[
        int | None,
        typer.Option(
            min=1, max=100_000, help="Trials of a task's turn (default: 64; of a network's, 16)."
        ),
    ] = None,
    shape: Shapes = None,
    layout: Layout = "auto",
    model: Models = None,
    threads: Threads = None,
    cores: Cores = None,
    repeat: Annotated[int, typer.Option(min=1, max=10_000, help="Repeats of a reading.")] = 1,
    min_repeat_ms: Annotated[
        int, typer.Option(min=0, max=5000, help="Least milliseconds of a repeat, as in TVM.")
    ] = 100,
    drop_above: DropAbove = 1.3,
    finalists: Annotated[
        int,
        typer.Option(
            min=0,
            help="So many of a task's best programs are read again, in turns, before one "
            "is named; 0: what read lowest is.",
        ),
    ] = 12,
    device: Device = None,
    builders: Builders = None,
    seed: Seed = 0,
    machine: Annotated[
        str | None, typer.Option(help="Name of this machine in the logs (default: its CPU).")
    ] = None,
    folder: Annotated[
        Path | None, typer.Option("--out", help="Database folder (default: tuning/tuned).")
    ] = None,
    json: Json = False,
) -> None:
    """Tune workloads or a network on this machine into a MetaSchedule database.

    TVM compiles with it: meta_schedule.database.JSONDatabase(work_dir=FOLDER). Interrupted, the
    same command goes on where it stopped; with a larger budget it goes on too.

    Example: toolkit tune --workload matmul:512,512,512 --trials 200
    """
    from toolkit.live.measure import machine as here
    from toolkit.live.measure.engines import engine_options, open_engine
    from toolkit.live.measure.protocol import Protocol
    from toolkit.live.tune.guides import load_guides
    from toolkit.live.tune.settings import TuneSettings, for_network
    from toolkit.live.tune.tune import tune as run
    from toolkit.networks.tasks import tasks_of
    from toolkit.search.runner import WallClock

    clock = WallClock()
    pinned = parse_cores(cores)
    count = threads or len(pinned) or here.physical_cores()
    chosen = here.parse_target(target or here.default_target(count))
    tasks = tasks_of(
        workload or ["matmul:128,128,128"],
        chosen,
        shapes=parse_shapes(shape),
        layout=parse_layout(layout),
    )
    guides = load_guides(model)
    warnings = [*here.noise_warnings(count), *guides.warnings(chosen)]
    print_warnings(warnings)
    settings = TuneSettings(
        trials=256 * len(tasks) if trials is None and seconds is None else trials,
        seconds=seconds,
        strategy=strategy or guides.best_strategy(),
        scheduler=scheduler,
        seed=seed,
        finalists=finalists,
    )
    if any(task.network_bytes for task in tasks):
        settings = for_network(settings, stop=trials is None)
    if round_size is not None:
        settings = replace(settings, round_size=round_size)
    protocol = Protocol(
        number=3,
        repeat=repeat,
        min_repeat_ms=min_repeat_ms,
        threads=count,
        cores=pinned,
        drop_above=drop_above,
    )
    result = run(
        tasks,
        folder or Workspace().tuned,
        target=chosen,
        protocol=protocol,
        settings=settings,
        guides=guides,
        engine=lambda: open_engine(chosen, protocol, **engine_options(device, builders)),
        machine=machine,
        clock=clock,
        progress=BarProgress(),
    )
    if json:
        print_json({**result, "warnings": [*warnings, *result["warnings"]]})
    else:
        print_warnings(result["warnings"])
        _print_tuned(result)


def _print_tuned(result: dict[str, Any]) -> None:
    table = Table("task", "weight", "trials", "failed", "best latency")
    for row in result["tasks"]:
        best = row["best_latency_s"]
        failed = ", ".join(f"{count} {state}" for state, count in row["failed"].items())
        table.add_row(
            row["name"],
            f"{row['weight']:g}",
            str(row["trials"]),
            failed or "0",
            "-" if best is None else f"{best * 1e6:.1f} us",
        )
        if row.get("unchecked"):
            print_warnings(
                [f"not checked: the unscheduled program of {row['name']}: {row['unchecked']}"]
            )
    out.print(table)
    out.print(
        f"{result['trials']} trials in {result['seconds']:.0f} s "
        f"({result['trials_per_minute']:.0f} a minute); database: {result['out']}",
        highlight=False,
    )
    out.print(f"run it with TVM_NUM_THREADS={result['threads']}", highlight=False)
