"""``toolkit simulate``."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any

from typer import Option

from toolkit import show
from toolkit.cli import common
from toolkit.cli.tables import bracketed, interval_text, note, print_table, say
from toolkit.workspace import Workspace

CAPTION = "median over all runs [95 % interval]; - : not reached, [-] : unknown"
RANKED_BY = (
    "area: mean over the run of best recorded latency over best so far; rank: 1 + the number of "
    "strategies with a proven larger area"
)


def simulate(
    dataset: common.DatasetDir = None,
    scenario: Annotated[str, Option(help="Name of a bundled scenario, or a TOML file.")] = "quick",
    model: common.Models = None,
    seeds: Annotated[
        int | None, Option(min=1, max=10_000, help="Seeds, in place of the scenario's.")
    ] = None,
    workers: Annotated[
        int | None, Option(min=1, max=common.PROCESSES_MAX, help="Processes (default: CPU count).")
    ] = None,
    cluster: common.ClusterPlace = None,
    forecast: Annotated[
        int,
        Option(
            min=0,
            max=100_000,
            metavar="DRAWS",
            help="Also forecast what a run on the device will show, from this many posterior draws "
            "of the latencies (0: none; 200 is a good number).",
        ),
    ] = 0,
    out_dir: Annotated[
        Path | None, common.OutOption(help="Results (default: tuning/simulations/SCENARIO).")
    ] = None,
    json: common.Json = False,
) -> None:
    """Replay search strategies against recorded measurements.

    Example: toolkit simulate --scenario enumerated --model tuning/models/throughput --seeds 25
    """
    from toolkit.replay import load_scenario
    from toolkit.replay import simulate as replay
    from toolkit.training.trained.models import load_trained

    chosen = load_scenario(scenario)
    folder = out_dir or Workspace().simulation(chosen.name)
    progress = common.BarProgress()
    with common.workers_or_cluster(workers, cluster, progress) as found:
        summary = replay(
            common.opened_dataset(dataset),
            chosen,
            models=load_trained(model),
            seeds=seeds,
            workers=found or os.cpu_count() or 1,
            out=folder,
            forecast_draws=forecast,
            progress=progress,
        )
    common.answer({**summary, "out": str(folder)}, json, _show)


def efforts(near: str = "1pct", name: str = "strategy") -> dict[str, Callable[[Any], str]]:
    """Return columns for what strategies (or schedulers) need to come near the best recorded."""
    return {
        name: itemgetter(name),
        ">evaluations": lambda row: interval_text(row, f"median_evaluations_to_{near}"),
        ">seconds": lambda row: interval_text(row, f"median_seconds_to_{near}"),
        ">reached": lambda row: show.percent(row["reached_share"], 0),
    }


def _show(summary: Mapping[str, Any]) -> None:
    """Print a row per strategy: evaluations and seconds to within 1 %, share reached, coverage."""
    tasks, strategies = summary["tasks"], summary["strategies"]
    enumerated = sum(task["enumerated"] for task in tasks.values())
    ranks = {row["strategy"]: row["rank"] for row in summary["comparisons"]["ranking"]}
    print_table(
        {
            **efforts(),
            ">coverage": lambda row: show.percent(row["coverage"], 0),
            ">area": lambda row: f"{row['auc']:.3f}",
            ">rank": lambda row: str(ranks[row["strategy"]]),
        },
        [
            {**strategies[name], "strategy": name}
            for name in sorted(strategies, key=lambda one: ranks[one])
        ],
        title=f"{len(tasks)} tasks ({enumerated} enumerated), {summary['seeds']} seeds: to within "
        "1 % of the best recorded",
        caption=f"{CAPTION}\n{RANKED_BY}",
        box=None,
        pad_edge=False,
    )
    _show_ties(summary["comparisons"])
    if "network" in summary:
        network = summary["network"]
        print_table(
            {
                **efforts("5pct", "scheduler"),
                ">reached": lambda row: show.percent(row["reached_share_5pct"], 0),
            },
            [{**row, "scheduler": name} for name, row in network["schedulers"].items()],
            title=f"{show.plural(len(network['networks']), 'network')}: the weighted sum of "
            "latencies to within 5 % of the best recorded",
            caption=CAPTION,
        )
    if "forecast" in summary:
        _show_forecast(summary["forecast"])
    for missing in summary["left_out"]:
        note(f"left out: {missing['strategy']} ({missing['reason']})")
    note(f"written to {summary['out']}")


def _show_ties(comparisons: Mapping[str, Any]) -> None:
    """Say which strategies are tied with the first place, and how many tasks would decide."""
    from toolkit.replay.statistics.power import told_power

    can, (first, *_) = comparisons["power"], comparisons["ranking"]
    if can is None:
        return
    if not can["can_decide"]:
        say(f"{told_power(can)}.")
        return
    for pair in comparisons["pairs"]:
        names = {pair["first"], pair["second"]}
        if first["strategy"] not in names or pair["verdict"] != "tied":
            continue
        (other,) = names - {first["strategy"]}
        more = pair["tasks_to_decide"]
        how = "" if more is None else f": about {show.number(more)} tasks like these would decide"
        say(f"{first['strategy']} and {other} are tied{how}.")


def _show_forecast(forecast: Mapping[str, Any]) -> None:
    """Print a row per strategy: the forecast of one run on the device, with its interval."""

    def share(name: str) -> Callable[[Any], str]:
        return lambda row: bracketed(row[1][name], row[1][f"{name}_interval"], digits=2)

    print_table(
        {
            "strategy": itemgetter(0),
            ">seen, mean over the run": share("auc"),
            ">seen at its end": share("final"),
            ">worth of its choice": share("chosen"),
        },
        sorted(forecast["strategies"].items(), key=lambda row: -row[1]["auc"]),
        title="forecast of one run on the device, mean of "
        f"{show.plural(len(forecast['tasks']), 'task')}: "
        f"{forecast['nominal']:.0%} intervals of {forecast['draws']} draws",
        caption="seen: best recorded latency over best seen; worth: best latency over the choice's",
    )
    if forecast["left_out"]:
        note(
            f"not forecast: {show.plural(len(forecast['left_out']), 'task')} with unknown noise "
            "(one reading per program)"
        )
