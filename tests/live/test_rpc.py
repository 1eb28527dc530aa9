"""Devices behind TVM's own tracker, on loopback: several of a key, and one that disappears."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from tests.live.conftest import PROTOCOL
from tests.live.farm import Farm
from toolkit.errors import LiveError
from toolkit.live.measure import apart
from toolkit.live.measure.engines import open_engine
from toolkit.live.space.design import DesignSpace
from toolkit.live.space.programs import timed_program
from toolkit.records import TrialState


@pytest.fixture
def farm() -> Iterator[Farm]:
    with Farm() as made:
        yield made


def test_work_on_this_machine_disturbs_no_reading_of_a_device_elsewhere(
    farm: Farm, design: DesignSpace, target: str
) -> None:
    protocol = replace(PROTOCOL, repeat=1, min_repeat_ms=100, max_retries=1)
    drawn = design.sample(np.random.default_rng(0))
    assert drawn is not None
    program = timed_program(drawn.schedule, design.inputs)
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    try:
        with open_engine(target, protocol, device=farm.device, builders=1) as engine:
            found = [reading for _, reading in engine.measure_many([program] * 2)]
    finally:
        for process in busy:
            process.kill()
            process.wait()
    assert {reading.state for reading in found} == {TrialState.OK}
    assert all(reading.foreign_share == 0 and reading.retries == 0 for reading in found)


def test_a_lost_device_loses_no_record_and_the_last_one_is_a_named_error(
    farm: Farm, design: DesignSpace, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apart, "RECONNECT_S", 4.0)
    monkeypatch.setattr(apart, "LAST_RECONNECT_S", 5.0)
    drawn = (design.sample(np.random.default_rng(i)) for i in range(30))
    programs = [timed_program(d.schedule, design.inputs) for d in drawn if d is not None]
    with open_engine(target, PROTOCOL, device=farm.device, builders=1) as engine:
        assert len(engine.runners) == 2
        found = dict(engine.measure_many(programs[:6]))
        assert sorted(found) == list(range(6))
        assert {reading.state for reading in found.values()} == {TrialState.OK}
        assert all(r.build_s > 0 and r.run_s > 0 and r.run_times_s for r in found.values())

        readings = engine.measure_many(programs[6:18])
        found = dict([next(readings)])
        farm.kill(farm.servers[0])
        found.update(readings)
        assert sorted(found) == list(range(12)), "every program has its reading"
        assert {reading.state for reading in found.values()} == {TrialState.OK}

        farm.kill(farm.servers[1])
        with pytest.raises(LiveError, match="not back at the tracker after 5 s"):
            list(engine.measure_many(programs[18:20]))
        assert engine.runners == []
    with pytest.raises(LiveError, match="board"):
        open_engine(target, PROTOCOL, device=farm.device, builders=1)
