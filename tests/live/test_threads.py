"""Programs of several threads: who waits is suspended, and each thread has a core of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import orjson
import psutil
import pytest

from toolkit.live.measure import machine
from toolkit.live.measure.device import Device
from toolkit.live.measure.machine import (
    default_target,
    physical_cores,
    places_for,
    processors_by_core,
)
from toolkit.live.measure.program import Program
from toolkit.live.measure.protocol import Protocol
from toolkit.live.space.design import DesignSpace
from toolkit.live.space.programs import timed_program
from toolkit.live.workloads.named import parse_workload
from toolkit.records import TrialState

PROTOCOL = Protocol(threads=2, min_repeat_ms=5, repeat=1, max_retries=0)

needs_two = pytest.mark.skipif(physical_cores() < 2, reason="one core")


@pytest.fixture(scope="module")
def parallel() -> Program:
    """A program with a parallel loop for two threads."""
    (workload,) = parse_workload("matmul:256,256,256")
    space = DesignSpace(workload.module, default_target(2), seed=1)
    rng = np.random.default_rng(0)
    for design in iter(lambda: space.sample(rng), 0):
        if design is not None and "T.parallel" in design.schedule.mod.script():
            return timed_program(design.schedule, space.inputs)
    raise AssertionError


@pytest.fixture
def device() -> Iterator[Device]:
    with Device(default_target(2), PROTOCOL) as opened:
        yield opened


def process_of(device: Device) -> psutil.Process:
    assert device._process is not None
    return psutil.Process(device._process.pid)


@needs_two
def test_a_process_that_waits_is_suspended_and_takes_no_processor_time(
    parallel: Program, device: Device
) -> None:
    device.start()
    process = process_of(device)
    for _ in range(2):
        reading = device.measure(parallel, keep=True)
        assert reading.state is TrialState.OK
        before = process.cpu_times()
        # TVM's pool would spin for as long and longer.
        time.sleep(0.3)
        assert process.status() == psutil.STATUS_STOPPED
        after = process.cpu_times()
        assert after.user + after.system == pytest.approx(before.user + before.system, abs=0.011)


@needs_two
def test_threads_are_bound_to_the_named_processors_and_the_record_says_so(
    parallel: Program,
) -> None:
    first, second = sorted(os.sched_getaffinity(0))[:2]
    # The other way round than TVM's own binding would have it.
    named = Protocol(threads=2, cores=(second, first), min_repeat_ms=5, repeat=1)
    with Device(default_target(2), named) as device:
        reading = device.measure(parallel, keep=True)
        assert reading.processors == (second, first)
        process = process_of(device)
        allowed = {
            tuple(psutil.Process(thread.id).cpu_affinity())
            for thread in process.threads()
            if thread.id != process.pid
        }
    assert (first,) in allowed and (second,) not in allowed


@needs_two
def test_unnamed_processors_are_cores_of_their_own(parallel: Program, device: Device) -> None:
    reading = device.measure(parallel)
    assert reading.processors == places_for(2)
    cores = [core for core in processors_by_core() if set(core) & set(reading.processors)]
    assert len(cores) == 2


def test_one_thread_is_left_to_the_system(design: DesignSpace, target: str) -> None:
    drawn = (design.sample(np.random.default_rng(seed)) for seed in range(9))
    program = timed_program(next(d for d in drawn if d).schedule, design.inputs)
    with Device(target, Protocol(min_repeat_ms=1, repeat=1)) as device:
        assert device.measure(program).processors == ()


def test_hyper_threads_are_told_from_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, siblings in enumerate(("0-1", "0-1", "2-3", "2-3")):
        folder = tmp_path / f"cpu{number}" / "topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(siblings + "\n", encoding="ascii")
    monkeypatch.setattr(machine, "PROCESSORS", tmp_path)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1, 2, 3}, raising=False)
    assert processors_by_core() == [[0, 1], [2, 3]]
    assert physical_cores() == 2
    assert [places_for(count) for count in (1, 2, 3, 4, 5)] == [
        (),
        (0, 2),
        (0, 2, 1),
        (0, 2, 1, 3),
        (),
    ]
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {1, 2}, raising=False)
    assert places_for(2) == (1, 2)


RUN = """
import sys
scope = {"target": None}
source = open(sys.argv[1]).read().split("database = ")
exec(source[0], scope)
import numpy as np
import tvm
scope["target"] = tvm.target.Target(sys.argv[2])
exec("database = " + source[1], scope)
x, y = (tvm.runtime.tensor(np.full((64, 64), value, "float32")) for value in (1, 0))
scope["executable"].mod["main"](x, x, y)
assert (y.numpy() == 64).all()
print(tvm.get_global_func("runtime.NumThreads")())
"""


@needs_two
def test_the_documented_way_to_run_uses_the_threads_that_tune_names(tmp_path: Path) -> None:
    command = ["tune", "--workload", "matmul:64,64,64", "--trials", "2", "--threads", "2"]
    command += ["--strategy", "random", "--finalists", "0"]
    done = subprocess.run(
        [Path(sys.executable).with_name("toolkit"), *command],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    tuned = orjson.loads((tmp_path / "tuning" / "tuned" / "tuned.json").read_bytes())
    assert tuned["threads"] == 2 and "TVM_NUM_THREADS=2" in done.stdout
    page = Path(__file__).parents[2] / "docs" / "how-to" / "tune.md"
    (snippet,) = re.findall(r"^```python\n(.*?)^```", page.read_text("utf-8"), re.M | re.S)
    (tmp_path / "snippet.py").write_text(snippet, encoding="utf-8")
    environment = {k: v for k, v in os.environ.items() if k != "TVM_NUM_THREADS"}
    ran = subprocess.run(
        [sys.executable, "-c", RUN, "snippet.py", default_target(2)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split()[-1] == "2"
