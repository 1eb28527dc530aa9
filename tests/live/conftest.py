"""A small workload, its design spaces and a device of this machine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from toolkit.live.design import DesignSpace
from toolkit.live.device import Device
from toolkit.live.machine import default_target
from toolkit.live.protocol import Protocol
from toolkit.live.workloads import Workload, parse_workload

# Short readings: these tests are about behaviour, not about how fast a program is.
PROTOCOL = Protocol(repeat=2, min_repeat_ms=1, max_retries=0)


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
