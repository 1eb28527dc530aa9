"""What waits for somebody else has a limit, and says so."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from running import toolkit

from tests.live.test_faults import faulty
from toolkit.live.measure import device as devices
from toolkit.live.measure.device import Device
from toolkit.live.measure.protocol import Protocol
from toolkit.live.measure.remote import Remote
from toolkit.live.tune.settings import TuneSettings
from toolkit.live.tune.tune import tune
from toolkit.networks.tasks import tasks_of
from toolkit.records import TrialState
from toolkit.training.trained.models import TrainedModels

HANG = """
from tvm.script import tirx as T

@T.prim_func(s_tir=True)
def hang(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
    for i in range(64):
        with T.sblock("b"):
            vi = T.axis.spatial(64, i)
            T.reads(A[vi])
            T.writes(B[vi])
            B[vi] = A[vi] + T.call_extern("float32", "pause")

WORKLOADS = {"hang": hang.with_attr("global_symbol", "main")}
"""


@pytest.fixture
def silent() -> Iterator[int]:
    """The port of one that accepts and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken: list[socket.socket] = []

        def accept() -> None:
            while True:
                try:
                    taken.append(server.accept()[0])
                except OSError:
                    return

        thread = threading.Thread(target=accept)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        thread.join()
    for connection in taken:
        connection.close()


def test_a_tracker_that_never_answers_is_none(silent: int, tmp_path: Path) -> None:
    command = ("tune", "--device", f"rpc 127.0.0.1:{silent} board", "--trials", "1")
    code, _, err = toolkit(*command, cwd=tmp_path)
    assert code == 1 and "no tracker answers" in err and "Traceback" not in err


def test_waiting_for_a_tracker_limits_no_other_connection(silent: int) -> None:
    asking = threading.Thread(target=Remote("127.0.0.1", silent, "board").free)
    asking.start()
    asking.join(0.5)
    assert asking.is_alive() and socket.getdefaulttimeout() is None
    asking.join()
    assert socket.getdefaulttimeout() is None


def test_a_pipe_that_nobody_writes_into_is_no_log(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for command in (("ingest", "pipe"), ("predict", "pipe"), ("simulate", "--scenario", "pipe")):
        code, _, err = toolkit(*command, cwd=tmp_path)
        assert code == 1 and "Traceback" not in err, err
    os.mkfifo(tmp_path / "pipe.toml")
    for command in (
        ("simulate", "--scenario", "pipe.toml"),
        ("train", "throughput", "--recipe", "pipe.toml"),
    ):
        code, _, err = toolkit(*command, cwd=tmp_path)
        assert code == 1 and "no such file" in err, err


def test_a_program_that_hangs_while_its_outputs_are_checked_is_given_up(
    target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "CHECK_TIMEOUT_S", 3.0)
    protocol = Protocol(repeat=1, min_repeat_ms=1, run_timeout_s=3.0)
    with Device(target, protocol) as device:
        assert device.set_reference(faulty("right")).state is TrialState.OK
        assert device.check(faulty("hang")).state is TrialState.RUN_TIMEOUT
        assert device.check(faulty("right")).state is TrialState.OK


def test_a_workload_that_hangs_is_said_not_to_be_checked(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "UNSCHEDULED_TIMEOUT_S", 1.0)
    (tmp_path / "hang.py").write_text(HANG)
    result = tune(
        tasks_of([str(tmp_path / "hang.py")], target),
        tmp_path / "out",
        target=target,
        protocol=Protocol(repeat=1, min_repeat_ms=1, run_timeout_s=3.0),
        settings=TuneSettings(trials=1, strategy="random"),
        guides=TrainedModels(),
    )
    [row] = result["tasks"]
    assert row["failed"] == {"run_timeout": 1}
    assert "limit" in row["unchecked"]
