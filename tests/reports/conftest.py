"""A workspace in which everything was made by the toolkit's own commands, on small made-up logs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from made_autotvm import write_autotvm

from toolkit.datasets import ingest, open_dataset
from toolkit.replay import parse_scenario, simulate
from toolkit.reports import find_inputs, report_summary
from toolkit.training import train_mutation, train_throughput
from toolkit.training.recipes.recipe import DataOptions, ModelOptions, Recipe
from toolkit.workspace import Workspace

SHAPES = [(16, 32, 7), (32, 32, 7), (32, 64, 7), (16, 64, 14)]
SCENARIO: dict[str, Any] = {
    "name": "small",
    "description": "Three strategies on small made-up tasks.",
    "strategy": [{"name": "random"}, {"name": "grid"}, {"name": "genetic"}],
    "budget": {"evaluations": 48},
    "batch_size": 8,
    "seeds": 3,
    "resamples": 100,
}
NETWORKS: dict[str, Any] = {
    "name": "small-networks",
    "strategy": [{"name": "random"}],
    "budget": {"evaluations": 64},
    "batch_size": 8,
    "seeds": 2,
    "resamples": 100,
    "network": {"schedulers": ["round-robin", "bandit"], "round_size": 8, "rounds_per_task": 4},
}


def verdict(task_id: str, name: str, answer: str, ratio: float, half: float) -> dict[str, Any]:
    """One entry of ``verdicts.json`` as ``toolkit validate`` writes it."""
    return {
        "task_id": task_id,
        "name": name,
        "arguments": [["TENSOR", "float32", [64, 64]]],
        "target": "llvm",
        "incumbent": "best recorded",
        "incumbent_id": "a" * 16,
        "incumbent_latency_s": 1e-4,
        "screened": 3,
        "refined": 20,
        "rejected": [],
        "dropped": {},
        "readings_s": {"incumbent": [1e-4] * 8, "twin": [1e-4] * 8},
        "seconds": 30.0,
        "verdict": answer,
        "ratio": ratio,
        "interval": [ratio - half, ratio + half],
        "aa_interval": [0.99, 1.01],
        "confidence": 0.9958,
        "blocks": 8,
        "winner_id": "b" * 16,
        "winner_latency_s": ratio * 1e-4,
        "winner_from": "refinement",
        "challengers": [],
    }


@pytest.fixture(scope="session")
def tuning(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A workspace with a dataset, models of both kinds, a replay and live verdicts."""
    root = tmp_path_factory.mktemp("reported")
    logs = root / "logs" / "net-a" / "log.json"
    write_autotvm(logs, SHAPES, occasions=2, noise=0.01, failing=0.03)
    workspace = Workspace(root / "tuning")
    ingest([logs.parent], workspace.dataset, path_rule=r"(?P<network>net-[a-z])/")
    dataset = open_dataset(workspace.dataset)
    models = (ModelOptions(library="lightgbm", rounds=30, params={"num_leaves": 15}),)
    data = DataOptions(min_records=20, judged_records=50)
    recipe = Recipe(kind="throughput", models=models, data=data)
    train_throughput(dataset, recipe, workspace.model("throughput"), threads=1)
    recipe = Recipe(kind="mutation", models=models, data=data)
    train_mutation(dataset, recipe, workspace.model("mutation"), threads=1)
    simulate(dataset, parse_scenario(SCENARIO), out=workspace.simulation("small"))
    task_ids = list(dataset.tasks())
    verdicts = [
        verdict(task_ids[0], "matmul", "better", 0.9, 0.03),
        verdict(task_ids[1], "softmax", "not better", 1.01, 0.005),
        {**verdict(task_ids[2], "conv1d", "not better", 1.0, 0.0), "ratio": None, "interval": None},
        {
            **verdict(task_ids[3], "matmul:61,127,128", "undecided", 1.03, 0.0),
            "interval": None,
            "aa_interval": None,
            "blocks": 1,
        },
    ]
    content = {
        "verdicts": verdicts,
        "better": 1,
        "not_better": 2,
        "undecided": 1,
        "warnings": ["2 of 2 cores are busy"],
        "machine": {"cpu": "made up", "cores": 2, "tvm": "0.27.0"},
        "protocol": {"repeat": 3, "min_repeat_ms": 20, "threads": 2, "cache_flush": False},
        "settings": {"seed": 0},
        "dataset": dataset.fingerprint(),
        "seconds": 61.5,
    }
    workspace.validation.mkdir()
    (workspace.validation / "verdicts.json").write_bytes(orjson.dumps(content))
    return workspace


@pytest.fixture(scope="session")
def networks(tuning: Workspace, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of a replay of networks with task schedulers, and of forecasts."""
    out = tmp_path_factory.mktemp("networks") / "small-networks"
    simulate(open_dataset(tuning.dataset), parse_scenario(NETWORKS), out=out, forecast_draws=5)
    return out


@pytest.fixture(scope="session")
def summary(tuning: Workspace) -> dict[str, Any]:
    """The summary of that workspace."""
    return report_summary(find_inputs(tuning.root))
