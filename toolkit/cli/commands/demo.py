"""``toolkit demo``: the whole workflow on the bundled logs."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from toolkit import show
from toolkit.cli.commands.simulate import efforts
from toolkit.cli.common import BarProgress, Json, Seed, answer
from toolkit.cli.tables import bracketed, note, out, print_table, say
from toolkit.errors import ToolkitError
from toolkit.progress import SILENT, Progress
from toolkit.records import Task
from toolkit.workspace import Workspace, bundled

if TYPE_CHECKING:
    from toolkit.training.recipes.recipe import Recipe

# This many tasks share the live time; the whole live phase takes less than two minutes.
LIVE_TASKS = 2
LIVE_SECONDS = 52.0

# One machine is enough for a demonstration: the one with enumerated spaces.
DEMO_LOGS = "xeon-rocketlake-1core"
DEMO_FOLDS = 3


def demo(
    folder: Annotated[Path, Option("--out", help="Workspace to create.")] = Path("toolkit-demo"),
    live: Annotated[bool, Option(help="Also measure on this machine (about two minutes).")] = True,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Run the whole workflow on the bundled logs: ingest, train, simulate, confirm live, report.

    Example: toolkit demo --out toolkit-demo
    """
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


def run_demo(
    out: Path, *, live: bool = True, seed: int = 0, progress: Progress = SILENT
) -> dict[str, Any]:
    """Run everything into the workspace ``out``; return a summary (JSON-ready).

    If the live phase fails (for example without a compiler for this processor), ``live_error`` has
    the reason, and the report is written without it.
    """
    from toolkit.datasets import ingest, open_dataset
    from toolkit.replay import load_scenario, simulate
    from toolkit.reports import write_report
    from toolkit.training import train_mutation, train_throughput

    workspace = Workspace(out)
    models = [workspace.model("throughput"), workspace.model("mutation")]
    scenario = load_scenario("quick")
    seconds: dict[str, float] = {}
    verdicts: Sequence[Any] = []
    live_error = None

    @contextmanager
    def timed(name: str) -> Iterator[None]:
        begun = time.perf_counter()
        yield
        seconds[name] = round(time.perf_counter() - begun, 1)

    with timed("all"):
        with timed("ingest"):
            report = ingest([bundled("datasets") / DEMO_LOGS], workspace.dataset, progress=progress)
            dataset = open_dataset(workspace.dataset)
        with timed("train throughput"):
            recipe = _quick_recipe("throughput")
            throughput = train_throughput(dataset, recipe, models[0], progress=progress)
        with timed("train mutation"):
            recipe = _quick_recipe("mutation")
            mutation = train_mutation(dataset, recipe, models[1], progress=progress)
        with timed("simulate"):
            simulation = simulate(
                workspace.dataset,
                scenario,
                models=models,
                workers=os.cpu_count() or 1,
                out=workspace.simulation(scenario.name),
                progress=progress,
            )
        if live:
            with timed("live"):
                try:
                    from toolkit.live.confirm.session import validate_dataset

                    verdicts = validate_dataset(
                        workspace.dataset,
                        task_names=_live_tasks(list(dataset.tasks().values())),
                        seconds=LIVE_SECONDS,
                        models=models,
                        seed=seed,
                        out=workspace.validation,
                        progress=progress,
                    )["verdicts"]
                except ToolkitError as error:
                    live_error = str(error)
        with timed("report"):
            write_report(workspace, progress=progress)
    return {
        "out": str(out),
        "records": report.total_records,
        "tasks": len(dataset.tasks()),
        "throughput": {key: throughput[key] for key in ("top1", "top5", "pairwise")},
        "mutation": {key: mutation[key] for key in ("accuracy", "gain_share")},
        "strategies": simulation["strategies"],
        "ranking": simulation["comparisons"]["ranking"],
        "verdicts": verdicts,
        "live_error": live_error,
        "report": str(workspace.report),
        "seconds": seconds,
        "next": [
            "toolkit ingest LOGS... --machine NAME",
            "toolkit train throughput && toolkit train mutation",
            "toolkit simulate && toolkit validate && toolkit report",
        ],
    }


def _quick_recipe(kind: str) -> Recipe:
    """Return the default recipe with fewer folds, and one fit if their number is automatic."""
    from toolkit.training import load_recipe

    recipe = load_recipe(kind)
    models = tuple(
        model.model_copy(update={"seeds": 1}) if model.seeds == "auto" else model
        for model in recipe.models
    )
    split = recipe.split.model_copy(update={"folds": DEMO_FOLDS})
    return recipe.model_copy(update={"split": split, "models": models})


def _live_tasks(tasks: list[Task]) -> list[str]:
    """Return tasks of different kinds: a matrix product and a convolution, if there are any."""
    usable = [task for task in tasks if task.format == "metaschedule" and task.blob]
    chosen: dict[str, str] = {}
    for task in sorted(usable, key=lambda one: (one.workload, one.task_id)):
        chosen.setdefault(task.workload.partition(":")[0], task.task_id)
    wanted = [chosen[kind] for kind in ("matmul", "conv2d_nhwc") if kind in chosen]
    rest = [task_id for task_id in chosen.values() if task_id not in wanted]
    return [*wanted, *rest][:LIVE_TASKS]
