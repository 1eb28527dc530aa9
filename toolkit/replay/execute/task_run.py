"""All runs of one strategy on one task, seed after seed: the unit of work that is kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from toolkit.errors import SearchError
from toolkit.records import content_id
from toolkit.replay.record.oracle import RecordedOracle
from toolkit.replay.record.space import RecordedSpace
from toolkit.replay.scenario import Scenario, StrategyChoice
from toolkit.replay.statistics.metrics import Replayed, run_metrics
from toolkit.search import STRATEGIES
from toolkit.search.base import DirectionScorer, Scorer, Space, Strategy
from toolkit.search.runner import Budget, Run, SimulatedClock, run


@dataclass(frozen=True)
class SeedRun:
    """One run and its metrics."""

    seed: int
    replayed: Replayed
    metrics: dict[str, float | int | str | None]


def generator(seed: int, task_id: str, label: str) -> np.random.Generator:
    """Return the strategy's generator: another one for every seed, task and strategy."""
    return np.random.default_rng([seed, int(content_id("strategy", task_id, label), 16)])


def strategy_of(
    space: Space,
    choice: StrategyChoice,
    seed: int,
    *,
    scorer: Scorer | None = None,
    direction_scorer: DirectionScorer | None = None,
) -> Strategy:
    """Make a scenario's strategy for one run: over a record, or over the space of a device."""
    plugin: Any = STRATEGIES.get(choice.name)
    strategy: Strategy = plugin(
        space,
        choice.options,
        generator(seed, space.task.task_id, choice.label),
        scorer=scorer,
        direction_scorer=direction_scorer,
    )
    return strategy


def replay_once(
    space: RecordedSpace,
    choice: StrategyChoice,
    scenario: Scenario,
    seed: int,
    *,
    scorer: Scorer | None = None,
    direction_scorer: DirectionScorer | None = None,
) -> SeedRun:
    """Replay one strategy on one task with one seed."""
    strategy = strategy_of(space, choice, seed, scorer=scorer, direction_scorer=direction_scorer)
    oracle = RecordedOracle(space, seed=seed, missing=scenario.missing)
    result = run_over(oracle, strategy, choice, scenario, seed)
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
    space = oracle.space
    return run(
        strategy,
        oracle,
        Budget(
            evaluations=scenario.budget.evaluations or len(space.table),
            seconds=scenario.budget.seconds,
        ),
        batch_size=choice.batch_size or scenario.batch_size,
        clock=SimulatedClock(scenario.measuring_workers),
        seed=seed,
        count_strategy_time=scenario.count_strategy_time,
        stop=_at_best(space, oracle) if scenario.stop_at_best else None,
    )


def _at_best(space: RecordedSpace, oracle: RecordedOracle) -> Any:
    """Build a test for "the best recorded candidate was measured, successfully"."""
    table = space.table
    best = table.best_s
    if best is None:
        raise SearchError(f"no candidate of task {table.task.task_id} ever succeeded")
    owner = np.repeat(np.arange(len(table)), table.occasions)
    hit: NDArray[np.bool_] = (table.value_s[owner] <= best) & np.isfinite(table.latency_s)
    winners = frozenset(np.flatnonzero(hit).tolist())

    def stop(result: object, trials: Any) -> bool:
        return not winners.isdisjoint(oracle.occasions[len(oracle.occasions) - len(trials) :])

    return stop


def deterministic(runs: list[SeedRun]) -> bool:
    """Whether all seeds gave the same sequence of candidates."""
    first = runs[0].replayed.candidate
    return all(np.array_equal(first, r.replayed.candidate) for r in runs[1:])
