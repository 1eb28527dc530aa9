"""How often the confirmation calls a program better than itself, and finds a true 3 %, live.

    python tests/benchmarks/bench_confirm.py --minutes 60 --out confirm_readings.jsonl

Measures blocks of four arms in random order, each reading from a fresh process and a fresh build:
a program twice (the incumbent and its twin), the same program as a challenger, and one that does
97 % of its passes over the same data, so that it takes 3.0 % less time. The blocks are then cut,
in the order in which they were measured, into as many sequential confirmations as they hold, of
either challenger. Blocks are kept: run again, it goes on. Nothing else may run.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path

import numpy as np
import tvm
from tvm.script import tirx as T

from toolkit.live.confirm import INCUMBENT, TWIN, Rules, judge, may_stop, overall
from toolkit.live.device import Device, Program
from toolkit.live.machine import default_target
from toolkit.live.programs import checked_program
from toolkit.live.protocol import Protocol
from toolkit.records import TrialState

SAME, FASTER = "the same program", "97 % of the passes"


PASSES = 3200


def passes(count: int) -> Program:
    """A program whose time is proportional to a number of passes that depend on each other.

    Both numbers of passes are multiples of 32, so that the compiler unrolls them alike.
    """

    @T.prim_func(s_tir=True)
    def main(A: T.Buffer((512,), "float32"), B: T.Buffer((512,), "float32")):
        for r in range(3200):
            for o in range(32):
                for i in T.vectorized(16):
                    with T.sblock("b"):
                        vr = T.axis.opaque(3200, r)
                        vi = T.axis.spatial(512, o * 16 + i)
                        T.reads(A[vi], B[vi])
                        T.writes(B[vi])
                        B[vi] = B[vi] * T.float32(0.5) + A[vi] + T.Cast("float32", vr)

    text = main.script().replace(str(PASSES), str(count))
    function = tvm.script.from_source(text)
    return checked_program(tvm.IRModule({"main": function}), 1)


def one_block(
    arms: dict[str, Program], target: str, protocol: Protocol, rng: np.random.Generator
) -> dict[str, float]:
    """One reading of every arm (seconds), in random order, each in a process of its own."""
    found = {}
    names = list(arms)
    rng.shuffle(names)
    for name in names:
        with Device(target, protocol) as device:
            reading = device.measure(arms[name])
        if reading.state is not TrialState.OK:
            raise RuntimeError(f"{name}: {reading.error}")
        found[name] = statistics.median(reading.run_times_s)
    return found


def confirmations(blocks: list[dict[str, float]], challenger: str, rules: Rules) -> list[str]:
    """Verdicts of as many sequential confirmations as the blocks hold, none used twice."""
    verdicts = []
    readings: dict[str, list[float]] = {INCUMBENT: [], TWIN: [], challenger: []}
    for block in blocks:
        for name, values in readings.items():
            values.append(block[name])
        count = len(readings[INCUMBENT])
        if count not in rules.looks:
            continue
        judged = judge(readings, rules, [challenger])
        if may_stop(judged, count, rules):
            verdict = overall(judged)
            assert verdict is not None
            verdicts.append(verdict.verdict)
            readings = {name: [] for name in readings}
    return verdicts


def main() -> None:
    """Measure for some minutes and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--out", type=Path, default=Path("confirm_readings.jsonl"))
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--min-repeat-ms", type=int, default=10)
    options = parser.parse_args()
    target = default_target(1)
    protocol = Protocol(repeat=options.repeat, min_repeat_ms=options.min_repeat_ms)
    whole, part = passes(PASSES), passes(PASSES * 97 // 100)
    arms = {INCUMBENT: whole, TWIN: whole, SAME: whole, FASTER: part}
    rng = np.random.default_rng(time.time_ns())
    ends = time.monotonic() + 60.0 * options.minutes
    with options.out.open("a", encoding="utf-8") as file:
        while time.monotonic() < ends:
            file.write(json.dumps(one_block(arms, target, protocol, rng)) + "\n")
            file.flush()
    blocks = [json.loads(line) for line in options.out.read_text(encoding="utf-8").splitlines()]
    rules = Rules()
    result: dict[str, object] = {"blocks": len(blocks), "protocol": protocol.to_dict()}
    for name in (SAME, FASTER):
        logs = [np.log(b[name]) - (np.log(b[INCUMBENT]) + np.log(b[TWIN])) / 2 for b in blocks]
        verdicts = confirmations(blocks, name, rules)
        result[name] = {
            "confirmations": len(verdicts),
            **{kind: verdicts.count(kind) for kind in ("better", "not better", "undecided")},
            "median_ratio": float(np.exp(np.median(logs))),
            "sd_of_log_ratio": float(np.std(logs, ddof=1)) if len(logs) > 1 else None,
        }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
