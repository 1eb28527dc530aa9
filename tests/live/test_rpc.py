"""Devices behind TVM's own tracker, on loopback: several of a key, and one that disappears."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import numpy as np
import pytest
from tvm import rpc

from tests.live.conftest import PROTOCOL
from toolkit.errors import LiveError
from toolkit.live.design import DesignSpace
from toolkit.live.engines import open_engine
from toolkit.live.programs import timed_program
from toolkit.records import TrialState


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Farm:
    """A tracker and servers of the key ``board`` in processes of their own."""

    def __init__(self) -> None:
        self.port = _free_port()
        self.processes: list[subprocess.Popen] = []
        self._start("rpc_tracker", "--port", str(self.port), "--port-end", str(self.port + 1))
        self._wait(0)
        self.servers = [
            self._start("rpc_server", "--tracker", f"127.0.0.1:{self.port}", "--key", "board")
            for _ in range(2)
        ]
        self._wait(2)

    def _start(self, module: str, *arguments: str) -> subprocess.Popen:
        process = subprocess.Popen(
            [sys.executable, "-m", f"tvm.exec.{module}", "--host", "127.0.0.1", *arguments],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self.processes.append(process)
        return process

    def _wait(self, servers: int) -> None:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                # TVM's own client would wait for 5 s when nobody answers yet.
                socket.create_connection(("127.0.0.1", self.port), timeout=5).close()
                tracker = rpc.connect_tracker("127.0.0.1", self.port)
                if len(tracker.summary()["server_info"]) >= servers:
                    return
            time.sleep(0.2)
        raise TimeoutError("the tracker or its servers did not come up")

    def kill(self, process: subprocess.Popen) -> None:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    @property
    def device(self) -> str:
        return f"rpc 127.0.0.1:{self.port} board"


@pytest.fixture
def farm() -> Iterator[Farm]:
    made = Farm()
    yield made
    for process in made.processes:
        made.kill(process)


def test_a_lost_device_loses_no_record_and_the_last_one_is_a_named_error(
    farm: Farm, design: DesignSpace, target: str
) -> None:
    drawn = (design.sample(np.random.default_rng(i)) for i in range(60))
    programs = [timed_program(d.schedule, design.inputs) for d in drawn if d is not None]
    with open_engine(target, PROTOCOL, device=farm.device, builders=1) as engine:
        assert engine.devices == 2
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
        with pytest.raises(LiveError, match="device"):
            list(engine.measure_many(programs[18:20]))
        assert engine.devices == 0 and engine.lost == 2
    with pytest.raises(LiveError, match="board"):
        open_engine(target, PROTOCOL, device=farm.device, builders=1)
