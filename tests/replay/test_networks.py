"""Replay of networks: objective in recorded values, schedulers compared under the same luck."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import loglines
import numpy as np
import pytest
from toy_tables import ToyDataset, toy_task

from toolkit.datasets import ingest, open_dataset
from toolkit.errors import RecipeError, SearchError
from toolkit.replay import TrainedModels, load_tables, parse_scenario, simulate
from toolkit.replay.execute import networks
from toolkit.replay.execute.networks import find_networks, replay_network
from toolkit.replay.execute.work import ReplayContext
from toolkit.search.network import NetworkRun, NetworkTask, run_network

CONTENT: dict[str, Any] = {
    "name": "toy",
    "tasks": {"minimum_candidates": 10},
    "strategy": [{"name": "random"}],
    "network": {"round_size": 5, "rounds_per_task": 15},
    "seeds": 3,
    "resamples": 100,
}


def test_without_a_label_all_tasks_are_one_network() -> None:
    data = ToyDataset(3)
    tasks = list(data.tasks())
    assert find_networks(data, tasks, "network") == {"all tasks": dict.fromkeys(sorted(tasks), 1.0)}


def test_networks_come_from_the_sources_labels() -> None:
    data = ToyDataset(2)
    data.networks = {"log": "resnet"}
    tasks = list(data.tasks())
    assert find_networks(data, tasks, "network") == {"resnet": dict.fromkeys(sorted(tasks), 1.0)}
    assert find_networks(data, tasks[:1], "network") == {"resnet": {tasks[0]: 1.0}}


def replayed(
    folder: Path, tables: Any, weights: dict[str, float], **other: Any
) -> tuple[NetworkRun, list[float]]:
    """One run with every task's round in turn, and its objective after each round."""
    scenario = parse_scenario(CONTENT | other)
    assert scenario.network is not None
    context = ReplayContext(scenario, TrainedModels(), folder, tables)
    return replay_network(scenario.network, weights, context, "round-robin", 0)


def test_the_objective_is_the_weighted_sum_of_recorded_values(tmp_path: Path) -> None:
    tables = load_tables(ToyDataset(2, occasions=3, noise=0.2))
    first, second = toy_task(0).task_id, toy_task(1).task_id
    weights = {first: 2.0, second: 1.0}
    run, objective = replayed(tmp_path, tables, weights)
    assert len(objective) == len(run.chosen) == 30
    best = [float(np.nanmin(tables[t].value_s)) for t in (first, second)]
    assert objective[-1] == pytest.approx(2 * best[0] + best[1])  # all was measured
    finite = [value for value in objective if np.isfinite(value)]
    assert (np.diff(finite) <= 0).all()


def test_a_summary_for_every_scheduler(tmp_path: Path) -> None:
    summary = simulate(ToyDataset(3), parse_scenario(CONTENT), out=tmp_path)["network"]
    assert set(summary["schedulers"]) == {"round-robin", "gradient", "bandit"}
    for row in summary["schedulers"].values():
        low, high = row["median_evaluations_to_1pct_interval"]
        assert low <= row["median_evaluations_to_1pct"] <= high
        assert row["reached_share_1pct"] == 1.0
    again = simulate(ToyDataset(3), parse_scenario(CONTENT))["network"]
    assert again == summary


def test_schedulers_are_told_what_tasks_compute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A convolution's rounds are guessed from what another one reaches for its operations."""
    line = loglines.autotvm(costs=[1e-3])
    loglines.write(tmp_path / "logs" / "product.json", line)
    ingest(tmp_path / "logs", tmp_path / "dataset", machine="box")
    told: list[NetworkTask] = []

    def listening(tasks: Sequence[NetworkTask], *args: Any, **kwargs: Any) -> NetworkRun:
        told.extend(tasks)
        return run_network(tasks, *args, **kwargs)

    monkeypatch.setattr(networks, "run_network", listening)
    simulate(
        open_dataset(tmp_path / "dataset"),
        parse_scenario(CONTENT | {"tasks": {"minimum_candidates": 1}, "seeds": 1}),
        out=tmp_path / "out",
    )
    assert {task.kind for task in told} == {"matmul"}
    assert all(task.flops is not None and task.flops > 0 for task in told)


def test_the_time_to_think_is_counted_on_request(tmp_path: Path) -> None:
    tables = load_tables(ToyDataset(2))
    weights = dict.fromkeys(tables, 1.0)
    plain, thinking = (
        replayed(tmp_path, tables, weights, count_strategy_time=counted)[0]
        for counted in (False, True)
    )
    assert thinking.chosen == plain.chosen
    assert all(t > p for t, p in zip(thinking.clock_s, plain.clock_s, strict=True))


def test_an_unknown_scheduler_is_named() -> None:
    with pytest.raises(RecipeError, match="gradient"):
        parse_scenario(CONTENT | {"network": {"schedulers": ["gradeint"]}})


def test_a_wrong_option_of_a_scheduler_is_told_before_anything_is_replayed(tmp_path: Path) -> None:
    content = CONTENT | {"network": {"options": {"gradient": {"alpah": 0.1}}}}
    with pytest.raises(SearchError, match="alpah"):
        simulate(ToyDataset(1), parse_scenario(content), out=tmp_path)
    assert not list(tmp_path.rglob("*.json"))
