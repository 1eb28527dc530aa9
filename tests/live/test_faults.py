"""Candidates that hang, crash, write out of bounds or compute something else; devices that go."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pytest
import tvm
from running import Running, until
from tvm.script import tirx as T

from tests.live.conftest import PROTOCOL
from toolkit.errors import LiveError
from toolkit.live.measure import apart
from toolkit.live.measure.apart import ApartEngine
from toolkit.live.measure.device import Device
from toolkit.live.measure.engines import LocalEngine, open_engine
from toolkit.live.measure.program import MeasureResult, Program
from toolkit.live.measure.protocol import Protocol
from toolkit.live.space.database import DatabaseWriter
from toolkit.live.space.design import DesignSpace
from toolkit.live.space.oracle import DeviceOracle
from toolkit.live.space.programs import checked_program, timed_program
from toolkit.live.space.space import MetaScheduleSpace
from toolkit.records import TrialState


def faulty(kind: str) -> Program:
    """A program over A and B (64 floats each) that goes wrong in one way."""

    @T.prim_func(s_tir=True)
    def right(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
        for i in range(64):
            with T.sblock("b"):
                vi = T.axis.spatial(64, i)
                B[vi] = A[vi] + T.float32(1)

    @T.prim_func(s_tir=True)
    def wrong(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
        for i in range(64):
            with T.sblock("b"):
                vi = T.axis.spatial(64, i)
                B[vi] = A[vi] + T.float32(2)

    @T.prim_func(s_tir=True)
    def crash(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
        T.evaluate(T.call_extern("int32", "abort"))

    @T.prim_func(s_tir=True)
    def hang(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
        T.evaluate(T.call_extern("int32", "pause"))

    @T.prim_func(s_tir=True)
    def killed(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
        T.evaluate(T.call_extern("int32", "raise", 9))

    @T.prim_func(s_tir=True)
    def beyond(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
        T.evaluate(T.call_extern("handle", "memset", T.address_of(B[0]), 1, 64 * 4 + 8))

    @T.prim_func(s_tir=True)
    def into_input(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
        T.evaluate(T.call_extern("handle", "memset", T.address_of(A[0]), 1, 8))

    functions = {
        "right": right, "wrong": wrong, "crash": crash, "hang": hang, "beyond": beyond,
        "into_input": into_input, "killed": killed,
    }  # fmt: skip
    module = tvm.IRModule({"main": functions[kind].with_attr("global_symbol", "main")})
    return checked_program(module, 1)


@pytest.mark.parametrize(
    ("kind", "cause"),
    [
        ("wrong", "differ"),
        ("beyond", "out of the bounds of argument 1"),
        ("into_input", "input 0"),
    ],
)
def test_what_computes_or_writes_something_else_is_a_wrong_answer_with_its_cause(
    kind: str, cause: str, device: Device
) -> None:
    assert device.set_reference(faulty("right")).state is TrialState.OK
    answer = device.check(faulty(kind))
    assert answer.state is TrialState.WRONG_ANSWER
    assert answer.error is not None and cause in answer.error
    assert device.check(faulty("right")).state is TrialState.OK


@pytest.fixture(scope="module")
def engine(target: str) -> Iterator[LocalEngine]:
    protocol = Protocol(repeat=1, min_repeat_ms=1, max_retries=0, run_timeout_s=2.0)
    with LocalEngine(target, protocol, builders=2) as opened:
        yield opened


def test_faults_cost_one_trial_each_and_the_rest_is_measured(engine: LocalEngine) -> None:
    programs = [faulty(kind) for kind in ("right", "crash", "right", "hang", "right")]
    programs = [Program(f"{p.key}-{i}", p.text, p.arguments, 1) for i, p in enumerate(programs)]
    restarts = [device.restarts for device in engine._builders]
    found = dict(engine.measure_many([*programs, Program("x", "{}", [], 0)]))
    states = [found[i].state for i in range(6)]
    ok = TrialState.OK
    assert states == [ok, TrialState.RUNTIME, ok, TrialState.RUN_TIMEOUT, ok, TrialState.COMPILE]
    assert "ended with code" in str(found[1].error)
    assert "limit" in str(found[3].error)
    assert sum(device.restarts for device in engine._builders) == sum(restarts) + 2


ENDED_OR_STOPPED = (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE)


@pytest.mark.parametrize("count", [1, 5])
def test_work_is_done_while_programs_are_built_and_before_one_is_measured(
    engine: LocalEngine, count: int
) -> None:
    programs = [replace(faulty("right"), key=f"while-{count}-{i}") for i in range(count)]
    done: list[int] = []

    def builds() -> bool:
        # Another test may have ended one: it is replaced when it is to build.
        for process in [d._process for d in engine._builders if d._process is not None]:
            with contextlib.suppress(psutil.NoSuchProcess):
                if psutil.Process(process.pid).status() not in ENDED_OR_STOPPED:
                    return True
        return False

    def work() -> None:
        assert until(builds)
        done.append(threading.get_ident())

    engine.meanwhile(work)
    readings = engine.measure_many(programs)
    found = dict([next(readings)])
    assert done == [threading.get_ident()]
    found.update(readings)
    assert [found[i].state for i in range(count)] == [TrialState.OK] * count
    # Once only.
    list(engine.measure_many(programs[:1]))
    assert len(done) == 1


def test_an_interrupt_waits_for_no_program_that_is_not_begun(
    target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[str] = []
    go_on = threading.Event()

    def build(program: Program) -> MeasureResult:
        begun.append(program.key)
        go_on.wait(20)
        return MeasureResult(TrialState.COMPILE)

    def interrupt() -> None:
        assert until(lambda: len(begun) == 2)
        threading.Timer(0.2, go_on.set).start()
        raise KeyboardInterrupt

    engine = LocalEngine(target, PROTOCOL, builders=2)
    for builder in engine._builders:
        monkeypatch.setattr(builder, "build", build)
    engine.meanwhile(interrupt)
    with pytest.raises(KeyboardInterrupt):
        next(engine.measure_many([faulty("right")] * 20))
    engine.__exit__()
    assert len(begun) == 2


def test_processes_that_die_between_building_and_measuring_lose_nothing(
    engine: LocalEngine, design: DesignSpace
) -> None:
    drawn = (design.sample(np.random.default_rng(i)) for i in range(12))
    programs = [timed_program(d.schedule, design.inputs) for d in drawn if d is not None][:6]
    readings = engine.measure_many(programs)
    found = dict([next(readings)])
    for device in engine._builders:
        if device._process is not None:
            device._process.kill()
            device._process.wait()
    found.update(readings)
    assert sorted(found) == list(range(6))
    lost = [reading for reading in found.values() if reading.state is not TrialState.OK]
    # The request that met the dead process is the only one that can have failed in each.
    assert len(lost) <= len(engine._builders)


def test_processes_are_replaced_after_so_many_builds(design: DesignSpace, target: str) -> None:
    drawn = (design.sample(np.random.default_rng(i)) for i in range(12))
    programs = [timed_program(d.schedule, design.inputs) for d in drawn if d is not None][:3]
    with Device(target, PROTOCOL, max_builds=1) as device:
        seen = set()
        for program in programs:
            assert device.measure(program).state is TrialState.OK
            assert device._process is not None
            seen.add(device._process.pid)
        assert len(seen) == 3 and device.restarts == 0

        # Not between building and measuring: what was built would be lost.
        for program in programs:
            assert device.build(program).state is TrialState.OK
        before, builds = device._process, device._builds
        for program in programs:
            assert device.measure(program).state is TrialState.OK
        assert device._process is before and device._builds == builds == 3


def test_what_is_clearly_worse_is_read_once_and_the_record_says_so(
    design: DesignSpace, target: str, tmp_path
) -> None:
    protocol = Protocol(repeat=4, min_repeat_ms=1, max_retries=0, first_reading_ms=1, drop_above=3)
    # Where others keep the machine busy as well: a disturbed first reading would drop nothing.
    protocol = replace(protocol, max_foreign_share=2.0)
    space = MetaScheduleSpace(design, machine="bench")
    drawn = space.sample(np.random.default_rng(3), 4)
    with Device(target, protocol) as device, DatabaseWriter(tmp_path, target) as writer:
        oracle = DeviceOracle(space, device, writer)
        first = oracle.measure(drawn[:2])
        oracle.best_s = 1e-12
        dropped = oracle.measure(drawn[2:])
        assert [len(t.run_times_s) for t in dropped] == [1, 1]
        assert len(first[0].run_times_s) == 4, "the first has nothing to be worse than"
        said = [trial["protocol"] for trial in writer.trials]
        assert said[0] == "full" and said[2:] == ["first reading"] * 2


@pytest.mark.parametrize("kind", ["device", "local", "apart"])
def test_what_tvm_refuses_costs_no_build_and_is_written_down(
    kind: str,
    design: DesignSpace,
    target: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    space = MetaScheduleSpace(design, machine="bench")
    drawn = space.sample(np.random.default_rng(5), 7)
    refused, realise = drawn[::3], space.realise
    monkeypatch.setattr(space, "realise", lambda c: None if c in refused else realise(c))
    engines = {
        "device": lambda: Device(target, PROTOCOL),
        "local": lambda: LocalEngine(target, PROTOCOL, builders=2),
        "apart": lambda: ApartEngine(target, PROTOCOL, builders=2),
    }
    with engines[kind]() as engine, DatabaseWriter(tmp_path, target) as writer:
        trials = DeviceOracle(space, engine, writer).measure(drawn)
        assert [trial.candidate for trial in trials] == drawn
        assert len(writer.records) == 4
    for trial in trials:
        if trial.candidate in refused:
            assert trial.state is TrialState.INSTANTIATION and trial.elapsed_s == 0.0
        else:
            assert trial.state is TrialState.OK and trial.latency_s is not None
    lines = (tmp_path / "database_refused.jsonl").read_text().splitlines()
    said = {json.loads(line)["candidate"] for line in lines}
    assert said == {candidate.candidate_id for candidate in refused}


def test_what_names_no_device_is_a_named_error(target: str) -> None:
    with pytest.raises(LiveError, match="example"):
        open_engine(target, PROTOCOL, device="a board")
    with pytest.raises(LiveError, match="no tracker answers"):
        open_engine(target, PROTOCOL, device="rpc 127.0.0.1:1 none")


def test_an_interrupt_does_not_wait_for_a_device_that_is_away(
    target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, looked = ApartEngine(target, PROTOCOL, builders=1), threading.Event()
    away = SimpleNamespace(free=lambda: looked.set() or 0)
    monkeypatch.setattr(engine, "remote", away)
    done, asked = MeasureResult(TrialState.OK), list[Any]()
    monkeypatch.setattr(engine._builders[0], "export", lambda *_: done)
    monkeypatch.setattr(engine.runners[0], "run_artifact", lambda *a, **_: asked.append(a) or done)
    with contextlib.ExitStack() as stack:
        stack.push(engine)
        batch = apart._Batch(engine, [faulty("right")], lambda: None)
        assert looked.wait(10)
        batch.stop()
    assert not asked


def test_a_process_that_is_killed_from_outside_measures_again_and_knows_the_reference(
    device: Device,
) -> None:
    assert device.set_reference(faulty("right")).state is TrialState.OK
    for ask in (device.check, device.measure, device.build):
        assert device._process is not None
        device._process.kill()
        device._process.wait()
        assert ask(faulty("right")).state is TrialState.OK
    # As after a program that crashes.
    assert device.check(faulty("crash")).state is TrialState.RUNTIME
    assert device.check(faulty("right")).state is TrialState.OK
    assert device.check(faulty("wrong")).state is TrialState.WRONG_ANSWER


def test_what_is_killed_twice_is_a_failure(device: Device) -> None:
    restarts = device.restarts
    reading = device.measure(faulty("killed"))
    assert reading.state is TrialState.RUNTIME and "code -9" in str(reading.error)
    assert device.restarts == restarts + 2
    assert device.measure(faulty("right")).state is TrialState.OK


@pytest.mark.chaos
def test_kills_of_measuring_processes_cost_a_search_no_trial(tmp_path: Path) -> None:
    command = ("tune", "--workload", "matmul:32,32,32", "--trials", "20", "--builders", "1")
    # At random: what a search believes of its programs would only take time.
    more = ("--strategy", "random", "--threads", "1", "--finalists", "0", "--json")
    run = Running(*command, *more, cwd=tmp_path)
    trials = tmp_path / "tuning" / "tuned" / "database_trials.jsonl"
    for count in (1, 5, 9):
        assert until(lambda n=count: trials.is_file() and trials.read_text().count("\n") >= n, 120)
        [worker] = [each for each in run.processes() if each.pid != run.process.pid]
        worker.kill()
    code, out, err = run.finish()
    assert code == 0, err
    states = [json.loads(line)["state"] for line in trials.read_text().splitlines()]
    assert states == ["ok"] * 20, out
