"""Replay of whole networks: a scheduler gives rounds to the tasks, a strategy searches each.

The objective is the weighted sum of the tasks' best latencies, in recorded values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from toolkit.datasets.read.labels import network_weights, source_labels
from toolkit.records import content_id
from toolkit.replay.execute.task_run import generator
from toolkit.replay.record.models import ModelSet
from toolkit.replay.record.oracle import RecordedOracle
from toolkit.replay.record.space import RecordedSpace
from toolkit.replay.record.table import RecordedTable
from toolkit.replay.scenario import Scenario
from toolkit.replay.statistics.metrics import NAMES, THRESHOLDS
from toolkit.search import STRATEGIES
from toolkit.search.base import DirectionScorer, Scorer
from toolkit.search.network import NetworkRun, NetworkTask, run_network
from toolkit.search.runner import Budget, SimulatedClock
from toolkit.search.schedulers import SCHEDULERS

FloatArray = NDArray[np.float64]
Guided = tuple[RecordedSpace, Scorer | None, DirectionScorer | None]


def find_networks(dataset: Any, tasks: Sequence[str], label: str) -> dict[str, dict[str, float]]:
    """Tasks of each network and how often it runs them, from a label of the sources.

    Weights are those of ``toolkit.datasets.read.labels.network_weights``.
    Without that label the whole dataset is one network, every task with weight 1.
    """
    wanted = set(tasks)
    rows = dataset.records(["task_id", "source_id"]).unique().collect().iter_rows()
    pairs = [(task_id, source_id) for task_id, source_id in rows if task_id in wanted]
    found = network_weights(pairs, source_labels(dataset.sources()), (label,))
    return found or {"all tasks": dict.fromkeys(sorted(wanted), 1.0)}


class _Valued(RecordedOracle):
    """A recorded oracle whose measurements are kept apart from the values they are judged by."""

    def best_value(self) -> float:
        """Lowest recorded value among what was measured successfully, infinite for none."""
        occasions = np.array(self.occasions, dtype=np.int64)
        ok = occasions[np.isfinite(self.table.latency_s[occasions])]
        owners = np.searchsorted(self.table.offsets, ok, side="right") - 1
        return float(self.table.value_s[owners].min()) if len(owners) else float("inf")


class NetworkBench:
    """Tables and models, and what is made of them once for all runs: spaces and scorers."""

    def __init__(self, tables: Mapping[str, RecordedTable], models: ModelSet) -> None:
        self.tables = tables
        self._models = models
        self._made: dict[str, Guided] = {}

    def of(self, task_id: str) -> Guided:
        """Return the space of a task with the models that guide a search of it."""
        if task_id not in self._made:
            space = RecordedSpace(self.tables[task_id])
            self._made[task_id] = (
                space,
                self._models.scorer(space),
                self._models.direction_scorer(space),
            )
        return self._made[task_id]


def replay_network(
    bench: NetworkBench, weights: Mapping[str, float], scheduler: str, scenario: Scenario, seed: int
) -> tuple[NetworkRun, FloatArray]:
    """Replay one network; return the run and its objective in recorded values after each round."""
    assert scenario.network is not None
    choice, network = scenario.strategies[0], scenario.network
    tasks, oracles = [], []
    for task_id, weight in weights.items():
        space, scorer, direction_scorer = bench.of(task_id)
        plugin: Any = STRATEGIES.get(choice.name)
        strategy = plugin(
            space,
            choice.options,
            generator(seed, task_id, choice.label),
            scorer=scorer,
            direction_scorer=direction_scorer,
        )
        oracle = _Valued(space, seed=seed, missing=scenario.missing)
        oracles.append(oracle)
        tasks.append(NetworkTask(strategy, oracle, weight, space.task.workload))
    made = SCHEDULERS.get(scheduler)(
        network.options.get(scheduler),
        np.random.default_rng([seed, int(content_id("scheduler", scheduler, *weights), 16)]),
    )
    evaluations = scenario.budget.evaluations
    if evaluations is None and scenario.budget.seconds is None:
        evaluations = network.rounds_per_task * network.round_size * len(tasks)
    values: list[float] = []

    class Watching:
        """Asks the scheduler, and writes the objective down before each of its rounds."""

        name = scheduler

        def choose(self, progress: Any) -> int:
            values.append(objective())
            return int(made.choose(progress))

    def objective() -> float:
        return sum(t.weight * o.best_value() for t, o in zip(tasks, oracles, strict=True))

    run = run_network(
        tasks,
        Watching(),
        Budget(evaluations, scenario.budget.seconds),
        round_size=network.round_size,
        clock=SimulatedClock(scenario.measuring_workers),
        count_strategy_time=scenario.count_strategy_time,
    )
    return run, np.array([*values[1:], objective()])


def network_metrics(run: NetworkRun, objective: FloatArray, best: float) -> dict[str, Any]:
    """Compute what one run achieved; ``None`` where it did not get there."""
    out: dict[str, Any] = {
        "evaluations": run.evaluations[-1] if run.evaluations else 0,
        "seconds": run.clock_s[-1] if run.clock_s else 0.0,
        "objective_s": float(objective[-1]) if np.isfinite(objective[-1]) else None,
        "best_recorded_s": best,
    }
    for share, name in zip(THRESHOLDS, NAMES, strict=True):
        hits = np.flatnonzero(objective <= best * (1 + share))
        at = int(hits[0]) if len(hits) else None
        out[f"evaluations_to_{name}"] = None if at is None else run.evaluations[at]
        out[f"seconds_to_{name}"] = None if at is None else run.clock_s[at]
    out["curve"] = {
        "evaluations": run.evaluations,
        "relative": [float(best / o) if np.isfinite(o) else 0.0 for o in objective],
    }
    return out
