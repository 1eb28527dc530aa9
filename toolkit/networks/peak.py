"""Measures the peak of a processor: the most multiply-adds a second, all in registers."""

from __future__ import annotations

import tvm

from toolkit.live.measure.device import Device
from toolkit.live.measure.protocol import Protocol
from toolkit.live.space.programs import checked_program

STEPS = 50_000
LANES = 16
"""Floats in a vector of 64 bytes; a processor with shorter vectors computes two at a time."""
CHAINS = (6, 12)
"""Numbers of independent sums to try. The better one counts, since processors differ in latency
and in their number of registers."""

_PROGRAM = """
@T.prim_func(s_tir=True)
def main(
    A: T.Buffer((THREADS, LANES), "float32"), B: T.Buffer((THREADS, CHAINS, LANES), "float32")
):
    for p in T.parallel(THREADS):
        with T.sblock("fma"):
            vp = T.axis.spatial(THREADS, p)
            T.reads(A[vp, 0:LANES])
            T.writes(B[vp, 0:CHAINS, 0:LANES])
            sums = T.alloc_buffer((CHAINS, LANES), scope="local")
            for c in T.unroll(CHAINS):
                for i in T.vectorized(LANES):
                    sums[c, i] = A[vp, i] + T.Cast("float32", c)
            for s in range(STEPS):
                for c in T.unroll(CHAINS):
                    for i in T.vectorized(LANES):
                        # Constants: a load could alias the sums and force them out of registers.
                        sums[c, i] = sums[c, i] * T.float32(0.999) + T.float32(0.001)
            for c in T.unroll(CHAINS):
                for i in T.vectorized(LANES):
                    B[vp, c, i] = sums[c, i]
"""


def peak_gflop_per_s(target: str, threads: int) -> float | None:
    """Return a processor's peak in float32 operations (10^9 a second), with ``threads`` threads.

    The threads run multiply-adds only; each counts as two operations. Returns ``None`` if the
    program does not run.
    """
    from tvm.script import tirx as T  # noqa: F401  (the name is that of TVM's script)

    protocol = Protocol(number=3, repeat=5, min_repeat_ms=20, threads=threads)
    rates = []
    for chains in CHAINS:
        text = _PROGRAM
        for name, value in (
            ("THREADS", threads), ("LANES", LANES), ("CHAINS", chains), ("STEPS", STEPS),
        ):  # fmt: skip
            text = text.replace(name, str(value))
        module = tvm.IRModule({"main": tvm.script.from_source(text)})
        with Device(target, protocol) as device:
            result = device.measure(checked_program(module, 1))
        if result.run_times_s:
            rates.append(2e-9 * threads * chains * LANES * STEPS / min(result.run_times_s))
    return max(rates, default=None)
