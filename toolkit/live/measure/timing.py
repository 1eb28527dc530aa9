"""How a built program is read: TVM's time evaluator, and whether anything else ran meanwhile."""

from __future__ import annotations

import itertools
import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Only a reading can tell how many calls a repeat of 'min_repeat_ms' takes. TVM's evaluator starts
# with the first, cold ones; what they promise falls short, and it all begins again with 1.6 times
# as many: 0.15 to 0.20 s for a repeat of 0.1. After a pilot of this length, and with so many more
# calls than it asks for, it is 0.13 s, and the readings are the same (docs/results/engine.md).
PILOT_MS = 5
SPARE_CALLS = 0.05
# Where a repeat is shorter than so many pilots, nothing was gained.
LEAST_PILOTS = 10

# TVM's flush takes as long as a call, or several times as long: a repeat has fewer calls then, but
# not fewer than these.
FLUSHED_SHARE, FEWEST_FLUSHED = 0.4, 5
FLUSH_OF_TVM = "cache_flush_cpu_non_first_arg"

LINE_BYTES = 64
_INSTRUCTION = "clflushopt"


def make_flush(tvm: Any) -> Callable[[Any], object] | None:
    """Compile what takes a tensor of bytes out of the caches; ``None``: this processor cannot.

    TVM flushes with ``clflush``, and each one waits for the one before: 10 MB take 20 to 30 ms on
    an Intel Xeon, eight times as long as the program that is read. ``clflushopt`` waits for none:
    0.5 ms.
    """
    info = Path("/proc/cpuinfo")
    if not info.is_file() or f" {_INSTRUCTION} " not in info.read_text(errors="replace"):
        return None
    from tvm import tirx

    size = tirx.Var("size", "int64")
    data = tirx.decl_buffer((size,), "uint8", name="data")
    line = tirx.Var("line", "int64")
    place = tirx.address_of(tirx.BufferLoad(data, [line * LINE_BYTES]))
    flush_line = tirx.call_llvm_intrin("void", f"llvm.x86.{_INSTRUCTION}", place)
    lines = tirx.floordiv(size + (LINE_BYTES - 1), tirx.const(LINE_BYTES, "int64"))
    body = tirx.For(line, 0, lines, tirx.ForKind.SERIAL, tirx.Evaluate(flush_line))
    function = tirx.PrimFunc([data], body)
    target = tvm.target.Target({"kind": "llvm", "mattr": [f"+{_INSTRUCTION}"]})
    built = tvm.compile(function.with_attr("global_symbol", "main"), target=target)
    flush: Callable[[Any], object] = built.mod["main"]
    return flush


class CoreUse:
    """CPU seconds that other processes spent on some cores (Linux: ``/proc/stat``)."""

    def __init__(self, cores: list[int]) -> None:
        self._cores = {f"cpu{core}" for core in cores}
        self._tick = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
        self._busy, self._own, self._wall = self._read()

    def _read(self) -> tuple[float, float, float]:
        busy = 0.0
        try:
            with open("/proc/stat", encoding="ascii") as stat:  # noqa: PTH123 - a kernel file
                for line in stat:
                    name, *fields = line.split()
                    if name in self._cores:
                        # The fourth and the fifth are idle time, of two kinds.
                        user, nice, system, _, _, irq, softirq, steal = map(int, fields[:8])
                        busy += (user + nice + system + irq + softirq + steal) / self._tick
        except OSError:
            return 0.0, 0.0, time.perf_counter()
        own = os.times()
        return busy, own.user + own.system, time.perf_counter()

    def foreign_share(self) -> float:
        """Share of the cores' time since construction that was not this process's own."""
        busy, own, wall = self._read()
        available = max(wall - self._wall, 1e-9) * max(len(self._cores), 1)
        foreign = (busy - self._busy) - (own - self._own)
        # One tick of rounding on either side is not interference.
        return max(0.0, foreign - 2.0 / self._tick) / available


def read_program(
    module: Any,
    device: Any,
    arguments: list[Any],
    protocol: dict[str, Any],
    cores: list[int],
    again: Callable[[], None],
    drop_above_s: float | None = None,
    flush: str = FLUSH_OF_TVM,
) -> dict[str, Any]:
    """Read a built program under a protocol (``Protocol.to_dict``): run times and disturbance.

    ``arguments`` lie on ``device``; ``cores`` are those whose other use disturbs a reading: none
    where the device is elsewhere. ``again`` is called before a disturbed reading is repeated: its
    time limit begins anew. With ``drop_above_s`` a short reading comes first (one repeat of at
    least ``first_reading_ms``); a program that it finds slower is not read in full. ``flush`` is
    the global function that flushes the arguments, where the protocol asks for it.
    """
    asked, repeat = int(protocol["number"]), int(protocol["repeat"])
    repeat_ms, most_foreign = float(protocol["min_repeat_ms"]), protocol["max_foreign_share"]
    repeat_s = 1e-3 * repeat_ms

    def read(number: int, repeat: int, min_repeat_ms: int) -> tuple[list[float], float]:
        """Seconds a call, repeat by repeat, and the share of the cores that was others'."""
        use = CoreUse(cores)
        if protocol["cache_flush"]:
            # TVM flushes before a repeat and not before a call: every call is one.
            share = FLUSHED_SHARE if flush == FLUSH_OF_TVM else 1.0
            calls = max(math.ceil(share * number), FEWEST_FLUSHED)
            how = {"number": 1, "repeat": calls * repeat, "f_preproc": flush}
        else:
            how = {"number": number, "repeat": repeat, "f_preproc": ""}
            how["min_repeat_ms"] = min_repeat_ms
        results = list(module.time_evaluator("main", device, **how)(*arguments).results)
        if protocol["cache_flush"]:
            results = [sum(results[i::repeat]) / calls for i in range(repeat)]
        return results, use.foreign_share()

    def calls(expected_s: float) -> int:
        """Calls that a repeat will need, at so many seconds a call."""
        if expected_s <= 0:
            return asked
        return max(asked, math.ceil((1 + SPARE_CALLS) * repeat_s / expected_s))

    number = asked
    if drop_above_s is not None:
        results, share = read(1, 1, protocol["first_reading_ms"])
        # A disturbed first reading drops nothing.
        if results[0] > drop_above_s and share <= most_foreign:
            return {"run_times_s": results, "foreign_share": share, "first": True}
        number = calls(results[0])
    elif repeat_ms >= LEAST_PILOTS * PILOT_MS:
        results, share = read(number, 1, PILOT_MS)
        whole = repeat == 1 and 1e3 * number * results[0] >= repeat_ms
        if whole and share <= most_foreign:
            return {"run_times_s": results, "foreign_share": share}
        number = calls(results[0])
    for retries in itertools.count():
        results, share = read(number, repeat, protocol["min_repeat_ms"])
        if share <= most_foreign or retries >= protocol["max_retries"]:
            break
        again()
    return {"run_times_s": results, "foreign_share": share, "retries": retries}
