"""How often the confirmation calls a program better than itself, and finds a true 3 %, live.

    python tests/benchmarks/bench_confirm.py --minutes 60 --threads 2 --out confirm_blocks.jsonl

Measures blocks as ``toolkit validate`` does (``toolkit.live.measure.turns.read_block``), of several
arms that are the same program and of one that does 97 % of its passes over the same data, so that
it takes 3.0 % less time. Blocks are kept: run again, it goes on. Nothing else may run.

What is printed is found in two ways. ``in_order``: the blocks are cut, in the order in which they
were measured, into as many sequential confirmations as they hold, and with ``--groups`` of three
equal arms and a faster one each group of them for itself: no reading is used twice. With
``--equal-only`` new blocks have no faster arm and take three quarters of the time. ``drawn``:
every confirmation begins at a block drawn at random and goes on in order (behind the last block the
first one follows); who of the equal arms is incumbent, twin and challenger is drawn anew in every
block, which is allowed because they are the same program. Confirmations so drawn share readings:
their number says how finely the rate is known for *these* blocks, not how many blocks there were.

With ``--one-by-one`` every block is also measured in the simpler way, each arm read in full before
the next one's process is started, to see what reading in turns is worth; with ``--as-allocated``
with arguments where each process's allocator puts them, to see what it is worth to place them. With
``--alone`` one arm of either program is also read by a process that is alone on the machine, on the
block's processors and at its places in memory: ``over_alone`` is what a block says of it over that.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import tvm
from tvm.script import tirx as T

from toolkit.live.confirm.rules import INCUMBENT, TWIN, Rules, judge, may_stop, overall
from toolkit.live.measure.device import Device
from toolkit.live.measure.machine import default_target
from toolkit.live.measure.program import Program
from toolkit.live.measure.protocol import Protocol
from toolkit.live.measure.turns import read_block, same_place
from toolkit.live.space.programs import checked_program

FASTER = "97 % of the passes"
EQUAL = "equal"
CHALLENGER = "challenger"
VERDICTS = ("better", "not better", "undecided")
PASSES = 3200


def passes(count: int, threads: int) -> Program:
    """A program whose time is proportional to a number of passes that depend on each other.

    Each thread makes all passes, over a row of its own. Both numbers of passes are multiples of
    32, so that the compiler unrolls them alike.
    """

    @T.prim_func(s_tir=True)
    def main(A: T.Buffer((64, 512), "float32"), B: T.Buffer((64, 512), "float32")):
        for p in T.parallel(64):
            for r in range(3200):
                for o in range(32):
                    for i in T.vectorized(16):
                        with T.sblock("b"):
                            vp = T.axis.spatial(64, p)
                            vr = T.axis.opaque(3200, r)
                            vi = T.axis.spatial(512, o * 16 + i)
                            T.reads(A[vp, vi], B[vp, vi])
                            T.writes(B[vp, vi])
                            B[vp, vi] = (
                                B[vp, vi] * T.float32(0.5) + A[vp, vi] + T.Cast("float32", vr)
                            )

    text = main.script().replace(str(PASSES), str(count)).replace("64", str(threads))
    function = tvm.script.from_source(text)
    return checked_program(tvm.IRModule({"main": function}), 1)


def one_by_one(
    arms: dict[str, Program], target: str, protocol: Protocol, rng: np.random.Generator
) -> dict[str, float]:
    """Seconds of every arm, each built and read in full before the next one, in random order."""
    found = {}
    for name in rng.permutation(list(arms)).tolist():
        with Device(target, protocol) as device:
            found[name] = float(np.median(device.measure(arms[name]).run_times_s))
    return found


Roles = dict[str, float]
"""Seconds of one block by the roles of a confirmation: incumbent, its twin, the challenger."""


def verdict(blocks: Iterable[Roles], rules: Rules) -> tuple[str, int] | None:
    """One sequential confirmation: its verdict and its blocks; ``None`` where these run out."""
    readings: dict[str, list[float]] = {INCUMBENT: [], TWIN: [], CHALLENGER: []}
    for block in blocks:
        for role, values in readings.items():
            values.append(block[role])
        count = len(readings[INCUMBENT])
        if count not in rules.looks:
            continue
        judged = judge(readings, rules, [CHALLENGER])
        if may_stop(judged, count, rules):
            found = overall(judged)
            assert found is not None
            return found.verdict, count
    return None


def in_order(blocks: Sequence[dict[str, float]], names: Sequence[str], rules: Rules) -> list[str]:
    """Verdicts of confirmations one after the other, of arms in the roles as they are named."""
    roles = [
        dict(zip((INCUMBENT, TWIN, CHALLENGER), (block[n] for n in names), strict=True))
        for block in blocks
    ]
    verdicts, begin = [], 0
    while (found := verdict(roles[begin:], rules)) is not None:
        verdicts.append(found[0])
        begin += found[1]
    return verdicts


def drawn(
    blocks: Sequence[dict[str, float]],
    equal: Sequence[str],
    challenger: str | None,
    rules: Rules,
    count: int,
    rng: np.random.Generator,
) -> tuple[list[str], list[int]]:
    """Verdicts and sizes of confirmations with drawn beginnings and roles.

    ``challenger`` is the arm that is always the challenger; ``None``: one of the equal arms.
    """
    verdicts, sizes = [], []
    for _ in range(count):
        begin = int(rng.integers(len(blocks)))
        roles = []
        for offset in range(rules.looks[-1]):
            block = blocks[(begin + offset) % len(blocks)]
            first, second, third = rng.permutation(list(equal)).tolist()[:3]
            roles.append(
                {
                    INCUMBENT: block[first],
                    TWIN: block[second],
                    CHALLENGER: block[challenger or third],
                }
            )
        found = verdict(roles, rules)
        assert found is not None
        verdicts.append(found[0])
        sizes.append(found[1])
    return verdicts, sizes


def log_ratios(blocks: Sequence[dict[str, float]], equal: Sequence[str], third: str) -> list[float]:
    """By block, the log of an arm's seconds over the mean of the first two equal ones'."""
    return [float(np.log(b[third]) - np.log(b[equal[0]] * b[equal[1]]) / 2) for b in blocks]


def spread(logs: Sequence[float]) -> dict[str, float]:
    """Standard deviation, and the robust one (half the distance of the outer sixths)."""
    low, high = np.quantile(logs, [1 / 6, 5 / 6])
    return {"sd": float(np.std(logs, ddof=1)), "robust_sd": float(high - low) / 2}


def shares(verdicts: Sequence[str]) -> dict[str, float]:
    """How many confirmations there were, and the share of each verdict."""
    shown = {kind: round(verdicts.count(kind) / max(len(verdicts), 1), 4) for kind in VERDICTS}
    return {"confirmations": len(verdicts), **shown}


def main() -> None:
    """Measure for some minutes and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--threads", type=int, default=1, help="of the programs")
    parser.add_argument("--out", type=Path, default=Path("confirm_blocks.jsonl"))
    parser.add_argument("--groups", type=int, default=1, help="three arms of the same program each")
    parser.add_argument("--equal-only", action="store_true", help="no faster arm in new blocks")
    parser.add_argument("--alone", action="store_true", help="lone processes beside it")
    parser.add_argument("--one-by-one", action="store_true", help="the simpler way beside it")
    parser.add_argument("--as-allocated", action="store_true", help="unplaced arguments beside it")
    parser.add_argument("--draws", type=int, default=2000)
    parser.add_argument("--repeat", type=int, default=Protocol().repeat)
    parser.add_argument("--min-repeat-ms", type=int, default=Protocol().min_repeat_ms)
    options = parser.parse_args()
    target = default_target(options.threads)
    protocol = Protocol(
        repeat=options.repeat, min_repeat_ms=options.min_repeat_ms, threads=options.threads
    )
    whole = passes(PASSES, options.threads)
    part = passes(PASSES * 97 // 100, options.threads)
    equal = [f"{EQUAL} {number}" for number in range(3 * options.groups)]
    faster = [f"{FASTER} {number}" for number in range(options.groups)]
    arms = dict.fromkeys(equal, whole)
    if not options.equal_only:
        arms |= dict.fromkeys(faster, part)
    rng = np.random.default_rng(time.time_ns())
    ends = time.monotonic() + 60.0 * options.minutes
    with options.out.open("a", encoding="utf-8") as file:
        while time.monotonic() < ends:
            begun = time.monotonic()
            pinned = same_place(target, protocol, rng)
            block = read_block(arms, lambda one: Device(target, one), pinned, rng)
            if block.failed:
                raise RuntimeError(str(block.failed))
            took = time.monotonic() - begun
            line = {
                "seconds": block.seconds,
                "rounds": block.rounds,
                "cores": pinned.cores,
                "took_s": took,
            }
            if options.alone:
                pair = {name: arms[name] for name in (equal[0], faster[0]) if name in arms}
                line["alone"] = one_by_one(pair, target, pinned, rng)
            if options.one_by_one:
                begun = time.monotonic()
                line["one_by_one"] = one_by_one(arms, target, protocol, rng)
                line["one_by_one_took_s"] = time.monotonic() - begun
            if options.as_allocated:
                free = replace(pinned, placement=None)
                other = read_block(arms, lambda one: Device(target, one), free, rng)
                line["as_allocated"] = other.seconds
            file.write(json.dumps(line) + "\n")
            file.flush()
    lines = [json.loads(line) for line in options.out.read_text(encoding="utf-8").splitlines()]
    rules, fixed = Rules(), np.random.default_rng(0)
    result: dict[str, object] = {
        "blocks": len(lines),
        "seconds_a_block": float(np.median([line["took_s"] for line in lines])),
        "protocol": protocol.to_dict(),
    }
    beside = {
        way: [line[way] for line in lines if way in line] for way in ("one_by_one", "as_allocated")
    }
    for title, thirds in (("the same program", equal[2::3]), (FASTER, faster)):
        third = thirds[0]
        blocks = [line["seconds"] for line in lines if third in line["seconds"]]
        if not blocks:
            continue
        challenger = third if thirds is faster else None
        logs = log_ratios(blocks, equal, third)
        verdicts, sizes = drawn(blocks, equal, challenger, rules, options.draws, fixed)
        groups = [[*equal[3 * n : 3 * n + 2], name] for n, name in enumerate(thirds)]
        result[title] = {
            "in_order": shares([v for names in groups for v in in_order(blocks, names, rules)]),
            "drawn": {**shares(verdicts), "median_blocks": float(np.median(sizes))},
            "median_ratio": float(np.exp(np.median(logs))),
            "log_ratio": spread(logs),
            **{
                f"log_ratio_{way}": spread(log_ratios(found, equal, third))
                for way, found in beside.items()
                if found and all(third in block for block in found)
            },
        }
    alone = [
        line["seconds"][name] / seconds
        for line in lines
        for name, seconds in line.get("alone", {}).items()
    ]
    if alone:
        low, high = np.quantile(alone, [0.1, 0.9])
        result["over_alone"] = {
            "readings": len(alone),
            "median": float(np.median(alone)),
            "p10": float(low),
            "p90": float(high),
        }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
