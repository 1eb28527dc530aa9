"""A small workload, its design spaces and a device of this machine."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from toolkit.live.measure.device import Device
from toolkit.live.measure.machine import default_target
from toolkit.live.measure.protocol import Protocol
from toolkit.live.space.design import DesignSpace
from toolkit.live.tune.workloads import Workload, parse_workload

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
