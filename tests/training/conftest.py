"""A small dataset of logs that the tests write, and a quick recipe."""

from __future__ import annotations

import pytest
from made_autotvm import write_autotvm

from toolkit.datasets import Dataset, ingest, open_dataset
from toolkit.training.recipes.recipe import DataOptions, ModelOptions, Recipe


@pytest.fixture(scope="session")
def made_dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Six enumerated convolutions, measured twice with 1 % noise, some failures."""
    folder = tmp_path_factory.mktemp("made")
    write_autotvm(folder / "net-a" / "log.json", occasions=2, noise=0.01, failing=0.02)
    ingest([folder / "net-a"], folder / "dataset", path_rule=r"(?P<network>net-[a-z])/")
    return open_dataset(folder / "dataset")


@pytest.fixture
def quick() -> Recipe:
    """A recipe that trains in a second."""
    model = ModelOptions(library="lightgbm", rounds=60, params={"num_leaves": 15})
    data = DataOptions(min_records=20, judged_records=50)
    return Recipe(kind="throughput", models=(model,), data=data)
