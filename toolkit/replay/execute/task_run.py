"""Runs of one strategy on one task: a single one, all seeds, and the files of their results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from toolkit.atomic import replacing
from toolkit.records import Trial, content_id
from toolkit.replay.execute.work import Name, ReplayContext
from toolkit.replay.record.models import StrategyModels
from toolkit.replay.record.oracle import RecordedOracle
from toolkit.replay.record.space import RecordedSpace
from toolkit.replay.record.table import STATES, RecordedTable
from toolkit.replay.scenario import Scenario, StrategyChoice
from toolkit.replay.statistics.methodology import SpaceFacts, score_runs
from toolkit.replay.statistics.metrics import Replayed, improvements, relative_at, run_metrics
from toolkit.replay.statistics.summary import Rows
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

    Its generator depends on the seed, the task and the label.
    """
    key = int(content_id("strategy", space.task.task_id, choice.label), 16)
    rng = np.random.default_rng([seed, key])
    strategy: Strategy = STRATEGIES.get(choice.name)(space, choice.options, rng, **guides)
    return strategy


def replay_once(
    space: RecordedSpace,
    choice: StrategyChoice,
    scenario: Scenario,
    seed: int,
    **guides: Unpack[StrategyModels],
) -> SeedRun:
    """Replay one strategy on one task with one seed."""
    table, oracle = space.table, RecordedOracle(space, seed=seed, missing=scenario.missing)
    result = run_over(oracle, strategy_of(space, choice, seed, **guides), choice, scenario)
    occasions = np.array(oracle.occasions, dtype=np.int64)
    replayed = Replayed(
        candidate=table.owner[occasions],
        state=table.state[occasions],
        latency_s=table.latency_s[occasions],
        value_s=table.occasion_value_s[occasions],
        clock_s=np.array(result.clock_s, dtype=np.float64),
        missed_at=np.array(oracle.missed_at, dtype=np.int64),
        proposals=result.proposals,
        substituted=oracle.substituted,
        budget=scenario.budget.evaluations or len(table),
        stopped=result.stopped,
    )
    return SeedRun(seed, replayed, run_metrics(table, replayed))


def run_over(
    oracle: RecordedOracle, strategy: Strategy, choice: StrategyChoice, scenario: Scenario
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
        count_strategy_time=scenario.count_strategy_time,
        stop=at_best if scenario.stop_at_best else None,
    )


def replay_seeds(
    table: RecordedTable, grids: Mapping[str, Sequence[float]], context: ReplayContext, name: Name
) -> list[dict[str, Any]]:
    """Replay a strategy on a task for all seeds; return the metrics and curves of each run.

    ``name`` ends with the strategy's label. The evaluations are written to a Parquet file.
    """
    _, task_id, label = name
    scenario = context.scenario
    choice = scenario.strategies[scenario.labels.index(label)]
    ((space, guides),) = context.guided(table)
    runs = [replay_once(space, choice, scenario, seed, **guides) for seed in range(scenario.seeds)]
    state = np.random.RandomState(int(content_id("score", task_id, label), 16) % 2**32)
    score = score_runs(SpaceFacts.of(table), [one.replayed for one in runs], state)
    with replacing(context.path(name, ".parquet")) as temporary:
        content = runs_table(table, scenario.name, label, runs)
        pq.write_table(content, temporary, compression="zstd")
    rows = []
    for one in runs:
        seconds, values = improvements(one.replayed, "seconds")
        steps = {"seconds": seconds.tolist(), "values": values.tolist()}
        curves = {
            f"curve_{unit}": relative_at(one.replayed, table.best_s, unit, grid)
            for unit, grid in grids.items()
        }
        rows.append({"seed": one.seed, **one.metrics, "steps": steps, "score": score, **curves})
    return rows


def runs_table(
    table: RecordedTable, scenario: str, label: str, runs: Sequence[SeedRun]
) -> pa.Table:
    """One row per evaluation: what was measured, what it cost, and the best so far."""
    each = [run.replayed for run in runs]
    lengths = [len(run.candidate) for run in each]
    first = np.zeros(sum(lengths), np.int32)
    join = np.concatenate

    def words(numbers: NDArray[Any], texts: Sequence[str]) -> pa.Array:
        return pa.DictionaryArray.from_arrays(
            pa.array(numbers.astype(np.int32)), pa.array(list(texts))
        )

    return pa.table(
        {
            "scenario": words(first, [scenario]),
            "strategy": words(first, [label]),
            "task_id": words(first, [table.task.task_id]),
            "seed": np.repeat([run.seed for run in runs], lengths).astype(np.int32),
            "evaluation": join([np.arange(1, n + 1) for n in lengths]).astype(np.int32),
            "clock_s": join([run.clock_s for run in each]),
            "candidate_id": words(join([run.candidate for run in each]), table.candidate_ids),
            "state": words(join([run.state for run in each]), [s.value for s in STATES]),
            "latency_s": pa.array(join([run.latency_s for run in each]), from_pandas=True),
            "value_s": pa.array(join([run.value_s for run in each]), from_pandas=True),
            "best_s": pa.array(join([run.best_s() for run in each]), from_pandas=True),
            "missed": join(
                [
                    np.searchsorted(run.missed_at, np.arange(n), side="right")
                    for run, n in zip(each, lengths, strict=True)
                ]
            ).astype(np.int32),
        }
    )


def write_runs(tables: Sequence[Path], target: Path) -> None:
    """Concatenate files of ``runs_table``, in this order."""
    with (
        replacing(target) as temporary,
        pq.ParquetWriter(temporary, pq.read_schema(tables[0]), compression="zstd") as writer,
    ):
        for path in tables:
            writer.write_table(pq.read_table(path))


def write_results(rows: Rows, scenario: str, target: Path) -> None:
    """Write one row per run with all its metrics."""
    flat = [
        {"scenario": scenario, "strategy": label, "task_id": task_id}
        | {k: v for k, v in row.items() if not k.startswith("curve_") and k != "steps"}
        for (task_id, label), runs in rows.items()
        for row in runs
    ]
    names = list(dict.fromkeys(name for row in flat for name in row))
    frame = pl.DataFrame({name: [row.get(name) for row in flat] for name in names}, strict=False)
    with replacing(target) as temporary:
        frame.write_parquet(temporary, compression="zstd")
