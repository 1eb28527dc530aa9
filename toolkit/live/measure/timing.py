"""How a built program is timed: TVM's time evaluator, and a check for other load meanwhile."""

from __future__ import annotations

import itertools
import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Only a reading shows how many calls a repeat of 'min_repeat_ms' needs. TVM's evaluator estimates
# this from the first, cold calls. Its estimate is too low, so it begins again with 1.6 times as
# many calls: a repeat of 0.1 s takes 0.15 to 0.20 s. With a pilot reading of this length, and this
# share of spare calls, it takes 0.13 s, and the readings are the same (docs/results/engine.md).
PILOT_MS = 5
SPARE_CALLS = 0.05
# For repeats shorter than so many pilots there is no gain.
LEAST_PILOTS = 10

# TVM's flush takes at least as long as a call, so a repeat has only this share of the calls then,
# and at least this number.
FLUSHED_SHARE, FEWEST_FLUSHED = 0.4, 5
FLUSH_OF_TVM = "cache_flush_cpu_non_first_arg"

LINE_BYTES = 64
_INSTRUCTION = "clflushopt"


def make_flush(tvm: Any) -> Callable[[Any], object] | None:
    """Compile a function that flushes a tensor of bytes; ``None``: not on this processor.

    TVM flushes with ``clflush``, where each one waits for the one before: 10 MB take 20 to 30 ms
    on an Intel Xeon, eight times as long as the measured program. ``clflushopt`` does not wait:
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


TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
"""Units of ``/proc/stat`` in a second."""


def core_use(cores: list[int]) -> tuple[float, float, float]:
    """Return the CPU seconds of all processes on these cores and of this one, and the time.

    The first two are 0 where there is no ``/proc/stat`` (Linux).
    """
    names = {f"cpu{core}" for core in cores}
    busy = 0.0
    try:
        with open("/proc/stat", encoding="ascii") as stat:  # noqa: PTH123 - a kernel file
            for line in stat:
                name, *fields = line.split()
                if name in names:
                    # The fourth and fifth fields are idle time.
                    user, nice, system, _, _, irq, softirq, steal = map(int, fields[:8])
                    busy += (user + nice + system + irq + softirq + steal) / TICKS
    except OSError:
        return 0.0, 0.0, time.perf_counter()
    own = os.times()
    return busy, own.user + own.system, time.perf_counter()


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
    """Time a built program under a protocol (``Protocol.to_dict``); return times and disturbance.

    ``arguments`` lie on ``device``. ``cores`` are the cores on which other load disturbs a reading:
    none if the device is elsewhere. ``again`` is called before a disturbed reading is repeated, so
    that its time limit starts again. With ``drop_above_s`` a short reading comes first (one repeat
    of at least ``first_reading_ms``); a program slower than this gets no full reading. ``flush`` is
    the global function that flushes the arguments, if the protocol wants that.
    """
    asked, repeat = int(protocol["number"]), int(protocol["repeat"])
    repeat_ms, most_foreign = float(protocol["min_repeat_ms"]), protocol["max_foreign_share"]
    repeat_s = 1e-3 * repeat_ms

    def read(number: int, repeat: int, min_repeat_ms: int) -> tuple[list[float], float]:
        """Return the seconds of a call for each repeat, and the share of other load."""
        began = core_use(cores)
        if protocol["cache_flush"]:
            # TVM flushes before a repeat, not before a call: so a repeat here is one call.
            share = FLUSHED_SHARE if flush == FLUSH_OF_TVM else 1.0
            calls = max(math.ceil(share * number), FEWEST_FLUSHED)
            how = {"number": 1, "repeat": calls * repeat, "f_preproc": flush}
        else:
            how = {"number": number, "repeat": repeat, "f_preproc": ""}
            how["min_repeat_ms"] = min_repeat_ms
        results = list(module.time_evaluator("main", device, **how)(*arguments).results)
        if protocol["cache_flush"]:
            results = [sum(results[i::repeat]) / calls for i in range(repeat)]
        spent = zip(core_use(cores), began, strict=True)
        busy, own, wall = (now - then for now, then in spent)
        # Rounding by one tick at either end is not a disturbance.
        foreign = max(0.0, busy - own - 2.0 / TICKS)
        return results, foreign / (max(wall, 1e-9) * max(len(set(cores)), 1))

    def calls(expected_s: float) -> int:
        """Return how many calls a repeat needs, at so many seconds for a call."""
        if expected_s <= 0:
            return asked
        return max(asked, math.ceil((1 + SPARE_CALLS) * repeat_s / expected_s))

    number = asked
    if drop_above_s is not None:
        results, share = read(1, 1, protocol["first_reading_ms"])
        # A disturbed first reading does not drop a program.
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
