"""A small workload, its design spaces and a device of this machine."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from toolkit.datasets import ingest, open_dataset
from toolkit.live.measure.device import Device
from toolkit.live.measure.machine import default_target
from toolkit.live.measure.protocol import Protocol
from toolkit.live.space.design import DesignSpace
from toolkit.live.workloads.named import Workload, parse_workload
from toolkit.training import train_throughput
from toolkit.training.recipes.recipe import DataOptions, ModelOptions, Recipe, SplitOptions
from toolkit.workspace import bundled

# Short readings: these tests are about behaviour, not about how fast a program is.
PROTOCOL = Protocol(repeat=2, min_repeat_ms=1, max_retries=0)


@pytest.fixture(autouse=True)
def tvm_logging_as_it_was() -> Iterator[None]:
    """Undo what ``tune_tir`` does to its logger.

    It stops propagating. Pytest adds a handler without a name to each such logger, and the next
    ``tune_tir`` of the process fails on it (TVM 0.27, ``meta_schedule/logging.py``).
    """
    yield
    logger = logging.getLogger("tvm.s_tir.meta_schedule")
    for handler in [one for one in logger.handlers if one.get_name()]:
        logger.removeHandler(handler)
        handler.close()
    logger.propagate = True


@pytest.fixture(scope="session")
def target() -> str:
    return default_target(1)


@pytest.fixture(scope="session")
def workload() -> Workload:
    return parse_workload("matmul:8,12,16")[0]


@pytest.fixture(scope="session")
def design(workload: Workload, target: str) -> DesignSpace:
    return DesignSpace(workload.module, target)


@pytest.fixture
def device(target: str) -> Iterator[Device]:
    with Device(target, PROTOCOL) as opened:
        yield opened


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model of the bundled matrix products."""
    folder = tmp_path_factory.mktemp("model")
    logs = bundled("datasets") / "xeon-rocketlake-1core"
    ingest(sorted(logs.glob("*matmul*")), folder / "dataset")
    recipe = Recipe(
        kind="throughput",
        models=(ModelOptions(library="lightgbm", rounds=40, params={"num_leaves": 15}),),
        data=DataOptions(min_records=20, judged_records=50),
        split=SplitOptions(folds=2),
    )
    train_throughput(open_dataset(folder / "dataset"), recipe, folder / "model", threads=1)
    return folder / "model"
