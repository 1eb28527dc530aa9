"""Replay strategies against a dataset's record: many tasks, many seeds, one summary."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import orjson

from toolkit import __version__
from toolkit.atomic import sweep, write_atomically
from toolkit.cluster import Cluster
from toolkit.errors import DatasetError
from toolkit.locks import one_writer
from toolkit.progress import SILENT, Progress
from toolkit.records import content_id
from toolkit.replay.execute.networks import simulate_networks
from toolkit.replay.execute.task_run import replay_seeds, write_results, write_runs
from toolkit.replay.execute.work import ReplayContext, Work, finish
from toolkit.replay.forecast.forecast import forecast_scenario
from toolkit.replay.record.readings import readings_of
from toolkit.replay.record.table import RecordedTable, good_candidates, load_tables
from toolkit.replay.scenario import Scenario, load_scenario, parse_scenario
from toolkit.replay.statistics.power import power, told_power
from toolkit.replay.statistics.summary import RunFigures, task_facts
from toolkit.results import Result
from toolkit.search import STRATEGIES
from toolkit.search.schedulers import SCHEDULERS
from toolkit.search.strategy import parse_options
from toolkit.show import plural
from toolkit.training.trained.models import TrainedModels, load_trained

SUMMARY_VERSION = 1
CURVE_POINTS = 40
KINDS = ("throughput", "mutation")
"""Models that a strategy may need, in the order in which missing ones are reported."""


@dataclass(frozen=True, repr=False)
class SimulationSummary(Result):
    """Result of a simulation; ``docs/reference/replay-figures.md`` defines its figures."""

    schema: int
    scenario: dict[str, Any]
    seeds: int
    strategies: dict[str, dict[str, Any]]
    tasks: dict[str, dict[str, Any]]
    per_task: list[dict[str, Any]]
    comparisons: dict[str, Any]
    curves: dict[str, dict[str, Any]]
    dataset: dict[str, str]
    models: dict[str, str]
    left_out: list[dict[str, str]]
    network: dict[str, Any] | None = None
    forecast: dict[str, Any] | None = None


@one_writer
def simulate(
    dataset: Any,
    scenario: str | Path | Scenario = "quick",
    *,
    models: TrainedModels | Sequence[str | Path] = (),
    seeds: int | None = None,
    workers: int | Cluster = 1,
    out: str | Path | None = None,
    forecast_draws: int = 0,
    progress: Progress = SILENT,
) -> SimulationSummary:
    """Replay a scenario and return its summary.

    Parameters
    ----------
    dataset
        Folder of a dataset, or an opened one.
    scenario
        Name of a bundled scenario, path of a TOML file, or a ``Scenario``.
    models
        Folders of trained models (one of each kind), or a ``TrainedModels``. Strategies that need a
        model which is not there are left out, and listed in the summary.
    seeds
        Number of seeds, instead of the scenario's.
    workers
        Processes, or a cluster; any number gives the same bytes.
    out
        Folder for ``runs.parquet``, ``results.parquet`` and ``summary.json``; a simulation that
        was interrupted goes on where it stopped.
    forecast_draws
        Also forecast what one run on the device will show, with this many posterior draws
        (``toolkit.replay.forecast``): the summary's ``forecast``.

    Raises
    ------
    DatasetError
        When no task fits the scenario, every strategy needs a model that is missing, or a forecast
        is wanted and no task's noise is known.
    RecipeError
        When a field of the scenario is wrong.
    LeakError
        When a model was trained on a task that is replayed.
    """
    if isinstance(dataset, (str, Path)):
        from toolkit.datasets import open_dataset

        dataset = open_dataset(dataset)
    if not isinstance(scenario, Scenario):
        scenario = load_scenario(scenario)
    if seeds is not None:
        # Defaults stay unset: the default baseline is not an explicit choice.
        said = scenario.model_dump(by_alias=True, exclude_unset=True)
        scenario = parse_scenario({**said, "seeds": seeds})
    if not isinstance(models, TrainedModels):
        models = load_trained(list(models))
    kept, left_out = _usable(scenario, models)
    scenario = scenario.model_copy(update={"strategies": tuple(kept)})
    good = good_candidates(dataset, scenario.tasks.ids or None)
    # Tables are made of these tasks alone: those of a whole archive take seconds.
    chosen = _choose(good, dataset.enumerated(), scenario)
    tables = load_tables(dataset, chosen, cost=scenario.cost)
    if absent := [task_id for task_id in scenario.tasks.ids if task_id not in tables]:
        progress.say(
            f"left out: {plural(len(absent), 'task')} that the scenario names (not in the "
            f"dataset, or not fit for the scenario): {', '.join(absent)}"
        )
    # The scenario's name is written in every row, so it is part of the key.
    made_from = (scenario.fingerprint(), dataset.fingerprint(), models.fingerprint)
    key = content_id(__version__, scenario.name, *made_from)
    # Raises before the replay if nothing can be forecast.
    readings = readings_of(tables) if forecast_draws else {}
    grids, labels = _grids(tables, scenario), scenario.labels
    if can := power(len(tables), scenario.seeds, len(labels), scenario.confidence):
        progress.say(told_power(can))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory())) if out is None else Path(out)
        # Results of other settings are never mixed in.
        parts = folder / "parts" / key
        parts.mkdir(parents=True, exist_ok=True)
        # After a failure, other processes leave unfinished files.
        stack.callback(sweep, parts)
        context = ReplayContext(scenario, models, parts)
        works = [
            Work(
                names=[("runs", task_id, label) for label in labels],
                size=len(table),
                make=partial(replay_seeds, table, grids),
            )
            for task_id, table in tables.items()
        ]
        found = finish("replaying", works, context, progress, workers)
        rows = {(task_id, label): runs for (_, task_id, label), runs in found.items()}
        network = forecast = None
        if scenario.network is not None:
            whole = replace(context, tables=tables)
            network = simulate_networks(dataset, scenario.network, whole, progress, workers)
        if forecast_draws:
            forecast = forecast_scenario(
                tables, readings, forecast_draws, context, progress, workers
            )
        figures = RunFigures(rows, list(tables), scenario)
        summary = SimulationSummary(
            schema=SUMMARY_VERSION,
            scenario=scenario.model_dump(mode="json", by_alias=True),
            seeds=scenario.seeds,
            strategies={label: figures.strategy(label) for label in labels},
            tasks={task_id: task_facts(table) for task_id, table in tables.items()},
            per_task=figures.per_task(),
            comparisons=figures.comparisons(),
            curves={
                unit: {"grid": grid, "strategies": {x: figures.curve(unit, x) for x in labels}}
                for unit, grid in grids.items()
            },
            dataset={"fingerprint": dataset.fingerprint()},
            models={"fingerprint": models.fingerprint},
            left_out=left_out,
            network=network,
            forecast=forecast,
        )
        if out is not None:
            files = [context.path(name, ".parquet") for name in found]
            write_runs(files, folder / "runs.parquet")
            write_results(rows, scenario.name, folder / "results.parquet")
            content = orjson.dumps(
                summary.to_json(), option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS
            )
            write_atomically(folder / "summary.json", content)
            _clear(parts.parent)
    return summary


def _clear(folder: Path) -> None:
    """Remove the pieces of this and earlier settings; other files in the folder stay."""
    for each in folder.iterdir():
        if re.fullmatch("[0-9a-f]{16}", each.name):
            shutil.rmtree(each, ignore_errors=True)
    with suppress(OSError):
        folder.rmdir()


def _usable(scenario: Scenario, models: TrainedModels) -> tuple[list[Any], list[dict[str, str]]]:
    """Split the scenario's strategies into those whose models are there, and the others."""
    kept, left_out = [], []
    if scenario.network is not None:
        for name, given in scenario.network.options.items():
            # A wrong option raises now, not after all tasks were replayed.
            parse_options(f"scheduler {name!r}", SCHEDULERS.get(name).Options, given)
    for choice in scenario.strategies:
        plugin = STRATEGIES.get(choice.name)
        options = parse_options(f"strategy {choice.name!r}", plugin.Options, choice.options)
        needs = plugin.models_for(options)
        absent = [kind for kind in KINDS if kind in needs and getattr(models, kind) is None]
        if absent:
            reason = f"needs a {absent[0]} model: run 'toolkit train {absent[0]}'"
            left_out.append({"strategy": choice.label, "reason": reason})
        else:
            kept.append(choice)
    if not kept:
        raise DatasetError(
            "every strategy of the scenario needs a trained model that is missing",
            cure="run 'toolkit train' first",
        )
    return kept, left_out


def _choose(
    good: Mapping[str, int], enumerated: Mapping[str, bool], scenario: Scenario
) -> list[str]:
    """Return the tasks that fit the scenario; raise ``DatasetError`` if there are none.

    ``good`` has the number of good candidates of each task that has any.
    """
    choice = scenario.tasks
    if not good:
        which = "that the scenario names " if choice.ids else ""
        raise DatasetError(
            f"no task {which}has a measurement that succeeded: there is nothing to replay",
            cure="see the tasks and their failures with 'toolkit describe'",
        )
    none = f"none of {len(good)} tasks fits scenario {scenario.name!r}"
    if choice.enumerated_only:
        good = {task_id: count for task_id, count in good.items() if enumerated.get(task_id)}
    if not good:
        raise DatasetError(
            f"{none}: it replays only spaces that were measured completely, and there is none",
            cure="use another scenario, or one without tasks.enumerated_only",
        )
    kept = [task_id for task_id, count in good.items() if count >= choice.minimum_candidates]
    if not kept:
        raise DatasetError(
            f"{none}: the largest has {max(good.values())} good candidates, "
            f"{choice.minimum_candidates} are needed",
            cure="use a scenario with a lower tasks.minimum_candidates",
        )
    return sorted(kept, key=lambda task_id: (-good[task_id], task_id))[: choice.largest]


def _grids(tables: Mapping[str, RecordedTable], scenario: Scenario) -> dict[str, list[float]]:
    """Points at which curves are drawn: evenly spaced in the logarithm."""
    most = max(scenario.budget.evaluations or len(t) for t in tables.values())
    evaluations = np.unique(np.geomspace(1, most, CURVE_POINTS).round())
    longest = max(float(t.elapsed_s.sum()) for t in tables.values())
    shortest = min(float(t.elapsed_s.min()) for t in tables.values())
    if scenario.budget.seconds is not None:
        longest = min(longest, scenario.budget.seconds)
    # A budget may end before the cheapest measurement does.
    begin = min(max(shortest, longest / 1e5), longest)
    seconds = np.geomspace(begin, longest, CURVE_POINTS)
    return {"evaluations": evaluations.tolist(), "seconds": [float(f"{s:.6g}") for s in seconds]}
