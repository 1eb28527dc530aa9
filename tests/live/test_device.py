"""The measuring process: readings, failures by cause, and life after a crash."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import psutil
import pytest
import tvm
from running import until
from tvm import te

from toolkit import children
from toolkit.errors import LiveError
from toolkit.live.measure.device import Device
from toolkit.live.measure.engines import open_engine
from toolkit.live.measure.program import Program
from toolkit.live.measure.protocol import Protocol
from toolkit.live.space.design import DesignSpace
from toolkit.live.space.programs import checked_program, timed_program
from toolkit.live.workloads.named import as_module
from toolkit.records import TrialState


def _program(design: DesignSpace, seed: int = 0) -> Program:
    drawn = next(d for d in (design.sample(np.random.default_rng(seed + i)) for i in range(9)) if d)
    return timed_program(drawn.schedule, design.inputs)


def test_a_program_is_built_and_timed(design: DesignSpace, device: Device) -> None:
    reading = device.measure(_program(design))
    assert reading.state is TrialState.OK
    assert len(reading.run_times_s) == device.protocol.repeat
    assert all(0 < seconds < 1 for seconds in reading.run_times_s)
    assert reading.build_s > 0 and reading.run_s > 0


def test_a_flushed_cache_gives_as_many_readings(design: DesignSpace, target: str) -> None:
    protocol = Protocol(number=2, repeat=3, min_repeat_ms=1, cache_flush=True)
    with Device(target, protocol) as device:
        reading = device.measure(_program(design))
    assert reading.state is TrialState.OK
    assert len(reading.run_times_s) == 3 and all(0 < s < 1 for s in reading.run_times_s)


def test_outputs_are_compared_with_the_unscheduled_program(
    design: DesignSpace, device: Device
) -> None:
    assert device.set_reference(checked_program(design.module, design.inputs)).error is None
    right = next(d for d in (design.sample(np.random.default_rng(i)) for i in range(9)) if d)
    same = checked_program(right.schedule.mod, design.inputs)
    assert device.check(same).state is TrialState.OK
    other = te.placeholder((8, 16), name="A"), te.placeholder((16, 12), name="B")
    k = te.reduce_axis((0, 16), "k")
    wrong = te.compute(
        (8, 12), lambda i, j: te.sum(other[0][i, k] * other[1][k, j] * 2.0, axis=k), name="C"
    )
    doubled = checked_program(as_module([*other, wrong]), 2)
    answer = device.check(doubled)
    assert answer.state is TrialState.WRONG_ANSWER
    assert answer.error is not None and "differ" in answer.error


def test_wrong_numbers_beside_what_is_no_number_are_found(device: Device) -> None:
    def roots(more: float) -> Program:
        a = te.placeholder((64,), name="A")  # half of it is negative: its root is no number
        b = te.compute((64,), lambda i: tvm.tirx.sqrt(a[i]) + tvm.tirx.const(more, "float32"))
        return checked_program(as_module([a, b]), 1)

    right, wrong = roots(0.0), roots(1.0)
    assert device.set_reference(right).state is TrialState.OK
    assert device.check(right).state is TrialState.OK
    assert device.check(wrong).state is TrialState.WRONG_ANSWER


def test_a_program_that_cannot_be_built_is_a_compile_failure(device: Device) -> None:
    reading = device.measure(Program("x", '{"no": "module"}', [], 0))
    assert reading.state is TrialState.COMPILE
    assert reading.error
    assert reading.run_times_s == ()


def test_a_program_that_takes_too_long_is_stopped_and_the_next_one_runs(
    design: DesignSpace, target: str
) -> None:
    n = 1 << 14
    rows, columns = te.placeholder((n, 1), name="A"), te.placeholder((1, n), name="B")
    k = te.reduce_axis((0, n), "k")
    slow = te.compute(
        (1,),
        lambda _: te.sum(tvm.tirx.exp(rows[k, 0] + columns[0, k]), axis=k),
        name="C",
    )
    program = checked_program(as_module([rows, columns, slow]), 2)
    protocol = Protocol(repeat=1000, min_repeat_ms=200, run_timeout_s=0.5, max_retries=0)
    with Device(target, protocol) as device:
        reading = device.measure(program)
        assert reading.state is TrialState.RUN_TIMEOUT
        assert device.restarts == 1
    with Device(target, Protocol(repeat=1, min_repeat_ms=1, build_timeout_s=1e-4)) as device:
        assert device.measure(program).state is TrialState.BUILD_TIMEOUT


def test_a_build_far_beyond_the_usual_is_given_up(
    design: DesignSpace, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, protocol = _program(design), Protocol(repeat=1, min_repeat_ms=1)
    monkeypatch.setattr("toolkit.live.measure.device.BUILDS_KNOWN", 2)
    with open_engine(target, protocol, builders=1, patience=0.01) as engine:
        (device,) = engine._builders

        def states() -> list[TrialState]:
            return [r.state for _, r in engine.measure_many([program] * 2, lambda: None)]

        assert states() == [TrialState.OK] * 2
        # A build of this program takes less than what a build may always take.
        assert states() == [TrialState.OK] * 2
        monkeypatch.setattr("toolkit.live.measure.device.LEAST_PATIENCE_S", 0.0)
        reading = device.measure(program)
        assert reading.state is TrialState.BUILD_TIMEOUT
        assert reading.build_s < protocol.build_timeout_s / 4
    with open_engine(target, protocol, builders=1) as engine:
        assert states() == [TrialState.OK] * 2
        assert states() == [TrialState.OK] * 2


def test_a_build_that_is_given_up_leaves_no_compiler_behind(tmp_path: Path) -> None:
    script = tmp_path / "starts.py"
    script.write_text(
        "import subprocess, sys, time\n"
        "pid = subprocess.Popen(['sleep', '100']).pid\n"
        f"open({str(tmp_path / 'pid')!r}, 'w').write(str(pid))\n"
        "print('{\"ready\": true}', flush=True)\n"
        "time.sleep(100)\n"
    )
    command = children.python(str(script))
    with Device("llvm", Protocol(build_timeout_s=1), command=command) as device:
        assert device.build(Program("x", "", [], 0)).state is TrialState.BUILD_TIMEOUT
    compiler = psutil.Process(int((tmp_path / "pid").read_text()))
    assert until(lambda: not compiler.is_running() or compiler.status() == psutil.STATUS_ZOMBIE)


def test_a_process_that_cannot_start_is_a_named_error() -> None:
    with Device('{"kind": "no-such-kind"}', Protocol()) as device, pytest.raises(LiveError):
        device.measure(Program("x", "", [], 0))
