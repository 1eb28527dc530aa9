"""``toolkit tune`` and ``toolkit lookup``."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any

from typer import Option

from toolkit import show
from toolkit.cli import common
from toolkit.cli.commands.live import device as device_of
from toolkit.cli.mlflow_option import MlflowPlace, told
from toolkit.cli.network_options import Layout, Shapes, Tolerance, Workloads, named_tasks
from toolkit.cli.tables import counted, print_plain, print_table, print_warnings, say
from toolkit.errors import LiveError
from toolkit.workspace import Workspace

DropAbove = Annotated[
    float,
    Option(
        min=0.0,
        help="Skip a program's full measurement if its first short one is over this many times "
        "the best so far; 0: never.",
    ),
]
Builders = Annotated[
    int | None,
    Option(min=1, max=common.PROCESSES_MAX, help="Build processes (default: one per core)."),
]


def tune(
    workload: Workloads = None,
    target: common.Target = None,
    trials: Annotated[
        int | None,
        Option(
            min=1,
            help="Trials in total (default: 256 per task; a network stops at small gains).",
        ),
    ] = None,
    seconds: Annotated[
        float | None, Option(min=1.0, help="Seconds in total; a network stops at small gains.")
    ] = None,
    strategy: Annotated[
        str | None, Option(help="Search strategy (default: what the models allow).")
    ] = None,
    scheduler: Annotated[
        str, Option(help="Task scheduler: gradient, bandit or round-robin.")
    ] = "gradient",
    round_size: Annotated[
        int | None,
        Option(min=1, max=100_000, help="Trials per round of a task (default: 64; network: 8)."),
    ] = None,
    shape: Shapes = None,
    layout: Layout = "auto",
    tolerance: Tolerance = 0.0,
    dataset: common.DatasetDir = None,
    recorded: Annotated[
        bool,
        Option(
            help="First measure the best recorded programs of the same computations, if there is "
            "a dataset."
        ),
    ] = True,
    model: common.Models = None,
    threads: common.Threads = None,
    cores: common.Cores = None,
    repeat: Annotated[int, Option(min=1, max=10_000, help="Repeats of a reading.")] = 1,
    min_repeat_ms: Annotated[
        int, Option(min=0, max=5000, help="Minimum time of a repeat in ms, as in TVM.")
    ] = 100,
    cache_flush: Annotated[
        bool | None,
        Option(
            "--cache-flush/--no-cache-flush",
            help="Measure with weights in memory, not in the cache (default: for networks whose "
            "weights do not fit in a cache).",
        ),
    ] = None,
    drop_above: DropAbove = 1.3,
    finalists: Annotated[
        int | None,
        Option(
            min=0,
            help="Best programs of a task to measure again, in turns, before one is chosen; 0: the "
            "lowest reading wins (default: 12; network: 0, compile measures them in it).",
        ),
    ] = None,
    device: common.Device = None,
    builders: Builders = None,
    seed: common.Seed = 0,
    machine: common.Machine = None,
    folder: Annotated[
        Path | None, common.OutOption(help="Database folder (default: tuning/tuned).")
    ] = None,
    mlflow: MlflowPlace = None,
    json: common.Json = False,
) -> None:
    """Tune workloads or a network on this machine into a MetaSchedule database.

    TVM compiles with the database: meta_schedule.database.JSONDatabase(work_dir=FOLDER). After an
    interruption, the same command continues where it stopped. With a larger budget, it continues
    a finished search.

    Example: toolkit tune --workload matmul:512,512,512 --trials 200
    """
    begun = time.perf_counter()
    from toolkit.live.measure import machine as here
    from toolkit.live.measure.engines import engine_options, open_engine
    from toolkit.live.measure.protocol import Protocol, run_limit_s
    from toolkit.live.tune.settings import NETWORK_PATIENCE, TuneSettings, for_network
    from toolkit.live.tune.tune import tune as run
    from toolkit.search.runner import WallClock
    from toolkit.training.trained.models import load_trained

    clock = WallClock()
    # Importing TVM takes seconds, which count towards the budget.
    clock.resume(time.perf_counter() - begun)
    chosen, count, pinned = device_of(target, threads, cores)
    tasks = named_tasks(workload, chosen, shape, layout, tolerance)
    guides = load_trained(model)
    known = recorded_in(dataset) if recorded else None
    # Programs of a remote device do not run on this machine's cores.
    warnings = here.noise_warnings(count) if device is None else []
    warnings += guides.warnings(chosen)
    print_warnings(warnings)
    settings = TuneSettings(
        trials=256 * len(tasks) if trials is None and seconds is None else trials,
        seconds=seconds,
        strategy=strategy or guides.best_strategy(),
        scheduler=scheduler,
        seed=seed,
        tolerance=tolerance,
    )
    engine = engine_options(device, builders)
    if any(task.network for task in tasks):
        settings = for_network(settings, stop=trials is None)
        engine["patience"] = NETWORK_PATIENCE
    given: dict[str, Any] = {"round_size": round_size, "finalists": finalists}
    settings = replace(settings, **{k: value for k, value in given.items() if value is not None})
    if cache_flush is None:
        cache_flush = here.runs_on_cpu(chosen) and any(task.cold for task in tasks)
    protocol = Protocol(
        number=3,
        repeat=repeat,
        min_repeat_ms=min_repeat_ms,
        cache_flush=cache_flush,
        threads=count,
        cores=pinned,
        run_timeout_s=run_limit_s(repeat, min_repeat_ms),
        drop_above=drop_above,
    )
    out = folder or Workspace().tuned
    options = {"target": chosen, "tasks": [task.name for task in tasks], "device": device}
    options |= {**asdict(settings), "protocol": protocol.to_dict()}
    bars = common.BarProgress()
    with told(mlflow, "tuning", out, params=options, progress=bars) as (progress, log):
        found = run(
            tasks,
            out,
            target=chosen,
            protocol=protocol,
            settings=settings,
            guides=guides,
            engine=lambda: open_engine(chosen, protocol, **engine),
            machine=machine,
            clock=clock,
            recorded=known,
            progress=progress,
        )
        result = {**found, "warnings": [*warnings, *found["warnings"]]}
        log(result)
    common.answer(result, json, lambda _: _show(found))


def recorded_in(dataset: Path | None) -> Any:
    """Return the records of a dataset; ``None`` if none was given and the workspace has none."""
    from toolkit.live.space.recorded import Recorded

    if dataset is None and not (Workspace().dataset / "dataset.json").is_file():
        return None
    return Recorded(common.opened_dataset(dataset))


def _show(result: Mapping[str, Any]) -> None:
    print_warnings(result["warnings"])
    print_warnings(
        f"the outputs of {row['name']} were not compared with those of its unscheduled program: "
        f"{row['unchecked']}"
        for row in result["tasks"]
        if row.get("unchecked")
    )
    print_table(
        {
            "task": itemgetter("name"),
            "weight": lambda row: f"{row['weight']:g}",
            "trials": itemgetter("trials"),
            "failed": lambda row: (
                ", ".join(f"{count} {state}" for state, count in row["failed"].items()) or "0"
            ),
            "best latency": lambda row: show.seconds(row["best_latency_s"]),
        },
        result["tasks"],
    )
    if found := sum(row["recorded"] > 0 for row in result["tasks"]):
        say(
            f"for {found} of {show.plural(len(result['tasks']), 'task')}, recorded programs were "
            "measured first"
        )
    say(
        f"{result['trials']} trials in {result['seconds']:.0f} s "
        f"({result['trials_per_minute']:.0f} a minute); database: {result['out']}"
    )
    say(f"run the compiled programs with TVM_NUM_THREADS={result['threads']}")


def lookup(
    workload: Workloads = None,
    target: common.Target = None,
    shape: Shapes = None,
    layout: Layout = "auto",
    tolerance: Tolerance = 0.0,
    dataset: common.DatasetDir = None,
    threads: common.Threads = None,
    trials: Annotated[int, Option(min=1, help="Trials assumed per task without a record.")] = 256,
    machine: common.Machine = None,
    json: common.Json = False,
) -> None:
    """Show what a dataset already holds for workloads or for a network's tasks.

    A task is recognised by its loops, not by its name. Nothing is measured. 'toolkit tune' first
    measures the programs that are found here, then searches.

    Example: toolkit lookup --workload matmul:512,512,512
    """
    from toolkit.live.measure.machine import cpu_model
    from toolkit.live.space.design import DesignSpace
    from toolkit.live.space.space import MetaScheduleSpace

    recorded = recorded_in(dataset)
    if recorded is None:
        raise LiveError("there is no dataset to look in", cure="run 'toolkit ingest LOGS' first")
    chosen, _, _ = device_of(target, threads, None)
    here = machine or cpu_model()
    rows = []
    for task in named_tasks(workload, chosen, shape, layout, tolerance):
        space = MetaScheduleSpace(DesignSpace(task.module, chosen), machine=here)
        rows.append(
            {
                "name": task.name,
                "weight": task.weight,
                "found": [
                    {
                        "task_id": known.task.task_id,
                        "workload": known.task.workload,
                        "machine": known.task.machine,
                        "how": known.how,
                        "records": known.records,
                        "best_latency_s": known.latency_s,
                    }
                    for known in recorded.of(space.task)
                ],
            }
        )
    missing = sum(not row["found"] for row in rows)
    each_s = recorded.seconds_a_trial(here)
    result = {
        "target": chosen,
        "machine": here,
        "tasks": rows,
        "covered": len(rows) - missing,
        "missing": missing,
        "seconds_a_trial": each_s,
        "seconds_to_tune_the_rest": None if each_s is None else each_s * trials * missing,
    }
    common.answer(result, json, _show_lookup)


def _show_lookup(result: Mapping[str, Any]) -> None:
    nothing = {"how": "nothing", "records": 0, "best_latency_s": None, "machine": None}
    print_plain(
        {
            "task": itemgetter("name"),
            ">weight": lambda row: f"{row['weight']:g}",
            "recorded by": itemgetter("how"),
            "machine": lambda row: row["machine"] or "–",
            ">records": counted("records"),
            ">best": lambda row: show.seconds(row["best_latency_s"]),
        },
        [{**row, **next(iter(row["found"]), nothing)} for row in result["tasks"]],
        shorten=show.task_label,
    )
    text = f"{result['covered']} of {show.plural(len(result['tasks']), 'task')} are recorded"
    rest_s = result["seconds_to_tune_the_rest"]
    if result["missing"] and rest_s is not None:
        text += f"; tuning the others takes about {show.seconds(rest_s)}"
    say(f"{text}.")
