"""``toolkit race``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from inspect import signature
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Option

from toolkit.cli import common
from toolkit.cli.commands.live import device
from toolkit.cli.commands.tune import Builders, DropAbove
from toolkit.cli.exit_codes import EXIT_UNDECIDED
from toolkit.cli.network_options import (
    Layout,
    Shapes,
    Tolerance,
    Workloads,
    named_tasks,
    parse_layout,
    parse_shapes,
)
from toolkit.cli.tables import bracketed, out, print_table, print_warnings, say
from toolkit.errors import LiveError
from toolkit.show import interval, listed, number, ratio
from toolkit.show import seconds as in_seconds
from toolkit.workspace import Workspace

AS_IN_TVM = "As in TVM's EvaluatorConfig."

OF_TASKS = (
    *("trials", "seeds", "strategy", "baseline", "ablation", "cores", "number", "repeat"),
    *("min_repeat_ms", "drop_above", "builders", "blocks", "stock_build_timeout", "tvm_python"),
    *("workloads", "learn", "machine"),
)
"""Parameters that do not apply to a race of a network."""

OF_METASCHEDULE = ("shape", "layout", "tolerance", "drop_above", "builders", "machine")
OF_ANSOR = ("workloads", "learn")
"""Parameters that do not apply to a race inside Ansor, and parameters that only apply there."""


def race(
    workload: Workloads = None,
    target: common.Target = None,
    trials: Annotated[int, Option(min=1, max=1_000_000, help="Trials of every leg.")] = 256,
    seeds: Annotated[int, Option(min=1, max=1000, help="Legs of each arm on each task.")] = 3,
    seed: Annotated[int, Option(min=0, help="Seed of the first leg; each later leg adds 1.")] = 0,
    strategy: Annotated[
        list[str] | None, Option(help="Our arm; repeatable (default: what the models allow).")
    ] = None,
    baseline: Annotated[
        list[str] | None,
        Option(
            help="Further arm: TVM's own tuner with one change; repeatable: stock-warm (our model "
            "as its cost model), stock-finalists (its best programs are measured again), "
            "stock-small-batches (16 trials)."
        ),
    ] = None,
    ablation: Annotated[
        bool,
        Option(
            "--ablation",
            help="Also race random, evolutionary (the engine alone), etc-sketch, "
            "mutation-guided and model-ranked (the warm model alone).",
        ),
    ] = False,
    model: common.Models = None,
    threads: common.Threads = None,
    cores: common.Cores = None,
    number: Annotated[int, Option(min=1, max=10_000, help=AS_IN_TVM)] = 3,
    repeat: Annotated[int, Option(min=1, max=10_000, help=AS_IN_TVM)] = 1,
    min_repeat_ms: Annotated[int, Option(min=0, max=5000, help=AS_IN_TVM)] = 100,
    drop_above: DropAbove = 1.3,
    builders: Builders = None,
    blocks: Annotated[
        int, Option(min=0, max=10_000, help="Fresh readings of each final program; 0: none.")
    ] = 9,
    stock_build_timeout: Annotated[
        float | None, Option(min=1.0, help="Build timeout of stock TVM in s (default: 30).")
    ] = None,
    seconds: Annotated[
        float | None,
        Option(
            min=10.0,
            help="Race a whole network end to end: wall-clock seconds per arm. Trials, seeds, "
            "strategies and readings are then those of 'toolkit tune'.",
        ),
    ] = None,
    stock_seconds: Annotated[
        float | None, Option(min=10.0, help="With --seconds: wall clock of stock.")
    ] = None,
    shape: Shapes = None,
    layout: Layout = "auto",
    tolerance: Tolerance = 0.0,
    tvm_python: Annotated[
        Path | None,
        Option(
            help="Race inside Ansor, by the TVM of this interpreter: SketchPolicy against "
            "evolutionary (the changed loop alone), etc-sketch, mutation-guided and etc-mutation."
        ),
    ] = None,
    workloads: Annotated[
        list[Path] | None,
        Option(help="With --tvm-python: Python file that registers workloads; repeatable."),
    ] = None,
    learn: Annotated[
        list[str] | None,
        Option(
            help="With --tvm-python: workload whose mutants train the classifier; repeatable "
            "(default: C1D:1, C2D:2, GMM:1)."
        ),
    ] = None,
    machine: common.Machine = None,
    folder: Annotated[Path | None, common.OutOption(help="Folder (default: tuning/race).")] = None,
    json: common.Json = False,
) -> None:
    """Race stock MetaSchedule against strategies of the toolkit, on this device.

    All arms have the same tasks, target, trials and measurement settings. Their order alternates.
    Finished legs are kept: after an interruption the same command continues. Models must not be
    trained on the raced workloads. Exit code 4: a confirmation was undecided, because the machine
    had become much slower.

    With --seconds, one whole network is raced end to end (--workload model.onnx). With
    --tvm-python, the race runs inside Ansor, by another interpreter's TVM.

    Example: toolkit race --workload GMM:0 --trials 64 --seeds 1 --strategy evolutionary
    """
    asked = {**locals()}
    from toolkit.live.measure.engines import engine_options
    from toolkit.live.measure.protocol import Protocol, run_limit_s
    from toolkit.live.race.ansor import ANSOR_ARMS, LEARN, race_ansor
    from toolkit.live.race.race import RaceSettings
    from toolkit.live.race.race import race as run
    from toolkit.live.race.rules import ABLATION
    from toolkit.networks.legs import NetworkRaceSettings
    from toolkit.networks.race import race_network
    from toolkit.training.trained.loading import default_folders
    from toolkit.training.trained.models import load_trained

    chosen, count, pinned = device(target, threads, cores)
    models = default_folders() if model is None else model
    where, progress = folder or Workspace().race, common.BarProgress()
    if seconds is not None or stock_seconds is not None:
        if seconds is None or workload is None or len(workload) != 1:
            raise LiveError(
                "a race of a network needs one --workload and --seconds",
                cure="toolkit race --workload model.onnx --seconds 900",
            )
        _refuse_unused(asked)
        settings = NetworkRaceSettings(
            seconds=seconds,
            stock_seconds=stock_seconds or seconds,
            shapes=parse_shapes(shape),
            layout=parse_layout(layout),
            tolerance=tolerance,
            seed=seed,
        )
        network = Path(workload[0])
        found = race_network(
            network, where, target=chosen, settings=settings, models=models, progress=progress
        )
        common.answer(found, json, _show_network)
        return
    protocol = Protocol(
        number=number,
        repeat=repeat,
        min_repeat_ms=min_repeat_ms,
        threads=count,
        cores=pinned,
        run_timeout_s=run_limit_s(repeat, min_repeat_ms),
        # Stock does not repeat a disturbed measurement.
        max_retries=0,
        drop_above=drop_above,
    )
    if tvm_python is None:
        if inside := _given(asked, OF_ANSOR):
            raise LiveError(
                f"only a race inside Ansor takes {_options(inside)}", cure="give --tvm-python, too"
            )
        arms = list(strategy or [load_trained(models).best_strategy()])
        arms += ABLATION if ablation else ()
    else:
        if outside := _given(asked, OF_METASCHEDULE):
            cure = f"leave out {_options(outside)}"
            raise LiveError("a race inside Ansor uses Ansor's own builder and tasks", cure=cure)
        if baseline or ablation or model:
            raise LiveError(
                "a race inside Ansor has its own arms, and trains its classifier itself",
                cure="leave out --baseline, --ablation and --model",
            )
        arms = list(strategy or ANSOR_ARMS)
    raced = RaceSettings(
        tuple(dict.fromkeys(arms)),
        tuple(dict.fromkeys(baseline or ())),
        trials,
        seeds,
        seed,
        blocks,
        engine_options(None, builders),
        stock_build_timeout,
    )
    names = workload or ["GMM:0"]
    how: dict[str, Any] = {"target": chosen, "protocol": protocol, "settings": raced}
    how["progress"] = progress
    if tvm_python is not None:
        how |= {"python": tvm_python, "workload_files": workloads or (), "learn": learn or LEARN}
        result = race_ansor(names, where, **how)
    else:
        tasks = named_tasks(names, chosen, shape, layout, tolerance)
        result = run(tasks, where, models=models, machine=machine, **how)
    common.answer(result, json, _show)
    if any(one["undecided"] for one in result["confirmed"]):
        raise typer.Exit(EXIT_UNDECIDED)


def _given(asked: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    """Return those of the parameters that differ from their defaults."""
    usual = signature(race).parameters
    return [name for name in names if (asked[name] or None) != (usual[name].default or None)]


def _options(names: Sequence[str]) -> str:
    return listed([f"--{name.replace('_', '-')}" for name in names])


def _refuse_unused(asked: Mapping[str, Any]) -> None:
    """Refuse options that do not apply to a race of a network."""
    given = _given(asked, OF_TASKS)
    if asked["target"] and asked["threads"]:
        given.append("threads")  # the target sets them
    if given:
        raise LiveError(
            "a race of a network compares TVM's own pipeline and 'toolkit tune', both unchanged",
            cure=f"leave out {_options(given)}",
        )


def _show(result: Mapping[str, Any]) -> None:
    print_warnings(result["warnings"])
    confirmed = {(one["task"], one["seed"]): one for one in result["confirmed"]}

    def final(row: Mapping[str, Any]) -> str:
        again = confirmed.get((row["task"], row["seed"]), {"undecided": None, "finals": {}})
        if again["undecided"]:
            return "undecided"
        found = again["finals"].get(row["arm"])
        return "-" if found is None else bracketed(found["ratio"], found["interval"])

    print_table(
        {
            "task": itemgetter("task"),
            "seed": itemgetter("seed"),
            "arm": itemgetter("arm"),
            "stock's best": lambda row: in_seconds(row["stock_final_s"]),
            "ours": lambda row: in_seconds(row["final_s"]),
            "S time": lambda row: _ratio(row, "quality_seconds", "quality_at_least_seconds"),
            "S trials": lambda row: _ratio(row, "quality_trials", "quality_at_least_trials"),
            "as read": lambda row: _ratio(row, "s_seconds", "at_least_seconds"),
            "final ratio": final,
        },
        result["rows"],
    )
    for arm, summary in result["summary"].items():
        out.print(f"{arm}: {_means(summary)}")
        if any(one["legs"] for one in summary["by_tolerance"]):
            out.print(f"  {_tolerances(summary['by_tolerance'])}")


def _show_network(result: Mapping[str, Any]) -> None:
    print_warnings(result["warnings"])
    print_table(
        {
            "arm": itemgetter("arm"),
            ">tuned for": lambda row: in_seconds(row["tuned_s"]),
            ">compiled in": lambda row: in_seconds(row["compile_s"]),
            ">latency": lambda row: in_seconds(row["latency_s"]),
            ">our last one / this one": lambda row: ratio(row["ratio"]),
            "95 %": lambda row: interval(row["interval"], "ratio"),
        },
        result["rows"],
    )
    for row in result["against"]:
        bounds = interval(row["interval"], "ratio")
        say(f"our last network takes {ratio(row['ratio'])} {bounds} of {row['against']}'s time")
    if result["reached_s"] is None:
        say("our networks did not become as good as stock's last network")
    else:
        say(
            f"ours is as good as stock's last network after {in_seconds(result['reached_s'])}, at "
            f"most {number(result['s_at_most'])} of stock's time"
        )


def _means(summary: Mapping[str, Any]) -> str:
    """Return what an arm reached on average, and on how many legs this is not known."""
    means = {
        "S time": summary["quality_seconds"],
        "S trials": summary["quality_trials"],
        "S time as read": summary["s_seconds"],
        "final latency": summary["final_ratio"],
    }
    missing = {
        "did not reach stock's quality": summary["quality_not_reached"],
        "undecided: see the warnings": summary["undecided"],
    }
    said = [
        f"{label} {bracketed(mean['value'], mean['interval'])}"
        for label, mean in means.items()
        if mean is not None
    ]
    notes = [
        f" ({count} of {summary['legs']} legs {what})" for what, count in missing.items() if count
    ]
    return ", ".join(said) + "".join(notes)


def _tolerances(found: Sequence[Mapping[str, Any]]) -> str:
    """Return S in wall clock for each tolerance, and the number of legs that reached it."""
    told = [
        f"{one['tolerance']:.0%}: S time {one['seconds']['value']:.3f} "
        f"({one['reached']} of {one['legs']} legs)"
        for one in found
        if one["seconds"] is not None
    ]
    return "as good within " + ", ".join(told)


def _ratio(row: Mapping[str, Any], what: str, least: str) -> str:
    if row.get(what) is not None:
        return f"{row[what]:.3f}"
    return "-" if row.get(least) is None else f"> {row[least]:.3f}"
