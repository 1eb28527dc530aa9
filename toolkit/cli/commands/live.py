"""``toolkit collect`` and ``toolkit validate``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from toolkit.cli.common import (
    EXIT_NOT_BETTER,
    EXIT_UNDECIDED,
    THREADS_MAX,
    BarProgress,
    DatasetDir,
    Json,
    Seed,
    command,
    out,
    print_json,
    print_warnings,
)
from toolkit.workspace import Workspace

Target = Annotated[
    str | None,
    typer.Option(help="TVM target (default: LLVM for this very processor, with its features)."),
]
Cores = Annotated[
    str | None,
    typer.Option(help="Pin measuring to these processors, as in 1 or 2,3 (default: not pinned)."),
]


def register(app: typer.Typer) -> None:
    """Add this group's commands."""
    app.command()(collect)
    app.command()(validate)


def parse_cores(text: str | None) -> tuple[int, ...]:
    """Read a list of processors such as 2,3."""
    import os

    if text is None:
        return ()
    try:
        cores = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no list of processors such as 2,3") from None
    count = os.cpu_count() or 1
    if any(not 0 <= core < count for core in cores):
        raise typer.BadParameter(f"this machine has processors 0 to {count - 1}")
    return cores


@command
def collect(
    workload: Annotated[
        list[str] | None,
        typer.Option(
            help="NAME:ARGUMENTS of TVM's te_workload (matmul:128,128,128), SET:INDEX (GMM:0), "
            "or a Python file that defines WORKLOADS; repeatable."
        ),
    ] = None,
    target: Target = None,
    trials: Annotated[
        int, typer.Option(min=0, max=100_000, help="Distinct random programs a workload.")
    ] = 64,
    mutate: Annotated[
        int,
        typer.Option(min=0, max=100_000, help="Mutate so many of them in every direction as well."),
    ] = 0,
    enumerate_up_to: Annotated[
        int,
        typer.Option(
            min=0, max=1_000_000, help="Measure spaces of at most this size completely instead."
        ),
    ] = 0,
    occasions: Annotated[
        int,
        typer.Option(min=1, max=10_000, help="Measure each program so often, in separate passes."),
    ] = 1,
    threads: Annotated[
        int | None,
        typer.Option(min=1, max=THREADS_MAX, help="Threads of the programs (default: all cores)."),
    ] = None,
    cores: Cores = None,
    seed: Seed = 0,
    machine: Annotated[
        str | None, typer.Option(help="Name of this machine in the logs (default: its CPU).")
    ] = None,
    folder: Annotated[
        Path | None, typer.Option("--out", help="Folder (default: tuning/collected).")
    ] = None,
    json: Json = False,
) -> None:
    """Measure new tuning logs on this machine, as MetaSchedule databases.

    Interrupted, the same command goes on where it stopped.

    Example: toolkit collect --workload matmul:128,128,128 --trials 200 --mutate 20
    """
    from toolkit.live.measure import machine as here
    from toolkit.live.measure.protocol import Protocol
    from toolkit.live.tune.collect import Plan
    from toolkit.live.tune.collect import collect as run
    from toolkit.live.tune.workloads import parse_workload

    pinned = parse_cores(cores)
    count = threads or len(pinned) or here.physical_cores()
    names = workload or ["matmul:128,128,128"]
    print_warnings(here.noise_warnings(count))
    result = run(
        [each for name in names for each in parse_workload(name)],
        folder or Workspace().collected,
        target=here.parse_target(target or here.default_target(count)),
        protocol=Protocol(threads=count, cores=pinned),
        plan=Plan(trials, mutate, enumerate_up_to, occasions, seed),
        machine=machine,
        progress=BarProgress(),
    )
    if json:
        print_json(result)
        return
    table = Table("workload", "records", "failed", "folder")
    for entry in result["workloads"]:
        table.add_row(entry["name"], str(entry["records"]), str(entry["failed"]), entry["folder"])
    out.print(table)
    out.print(f"next: toolkit ingest {result['out']}", highlight=False)


@command
def validate(
    dataset: DatasetDir = None,
    task: Annotated[
        list[str] | None, typer.Option(help="Task id, or its beginning; repeatable.")
    ] = None,
    top: Annotated[
        int, typer.Option(min=1, max=10_000, help="Recorded candidates to rebuild a task.")
    ] = 5,
    target: Target = None,
    seconds: Annotated[float, typer.Option(min=5.0, help="Time for each task.")] = 60.0,
    strategy: Annotated[
        str | None, typer.Option(help="Strategy of the refinement (default: what models allow).")
    ] = None,
    model: Annotated[
        list[Path] | None, typer.Option(help="Model folder; repeatable (default: tuning/models).")
    ] = None,
    tasks: Annotated[int, typer.Option(min=1, help="How many tasks, where none is named.")] = 2,
    tvm_python: Annotated[
        Path | None,
        typer.Option(help="Interpreter whose TVM has Ansor: confirms Ansor tasks with it."),
    ] = None,
    workloads: Annotated[
        list[Path] | None,
        typer.Option(help="Python file that registers their workloads; repeatable."),
    ] = None,
    cores: Cores = None,
    seed: Seed = 0,
    folder: Annotated[
        Path | None, typer.Option("--out", help="Folder (default: tuning/validation).")
    ] = None,
    json: Json = False,
) -> None:
    """Rebuild the fastest recorded programs, refine them on this device, prove the winner.

    Exit code 3 says: validated, and nothing is better than what was recorded; 4: nothing was
    decided, because the machine had become much slower.

    Example: toolkit validate --seconds 120 --top 10
    """
    from toolkit.live.confirm.session import validate_dataset

    result = validate_dataset(
        dataset or Workspace().dataset,
        task_names=task or [],
        task_count=tasks,
        top=top,
        seconds=seconds,
        target=target,
        strategy=strategy,
        models=model,
        cores=parse_cores(cores),
        seed=seed,
        out=folder or Workspace().validation,
        tvm_python=tvm_python,
        workloads=workloads or [],
        progress=BarProgress(),
    )
    if json:
        print_json(result.to_json())
    else:
        _print_verdicts(result)
    if not result["better"]:
        undecided = any(verdict["reason"] for verdict in result["verdicts"])
        raise typer.Exit(EXIT_UNDECIDED if undecided else EXIT_NOT_BETTER)


def _print_verdicts(result: Mapping[str, Any]) -> None:
    print_warnings(result["warnings"])
    table = Table("task", "incumbent", "challenger", "latency ratio [interval]", "verdict")
    for verdict in result["verdicts"]:
        ratio = "-"
        if verdict["ratio"] is not None and verdict["interval"] is None:
            ratio = f"too few blocks ({verdict['blocks']}): give more --seconds"
        elif verdict["ratio"] is not None:
            low, high = verdict["interval"]
            ratio = f"{verdict['ratio']:.3f} [{low:.3f}, {high:.3f}]"
        winner = verdict.get("winner_latency_s")
        table.add_row(
            verdict["name"],
            f"{verdict['incumbent_latency_s'] * 1e6:.1f} us",
            "-" if winner is None else f"{winner * 1e6:.1f} us ({verdict['winner_from']})",
            ratio,
            verdict["verdict"],
        )
    out.print(table)
    out.print("next: toolkit report", highlight=False)
