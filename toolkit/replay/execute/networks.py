"""Replay of whole networks: a scheduler gives rounds to the tasks, a strategy searches each.

The objective is the weighted sum of the tasks' best latencies, in recorded values. Schedulers
get a task's number of operations and its family of operators, if the features know them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from toolkit.cluster import Cluster
from toolkit.datasets.read.labels import network_weights
from toolkit.features.computations import Computation, computations
from toolkit.progress import Progress
from toolkit.records import content_id
from toolkit.replay.execute.task_run import strategy_of
from toolkit.replay.execute.work import Name, ReplayContext, Work, finish
from toolkit.replay.record.oracle import RecordedOracle
from toolkit.replay.scenario import NetworkChoice, Scenario
from toolkit.replay.statistics.metrics import NAMES, THRESHOLDS
from toolkit.replay.statistics.statistics import Resamples, figure, mean, median
from toolkit.search.network import NetworkRun, NetworkTask, run_network
from toolkit.search.runner import Budget, SimulatedClock
from toolkit.search.schedulers import SCHEDULERS


def simulate_networks(
    dataset: Any,
    network: NetworkChoice,
    context: ReplayContext,
    progress: Progress,
    workers: int | Cluster = 1,
) -> dict[str, Any]:
    """Replay every network with every scheduler; see ``docs/explanation/replay.md``."""
    networks = find_networks(dataset, list(context.tables), network.by)
    known = computations(dataset)
    works = [
        Work(
            names=[("network", str(seed), name, scheduler)],
            size=len(weights),
            make=partial(
                _network_row, network, weights, {t: known[t] for t in weights if t in known}
            ),
        )
        for name, weights in networks.items()
        for scheduler in network.schedulers
        for seed in range(context.scenario.seeds)
    ]
    rows = list(finish("scheduling", works, context, progress, workers).values())
    return {
        "networks": {name: {"tasks": weights} for name, weights in networks.items()},
        "schedulers": {
            scheduler: _summarise(scheduler, rows, len(networks), context.scenario)
            for scheduler in network.schedulers
        },
        "runs": rows,
    }


def find_networks(dataset: Any, tasks: Sequence[str], label: str) -> dict[str, dict[str, float]]:
    """Tasks of each network and how often it runs them, from a label of the sources.

    Weights are those of ``toolkit.datasets.read.labels.network_weights``.
    Without that label the whole dataset is one network, every task with weight 1.
    """
    wanted = set(tasks)
    rows = dataset.records(["task_id", "source_id"]).unique().collect().iter_rows()
    pairs = [(task_id, source_id) for task_id, source_id in rows if task_id in wanted]
    found = network_weights(pairs, dataset.source_labels(), (label,))
    return found or {"all tasks": dict.fromkeys(sorted(wanted), 1.0)}


def replay_network(
    network: NetworkChoice,
    weights: Mapping[str, float],
    context: ReplayContext,
    scheduler: str,
    seed: int,
    computed: Mapping[str, Computation] | None = None,
) -> tuple[NetworkRun, list[float]]:
    """Replay one network; return the run and its objective in recorded values after each round.

    ``computed`` is what tasks compute, by id, as far as it is known.
    """
    scenario = context.scenario
    oracles, tasks = [], []
    for space, guides in context.guided(*map(context.tables.__getitem__, weights)):
        strategy = strategy_of(space, scenario.strategies[0], seed, **guides)
        oracles.append(RecordedOracle(space, seed=seed, missing=scenario.missing))
        task = space.task
        known = (computed or {}).get(task.task_id)
        kind, flops = (task.workload, None) if known is None else (known.family, known.flops)
        tasks.append(NetworkTask(strategy, oracles[-1], weights[task.task_id], kind, flops))
    evaluations = scenario.budget.evaluations
    if evaluations is None and scenario.budget.seconds is None:
        evaluations = network.rounds_per_task * network.round_size * len(tasks)
    key = int(content_id("scheduler", scheduler, *weights), 16)
    run = run_network(
        tasks,
        SCHEDULERS.get(scheduler)(
            network.options.get(scheduler), np.random.default_rng([seed, key])
        ),
        Budget(evaluations, scenario.budget.seconds),
        round_size=network.round_size,
        clock=SimulatedClock(scenario.measuring_workers),
        count_strategy_time=scenario.count_strategy_time,
    )
    paid = [oracle.table.occasion_value_s[oracle.occasions] for oracle in oracles]
    values = [iter(np.nan_to_num(seconds, nan=np.inf).tolist()) for seconds in paid]
    best = [np.inf] * len(tasks)
    objective = []
    for chosen, measured in zip(run.chosen, np.diff(run.evaluations, prepend=0), strict=True):
        best[chosen] = min([best[chosen], *islice(values[chosen], int(measured))])
        objective.append(sum(w * value for w, value in zip(weights.values(), best, strict=True)))
    return run, objective


def _network_row(
    network: NetworkChoice,
    weights: Mapping[str, float],
    computed: Mapping[str, Computation],
    context: ReplayContext,
    name: Name,
) -> dict[str, Any]:
    """Return the figures of one run; ``None`` for a goal that it did not reach."""
    _, seed, network_name, scheduler = name
    run, objective = replay_network(network, weights, context, scheduler, int(seed), computed)
    best = sum(w * float(context.tables[t].best_s or np.inf) for t, w in weights.items())
    out: dict[str, Any] = {
        "network": network_name,
        "scheduler": scheduler,
        "seed": int(seed),
        "evaluations": run.evaluations[-1],
        "seconds": run.clock_s[-1],
        "objective_s": objective[-1] if np.isfinite(objective[-1]) else None,
        "best_recorded_s": best,
    }
    for share, goal in zip(THRESHOLDS, NAMES, strict=True):
        at = next((i for i, value in enumerate(objective) if value <= best * (1 + share)), None)
        out[f"evaluations_to_{goal}"] = None if at is None else run.evaluations[at]
        out[f"seconds_to_{goal}"] = None if at is None else run.clock_s[at]
    out["curve"] = {
        "evaluations": run.evaluations,
        "relative": [best / value for value in objective],
    }
    return out


def _summarise(
    scheduler: str, rows: Sequence[Mapping[str, Any]], networks: int, scenario: Scenario
) -> dict[str, Any]:
    resamples = Resamples.draw(networks, scenario.seeds, scenario.resamples)
    mine = [row for row in rows if row["scheduler"] == scheduler]
    out: dict[str, Any] = {"scheduler": scheduler}
    for goal in NAMES:
        for unit in ("evaluations", "seconds"):
            key = f"{unit}_to_{goal}"
            reached = [np.inf if row[key] is None else row[key] for row in mine]
            values = np.array(reached, dtype=np.float64).reshape(networks, scenario.seeds)
            out |= figure(f"median_{key}", values, median, resamples, scenario.confidence)
        out[f"reached_share_{goal}"] = float(mean(np.isfinite(values).astype(np.float64).ravel()))
    return out
