"""Blocks: fresh processes read in turns, what all arms share taken off, failures by arm."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolkit.errors import LiveError
from toolkit.live.confirm.rules import Rules
from toolkit.live.confirm.verdict import confirm
from toolkit.live.measure.device import Device
from toolkit.live.measure.program import MeasureResult, Program
from toolkit.live.measure.protocol import Protocol
from toolkit.live.measure.turns import ROUNDS, level, read_block, same_place
from toolkit.live.space.design import DesignSpace
from toolkit.live.space.programs import timed_program
from toolkit.progress import SILENT

PROTOCOL = Protocol(repeat=2, min_repeat_ms=1, max_retries=0)


@pytest.fixture(scope="module")
def program(design: DesignSpace) -> Program:
    drawn = (design.sample(np.random.default_rng(seed)) for seed in range(9))
    return timed_program(next(d for d in drawn if d).schedule, design.inputs)


class Opened:
    """Opens devices and remembers their processes."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.processes: list[int] = []

    def __call__(self, protocol: Protocol) -> Device:
        opened = self

        class Watched(Device):
            def build(self, program: Program) -> MeasureResult:
                reading = super().build(program)
                if self._process is not None:
                    opened.processes.append(self._process.pid)
                return reading

        return Watched(self.target, protocol)


@pytest.fixture
def opened(target: str) -> Iterator[Opened]:
    yield Opened(target)


def test_every_arm_has_a_process_of_its_own_and_is_read_in_every_round(
    program: Program, opened: Opened
) -> None:
    arms = {"a": program, "b": program, "c": program}
    block = read_block(arms, opened, PROTOCOL, np.random.default_rng(0))
    assert len(set(opened.processes)) == 3
    assert block.failed == {}
    assert {name: len(rounds) for name, rounds in block.rounds.items()} == dict.fromkeys(
        arms, ROUNDS
    )
    assert all(0 < seconds < 1 for seconds in block.seconds.values())
    for name, seconds in block.seconds.items():
        assert min(block.rounds[name]) / 2 <= seconds <= 2 * max(block.rounds[name])


def test_an_arm_that_does_not_build_is_left_out_and_named(program: Program, opened: Opened) -> None:
    arms = {"fine": program, "broken": Program("x", '{"no": "module"}', [], 0)}
    block = read_block(arms, opened, PROTOCOL, np.random.default_rng(0))
    assert list(block.seconds) == ["fine"]
    assert block.failed["broken"].startswith("compile: ")


def test_an_arm_whose_process_dies_between_two_rounds_is_left_out(
    program: Program, target: str
) -> None:
    class Mortal(Device):
        turns = 0

        def measure(self, program: Program, **more: Any) -> MeasureResult:
            self.turns += 1
            if program.key == "mortal" and self.turns == 3:
                assert self._process is not None
                # It crashes: what is killed from outside is measured again.
                self._process.send_signal(signal.SIGABRT)
                self._process.send_signal(signal.SIGCONT)
                self._process.wait()
            return super().measure(program, **more)

    mortal = Program("mortal", program.text, program.arguments, program.inputs)
    block = read_block(
        {"fine": program, "mortal": mortal},
        lambda one: Mortal(target, one),
        PROTOCOL,
        np.random.default_rng(0),
    )
    assert list(block.seconds) == ["fine"]
    assert len(block.rounds["mortal"]) == 2 and len(block.rounds["fine"]) == ROUNDS
    assert "ended with code" in block.failed["mortal"]


def test_all_arms_of_a_block_have_the_same_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {2, 3, 5, 7}, raising=False)
    rng = np.random.default_rng(0)
    chosen = {same_place("llvm", Protocol(threads=2), rng).cores for _ in range(60)}
    assert chosen == {(2, 3), (3, 5), (5, 7)}
    assert same_place("llvm", Protocol(threads=4), rng).cores == ()
    assert same_place("llvm", Protocol(threads=1, cores=(7,)), rng).cores == (7,)
    assert same_place("cuda", Protocol(threads=2), rng).cores == ()


def test_all_arms_of_a_block_have_the_same_places_in_memory_and_the_next_block_others() -> None:
    rng = np.random.default_rng(0)
    drawn = [same_place("llvm", Protocol(), rng).placement for _ in range(9)]
    assert len(set(drawn)) == 9 and None not in drawn
    assert same_place("llvm", Protocol(placement=4), rng).placement == 4
    assert same_place("cuda", Protocol(), rng).placement is None


def test_placed_arguments_begin_at_the_same_places_in_every_process(target: str) -> None:
    code = """
import json, sys
import numpy as np
from toolkit.live.measure.worker import ARENA_ALIGNMENT, Bench
bench = Bench({"target": json.loads(sys.argv[1]), "cores": []})
info = [["TENSOR", "float32", [100, 7]], ["TENSOR", "int32", [3]], ["TENSOR", "float32", [1 << 18]]]
found = []
for placement in (5, 6, None):
    arrays = [np.from_dlpack(tensor) for tensor in bench.arguments(info, placement)]
    found.append({
        "places": [array.ctypes.data % ARENA_ALIGNMENT for array in arrays],
        "ends": [array.ctypes.data % ARENA_ALIGNMENT + array.nbytes for array in arrays],
        "sums": [float(array.sum()) for array in arrays],
    })
print(json.dumps(found))
"""
    runs = [
        json.loads(subprocess.check_output([sys.executable, "-c", code, target])) for _ in range(2)
    ]
    for one, other in zip(runs[0][:2], runs[1][:2], strict=True):
        assert one == other
        assert all(place % 64 == 0 for place in one["places"])
        assert all(e <= b for e, b in zip(one["ends"], one["places"][1:], strict=False))
    assert runs[0][0]["places"] != runs[0][1]["places"]
    assert runs[0][0]["sums"] == runs[0][1]["sums"] == runs[0][2]["sums"]


def test_the_memory_around_arguments_is_there_as_in_a_process_that_has_run(target: str) -> None:
    """Vector loads whose lanes are off are slow where the page in front of a tensor is missing."""
    code = """
import json, mmap, sys
import numpy as np
from toolkit.live.measure.worker import Bench
bench = Bench({"target": json.loads(sys.argv[1]), "cores": []})
info = [["TENSOR", "float32", [100, 7]], ["TENSOR", "float32", [1 << 18]]]
present = []
for placement in (5, 6, None):
    for tensor in bench.arguments(info, placement):
        array = np.from_dlpack(tensor)
        begin = (array.ctypes.data - (1 << 19)) // mmap.PAGESIZE
        end = (array.ctypes.data + array.nbytes + (1 << 19)) // mmap.PAGESIZE
        with open("/proc/self/pagemap", "rb") as file:
            file.seek(8 * begin)
            pages = np.frombuffer(file.read(8 * (end - begin)), np.uint64)
        present.append(bool((pages >> np.uint64(63)).all()))
print(json.dumps(present))
"""
    found = json.loads(subprocess.check_output([sys.executable, "-c", code, target]))
    assert found == [True] * 6


def test_only_a_placed_protocol_says_so() -> None:
    assert "placement" not in Protocol().to_dict()
    assert Protocol(**Protocol(placement=3).to_dict()) == Protocol(placement=3)


def test_an_incumbent_that_does_not_run_ends_the_confirmation(
    program: Program, target: str
) -> None:
    with SILENT.step("confirm", 1.0) as step, pytest.raises(LiveError, match="incumbent"):
        confirm(
            Program("x", "{}", [], 0),
            {"fine": program},
            target=target,
            protocol=PROTOCOL,
            rules=Rules(looks=(1,)),
            seconds=60.0,
            rng=np.random.default_rng(0),
            step=step,
        )


@given(st.integers(0, 2**31), st.integers(1, 12), st.integers(2, 5))
def test_what_all_arms_share_in_a_round_decides_nothing(seed: int, rounds: int, arms: int) -> None:
    rng = np.random.default_rng(seed)
    programs = rng.uniform(1e-5, 1e-3, arms)
    drift = rng.lognormal(0.0, 0.5, (rounds, 1))
    found = level(programs * drift)
    assert np.allclose(found / found[0], programs / programs[0])
    # Its size is that of a round in the middle.
    assert drift.min() * programs[0] <= found[0] * (1 + 1e-9)
    assert found[0] <= drift.max() * programs[0] * (1 + 1e-9)


def test_a_few_disturbed_readings_decide_nothing() -> None:
    rng = np.random.default_rng(0)
    rounds = 1e-4 * rng.lognormal(0.0, 0.002, (ROUNDS, 3))
    rounds[:3, 0] *= 2.0
    rounds[4:6, 1] *= 3.0
    assert np.abs(np.log(level(rounds) / 1e-4)).max() < 0.005
