"""Replay against what real tuners did: the same order, and evaluations that agree."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from toolkit.datasets import ingest, open_dataset
from toolkit.replay import RecordedOracle, RecordedSpace, RecordedTable, load_tables, parse_scenario
from toolkit.replay.execute.task_run import replay_once
from toolkit.search import STRATEGIES
from toolkit.search.runner import Budget, SimulatedClock, run

pytestmark = pytest.mark.real_logs

RYZEN = "autotvm-0.2-ryzen3700x"


def table_of(logs: Sequence[Path], folder: Path) -> tuple[RecordedTable, pl.DataFrame]:
    """Ingest the logs of one task; return its table and its records in order."""
    ingest(list(logs), folder, machine="ryzen3700x")
    dataset = open_dataset(folder)
    (table,) = load_tables(dataset).values()
    columns = ["source_id", "order", "candidate_id", "latency_s", "state"]
    return table, dataset.records(columns).sort("source_id", "order").collect()


def log(real_logs: Path, network: str, tuner: str, layer: int) -> Path:
    return real_logs / RYZEN / network / tuner / f"cpu.log_layer_{layer}.log.gz"


@pytest.mark.parametrize(
    ("network", "layer", "version"),
    [("resnet-18", 3, "2023"), ("vgg-16", 2, "2023"), ("bert", 1, "tvm"), ("bert", 5, "tvm")],
)
def test_droplet_repeats_a_recorded_run_configuration_by_configuration(
    real_logs: Path, tmp_path: Path, network: str, layer: int, version: str
) -> None:
    """Fed with the results of the recorded run, it asks for the recorded order."""
    whole, _ = table_of([log(real_logs, network, "gridsearch", layer)], tmp_path / "grid")
    own, records = table_of([log(real_logs, network, "droplet", layer)], tmp_path / "own")
    grid, alone = RecordedSpace(whole), RecordedSpace(own)
    strategy = STRATEGIES.get("droplet-faithful")(
        grid, {"version": version}, np.random.default_rng(0)
    )
    asked: list[str] = []
    recorded = records["candidate_id"].to_list()
    while len(asked) < len(recorded):
        batch = strategy.ask(16)
        assert batch
        asked += [candidate.candidate_id for candidate in batch]
        numbers = alone.index_of(batch)
        assert (numbers >= 0).all()
        strategy.tell([own.trials[int(own.offsets[number])] for number in numbers])
    assert asked == recorded


@pytest.mark.parametrize(
    ("tuner", "choice"),
    [
        ("random", {"name": "random"}),
        ("gridsearch", {"name": "grid"}),
        ("ga", {"name": "genetic", "options": {"population": 50, "revisit": False}}),
    ],
)
def test_real_evaluations_lie_in_the_simulated_interval(
    real_logs: Path, tmp_path: Path, tuner: str, choice: dict[str, object]
) -> None:
    """Two layers of one network; the wider check over all tasks is in the documentation."""
    for layer in (1, 3):
        _, records = table_of([log(real_logs, "resnet-18", tuner, layer)], tmp_path / f"{layer}")
        complete, _ = table_of(
            [log(real_logs, "resnet-18", t, layer) for t in ("gridsearch", "random", "xgb")],
            tmp_path / f"all{layer}",
        )
        best = complete.best_s
        assert best is not None
        values = dict(zip(complete.candidate_ids, complete.value_s.tolist(), strict=True))
        order = [values[c] for c in records["candidate_id"].to_list()]  # repeats count
        real = next(i for i, value in enumerate(order) if value <= 1.01 * best) + 1
        scenario = parse_scenario({"name": "x", "batch_size": 16, "strategy": [choice]})
        space = RecordedSpace(complete)
        simulated = [
            replay_once(space, scenario.strategies[0], scenario, seed).metrics[
                "evaluations_to_1pct"
            ]
            for seed in range(40)
        ]
        reached = sorted(float(s) for s in simulated if s is not None)
        low, high = reached[0], reached[-1] if len(reached) == 40 else np.inf
        # 40 runs: outside their range lies one real run in twenty.
        assert low <= real <= high


def test_a_run_of_random_search_meets_its_closed_form(real_logs: Path, tmp_path: Path) -> None:
    table, _ = table_of([log(real_logs, "bert", "gridsearch", 5)], tmp_path / "grid")
    space = RecordedSpace(table)
    reached = []
    for seed in range(200):
        strategy = STRATEGIES.get("random")(space, None, np.random.default_rng(seed))
        oracle_run = run(strategy, RecordedOracle(space), Budget(), clock=SimulatedClock())
        latencies = np.array([t.latency_s or np.inf for t in oracle_run.trials])
        assert table.best_s is not None
        reached.append(int(np.flatnonzero(latencies <= 1.01 * table.best_s)[0]) + 1)
    good = int((table.value_s <= 1.01 * float(table.best_s or 0)).sum())
    expected = (len(table) + 1) / (good + 1)
    assert abs(np.mean(reached) - expected) < 4 * np.std(reached) / np.sqrt(len(reached))
