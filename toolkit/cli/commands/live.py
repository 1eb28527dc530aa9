"""``toolkit collect``, ``toolkit validate`` and ``toolkit audit``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Option

from toolkit import show
from toolkit.cli import common
from toolkit.cli.exit_codes import EXIT_NOT_BETTER, EXIT_UNDECIDED
from toolkit.cli.network_options import Layout, Shapes, Tolerance, Workloads, named_tasks
from toolkit.cli.tables import bracketed, print_table, print_warnings, say
from toolkit.workspace import Workspace


def parse_cores(text: str | None) -> tuple[int, ...]:
    """Read a list of processors such as 2,3."""
    cores = () if text is None else tuple(common.whole_numbers(text, "processors such as 2,3"))
    count = os.cpu_count() or 1
    if any(not 0 <= core < count for core in cores):
        raise typer.BadParameter(f"this machine has processors 0 to {count - 1}")
    if len(set(cores)) < len(cores):
        raise typer.BadParameter("a processor is named twice: two threads would share it")
    return cores


def device(target: str | None, threads: int | None, cores: str | None) -> tuple[Any, int, Any]:
    """Return target, threads and processors, from the options and this machine."""
    from toolkit.live.measure import machine as here

    pinned = parse_cores(cores)
    count = threads or len(pinned)
    if target is None:
        count = count or here.physical_cores()
        return here.parse_target(here.default_target(count)), count, pinned
    chosen = here.parse_target(target)
    return chosen, count or here.target_threads(chosen), pinned


def collect(
    workload: Workloads = None,
    random: Annotated[
        int,
        Option(
            min=0,
            max=100_000,
            help="Add this many random workloads, of all operator kinds in turn, by --seed.",
        ),
    ] = 0,
    target: common.Target = None,
    trials: Annotated[
        int, Option(min=0, max=100_000, help="Unique random programs per workload.")
    ] = 64,
    mutate: Annotated[
        int, Option(min=0, max=100_000, help="Also mutate this many of them in every direction.")
    ] = 0,
    refine: Annotated[
        list[int] | None,
        Option(
            min=1,
            max=100_000,
            help="Then mutate this many of the fastest so far in every direction; repeatable, for "
            "further generations.",
        ),
    ] = None,
    enumerate_up_to: Annotated[
        int,
        Option(
            min=0, max=1_000_000, help="Measure all programs of spaces up to this size instead."
        ),
    ] = 0,
    occasions: Annotated[
        int, Option(min=1, max=10_000, help="Times to measure each program, in separate passes.")
    ] = 1,
    shape: Shapes = None,
    layout: Layout = "auto",
    tolerance: Tolerance = 0.0,
    threads: common.Threads = None,
    cores: common.Cores = None,
    seed: common.Seed = 0,
    machine: common.Machine = None,
    folder: Annotated[
        Path | None, common.OutOption(help="Folder (default: tuning/collected).")
    ] = None,
    json: common.Json = False,
) -> None:
    """Measure new tuning logs on this machine, as MetaSchedule databases.

    Each function of a network is a workload with its own database. After an interruption, the
    same command continues where it stopped.

    Example: toolkit collect --workload matmul:128,128,128 --trials 200 --mutate 20
    """
    from toolkit.live.measure import machine as here
    from toolkit.live.measure.protocol import Protocol
    from toolkit.live.tune.collect import Plan
    from toolkit.live.tune.collect import collect as run
    from toolkit.live.workloads.drawn import draw_workloads
    from toolkit.live.workloads.named import Workload

    chosen, count, pinned = device(target, threads, cores)
    print_warnings(here.noise_warnings(count))
    names = [*(workload or ()), *draw_workloads(random, seed)]
    tasks = named_tasks(names, chosen, shape, layout, tolerance)
    cold = here.runs_on_cpu(chosen) and any(task.cold for task in tasks)
    result = run(
        [Workload(task.name, task.module) for task in tasks],
        folder or Workspace().collected,
        target=chosen,
        protocol=Protocol(threads=count, cores=pinned, cache_flush=cold),
        plan=Plan(trials, mutate, enumerate_up_to, occasions, seed, tuple(refine or ())),
        machine=machine,
        progress=common.BarProgress(),
    )
    common.answer(result, json, _show_collected)


def _show_collected(result: Mapping[str, Any]) -> None:
    columns = {key: itemgetter(key) for key in ("records", "failed", "folder")}
    print_table({"workload": itemgetter("name"), **columns}, result["workloads"])
    say(f"next: toolkit ingest {result['out']}")


def validate(
    dataset: common.DatasetDir = None,
    task: common.Tasks = None,
    top: Annotated[
        int, Option(min=1, max=10_000, help="Recorded programs per task to rebuild.")
    ] = 5,
    target: common.Target = None,
    seconds: Annotated[float, Option(min=5.0, help="Seconds per task.")] = 60.0,
    strategy: Annotated[
        str | None, Option(help="Refinement strategy (default: what the models allow).")
    ] = None,
    model: common.Models = None,
    tasks: Annotated[int, Option(min=1, help="Number of tasks, if none is named.")] = 2,
    tvm_python: Annotated[
        Path | None, Option(help="Interpreter whose TVM has Ansor, to confirm Ansor tasks.")
    ] = None,
    workloads: common.AnsorWorkloads = None,
    device: common.Device = None,
    cores: common.Cores = None,
    seed: common.Seed = 0,
    folder: Annotated[
        Path | None, common.OutOption(help="Folder (default: tuning/validation).")
    ] = None,
    json: common.Json = False,
) -> None:
    """Rebuild the fastest recorded programs, refine them on this device, prove the winner.

    Exit code 3: the validation finished, and nothing is better than the recorded programs. Exit
    code 4: nothing was decided, because the machine had become much slower.

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
        device=device,
        progress=common.BarProgress(),
    )
    common.answer(result, json, _show_verdicts)
    if not result["better"]:
        undecided = any(verdict["reason"] for verdict in result["verdicts"])
        raise typer.Exit(EXIT_UNDECIDED if undecided else EXIT_NOT_BETTER)


def _show_verdicts(result: Mapping[str, Any]) -> None:
    print_warnings(result["warnings"])
    print_table(
        {
            "task": itemgetter("name"),
            "incumbent": lambda verdict: show.seconds(verdict["incumbent_latency_s"]),
            "challenger": _challenger,
            "latency ratio [interval]": _ratio,
            "verdict": itemgetter("verdict"),
        },
        result["verdicts"],
    )
    say("next: toolkit report")


def _challenger(verdict: Mapping[str, Any]) -> str:
    winner = verdict.get("winner_latency_s")
    return "-" if winner is None else f"{show.seconds(winner)} ({verdict['winner_from']})"


def _ratio(verdict: Mapping[str, Any]) -> str:
    if verdict["ratio"] is None:
        return "-"
    if verdict["interval"] is None:
        return f"too few blocks ({verdict['blocks']}): give more --seconds"
    return bracketed(verdict["ratio"], verdict["interval"])


def audit(
    database: Annotated[
        Path | None,
        typer.Argument(help="Folder of a MetaSchedule database (default: tuning/tuned)."),
    ] = None,
    top: Annotated[
        int, Option(min=1, max=100, help="Best records per workload to measure, winner included.")
    ] = 4,
    margin: Annotated[
        float,
        Option(
            min=0.0, max=1.0, help="A record beats the winner if faster by more than this share."
        ),
    ] = 0.05,
    cores: common.Cores = None,
    seed: common.Seed = 0,
    json: common.Json = False,
) -> None:
    """Measure a database's winners again, and say which no longer hold on this machine.

    A winner no longer holds if another record beats it, if it became slower by more than the other
    winners did, or if it fails. The database is not changed. audit.json in its folder has the
    measurements; an interrupted audit keeps those of the workloads it reached.

    Exit code 3: some winners no longer hold.

    Example: toolkit audit tuning/tuned
    """
    from toolkit.live.confirm.audit import audit as run

    result = run(
        database or Workspace().tuned,
        top=top,
        margin=margin,
        cores=parse_cores(cores),
        seed=seed,
        progress=common.BarProgress(),
    )
    common.answer(result, json, _show_audit)
    if result["lost"]:
        raise typer.Exit(EXIT_NOT_BETTER)


def _show_audit(result: Mapping[str, Any]) -> None:
    print_warnings(result["warnings"])
    print_table(
        {
            "workload": itemgetter("name"),
            "recorded": lambda one: show.seconds(one["recorded_s"]),
            "now": lambda one: show.seconds(one.get("now_s")),
            "finding": itemgetter("finding"),
            "why": _why,
        },
        result["winners"],
    )
    say(f"{result['holds']} of {show.plural(len(result['winners']), 'winner')} hold")
    if result["lost"]:
        say("next: 'toolkit tune' with the same --out and a larger budget measures the best again")


def _why(one: Mapping[str, Any]) -> str:
    if one["finding"] == "beaten":
        return (
            f"line {one['better_line']} takes {bracketed(one['ratio'], one['interval'])} "
            "of the winner's time"
        )
    return str(one.get("why") or "")
