"""Runs of one strategy on one task: a single one, and all seeds of a scenario."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.parquet as pq

from toolkit.atomic import replacing
from toolkit.records import Trial, content_id
from toolkit.replay.execute.files import runs_table
from toolkit.replay.execute.work import Name, ReplayContext
from toolkit.replay.record.models import StrategyModels
from toolkit.replay.record.oracle import RecordedOracle
from toolkit.replay.record.space import RecordedSpace
from toolkit.replay.record.table import RecordedTable
from toolkit.replay.scenario import Scenario, StrategyChoice
from toolkit.replay.statistics.methodology import SpaceFacts, score_runs
from toolkit.replay.statistics.metrics import Replayed, improvements, relative_at, run_metrics
from toolkit.search import STRATEGIES
from toolkit.search.base import Space, Strategy
from toolkit.search.runner import Budget, Run, SimulatedClock, run

if TYPE_CHECKING:
    from typing_extensions import Unpack


@dataclass(frozen=True)
class SeedRun:
    """One run and its metrics."""

    seed: int
    replayed: Replayed
    metrics: dict[str, float | int | str | None]


def strategy_of(
    space: Space, choice: StrategyChoice, seed: int, **guides: Unpack[StrategyModels]
) -> Strategy:
    """Make a scenario's strategy for one run: over a record, or over the space of a device.

    Its generator is another one for every seed, task and label.
    """
    plugin: Any = STRATEGIES.get(choice.name)
    key = int(content_id("strategy", space.task.task_id, choice.label), 16)
    rng = np.random.default_rng([seed, key])
    strategy: Strategy = plugin(space, choice.options, rng, **guides)
    return strategy


def replay_once(
    space: RecordedSpace,
    choice: StrategyChoice,
    scenario: Scenario,
    seed: int,
    **guides: Unpack[StrategyModels],
) -> SeedRun:
    """Replay one strategy on one task with one seed."""
    oracle = RecordedOracle(space, seed=seed, missing=scenario.missing)
    result = run_over(oracle, strategy_of(space, choice, seed, **guides), choice, scenario, seed)
    replayed = Replayed.from_occasions(
        space.table,
        oracle.occasions,
        result.clock_s,
        missed_at=oracle.missed_at,
        proposals=result.proposals,
        substituted=oracle.substituted,
        budget=scenario.budget.evaluations or len(space.table),
        stopped=result.stopped,
    )
    return SeedRun(seed, replayed, run_metrics(space.table, replayed))


def run_over(
    oracle: RecordedOracle,
    strategy: Strategy,
    choice: StrategyChoice,
    scenario: Scenario,
    seed: int,
) -> Run:
    """Let a strategy spend a scenario's budget on a record."""
    table = oracle.table

    def at_best(result: Run, trials: Sequence[Trial]) -> bool:
        measured = oracle.occasions[len(oracle.occasions) - len(trials) :]
        return not table.best_occasions.isdisjoint(measured)

    return run(
        strategy,
        oracle,
        Budget(scenario.budget.evaluations or len(table), scenario.budget.seconds),
        batch_size=choice.batch_size or scenario.batch_size,
        clock=SimulatedClock(scenario.measuring_workers),
        seed=seed,
        count_strategy_time=scenario.count_strategy_time,
        stop=at_best if scenario.stop_at_best else None,
    )


def replay_seeds(
    table: RecordedTable, grids: Mapping[str, Sequence[float]], context: ReplayContext, name: Name
) -> list[dict[str, Any]]:
    """Replay a strategy on a task, seed after seed; the metrics of each, with its curves.

    ``name`` ends in the strategy's label. Beside the metrics its evaluations are kept as Parquet.
    """
    _, task_id, label = name
    scenario = context.scenario
    choice = scenario.strategies[scenario.labels.index(label)]
    ((space, guides),) = context.guided(table)
    runs = [replay_once(space, choice, scenario, seed, **guides) for seed in range(scenario.seeds)]
    state = np.random.RandomState(int(content_id("score", task_id, label), 16) % 2**32)
    score = score_runs(SpaceFacts.of(table), [one.replayed for one in runs], state)
    with replacing(context.checkpoint.path(name, ".parquet")) as temporary:
        rows = runs_table(table, scenario.name, label, {r.seed: r.replayed for r in runs})
        pq.write_table(rows, temporary, compression="zstd")
    return [
        {
            "seed": one.seed,
            **one.metrics,
            "steps": improvements(one.replayed),
            "score": score,
            **{
                f"curve_{unit}": relative_at(one.replayed, table.best_s, unit, grid)
                for unit, grid in grids.items()
            },
        }
        for one in runs
    ]
