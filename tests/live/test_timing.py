"""How often a program is called for one reading."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from toolkit.live.measure.protocol import Protocol
from toolkit.live.measure.timing import FLUSH_OF_TVM, PILOT_MS, read_program


class Program:
    """A program of known seconds a call, read as TVM's evaluator reads: calls are counted."""

    def __init__(self, call_s: float, cold_calls: int = 0) -> None:
        self.call_s, self.cold = call_s, cold_calls
        self.calls = 0
        self.repeats_s: list[float] = []

    def _call(self) -> float:
        self.calls += 1
        return self.call_s * (2.0 if self.calls <= self.cold else 1.0)

    def time_evaluator(
        self,
        name: str,
        device: Any,
        *,
        number: int,
        repeat: int,
        min_repeat_ms: int,
        f_preproc: str,
    ) -> Any:
        assert (name, f_preproc) == ("main", "")

        def evaluate(*_arguments: Any) -> Any:
            calls, times = number, []
            self._call()
            for _ in range(repeat):
                spent = sum(self._call() for _ in range(calls))
                while 1e3 * spent < min_repeat_ms:
                    calls = int(max(1e-3 * min_repeat_ms * calls / spent + 1, 1.618 * calls))
                    spent = sum(self._call() for _ in range(calls))
                self.repeats_s.append(spent)
                times.append(spent / calls)
            return SimpleNamespace(results=times)

        return evaluate


def read(program: Program, drop_above_s: float | None = None, **settings: Any) -> dict[str, Any]:
    protocol = Protocol(max_foreign_share=1.0, **settings).to_dict()
    return read_program(program, None, [], protocol, [0], lambda: None, drop_above_s)


@pytest.mark.parametrize("call_s", [1e-5, 1e-4, 1e-3])
def test_cold_first_calls_do_not_make_a_repeat_begin_again(call_s):
    program = Program(call_s, cold_calls=2)
    found = read(program, number=3, repeat=1, min_repeat_ms=100)
    assert found["run_times_s"] == pytest.approx([call_s])
    assert program.repeats_s[-1] >= 0.1
    assert program.calls * call_s < 0.125
    # What TVM's evaluator does by itself.
    alone = Program(call_s, cold_calls=2)
    alone.time_evaluator("main", None, number=3, repeat=1, min_repeat_ms=100, f_preproc="")()
    assert alone.calls * call_s > 0.15


def test_a_slow_program_is_not_called_more_often_than_asked():
    program = Program(0.05)
    assert read(program, number=3, repeat=1, min_repeat_ms=100)["run_times_s"] == pytest.approx(
        [0.05]
    )
    assert program.calls == 4


def test_every_repeat_is_as_long_as_asked():
    program = Program(1e-3, cold_calls=3)
    found = read(program, number=1, repeat=3, min_repeat_ms=10 * PILOT_MS)
    assert len(found["run_times_s"]) == 3
    assert min(program.repeats_s[-3:]) >= 1e-2 * PILOT_MS


def test_short_repeats_have_no_pilot():
    program = Program(1e-3)
    read(program, number=1, repeat=3, min_repeat_ms=20)
    assert len(program.repeats_s) == 3


def test_a_first_reading_drops_or_tells_how_many_calls_are_needed():
    slow = Program(2e-3)
    found = read(slow, drop_above_s=1e-3, number=3, repeat=1, min_repeat_ms=100)
    assert found["first"]
    assert slow.calls * slow.call_s < 0.02
    fast = Program(5e-4, cold_calls=3)
    found = read(fast, drop_above_s=1e-3, number=3, repeat=1, min_repeat_ms=100)
    assert "first" not in found
    assert fast.repeats_s[-1] >= 0.1
    assert fast.calls * fast.call_s < 0.125


@pytest.mark.parametrize(("flush", "share"), [(FLUSH_OF_TVM, 0.4), ("toolkit.flush", 1.0)])
def test_with_a_flushed_cache_every_call_is_a_repeat_of_its_own(flush: str, share: float) -> None:
    class Flushed(Program):
        def time_evaluator(  # type: ignore[override]
            self, name: str, device: Any, *, number: int, repeat: int, f_preproc: str
        ) -> Any:
            # TVM flushes before a repeat and not before each of its calls.
            assert (name, number, f_preproc) == ("main", 1, flush)
            return lambda *_: SimpleNamespace(results=[self._call() for _ in range(repeat)])

    program = Flushed(1e-3)
    protocol = Protocol(number=3, repeat=2, min_repeat_ms=100, cache_flush=True)
    found = read_program(program, None, [], protocol.to_dict(), [], lambda: None, None, flush)
    assert found["run_times_s"] == pytest.approx([1e-3, 1e-3])
    # TVM's flush takes time as well: a repeat of 100 ms has 0.4 of the calls.
    calls = round(100 * share)
    assert 2 * calls <= program.calls <= 2 * calls + 20
