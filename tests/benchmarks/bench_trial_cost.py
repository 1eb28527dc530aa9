"""Processor seconds that one trial costs at least: TVM's compiler, and the reading itself.

    python tests/benchmarks/bench_trial_cost.py --trials 64

Random programs, one after the other in this process, with the settings of ``bench_engine.py``, run
on one thread (as TVM's RPC servers do where there are two cores). Whoever measures them has to
lower, compile and run them; the sum is what no engine can save where builders and devices share the
cores. Beside it: what the same reading costs by TVM's evaluator alone, and how far the two readings
of a program lie apart (median ratio, and median distance). Nothing else may run.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from tvm.support import cc
from tvm.support.tar import tar, untar

from toolkit.live.measure.machine import default_target, physical_cores
from toolkit.live.measure.protocol import Protocol
from toolkit.live.measure.worker import Bench
from toolkit.live.space.design import DesignSpace
from toolkit.live.space.programs import timed_program
from toolkit.live.space.space import MetaScheduleSpace
from toolkit.live.workloads.named import parse_workload

PROTOCOL = Protocol(number=3, repeat=1, min_repeat_ms=100, max_retries=0)


class Costs:
    """Sums of processor and of wall-clock seconds, by what they were spent on."""

    def __init__(self) -> None:
        self.sums: dict[str, list[float]] = {}

    def of(self, what: str, work: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """Do something and count what it cost, child processes included."""
        began, clock = _processor_seconds(), time.perf_counter()
        result = work(*arguments, **named)
        mine = self.sums.setdefault(what, [0.0, 0.0])
        mine[0] += _processor_seconds() - began
        mine[1] += time.perf_counter() - clock
        return result


def _processor_seconds() -> float:
    found = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(use.ru_utime + use.ru_stime for use in found)


def read_both(
    bench: Bench, linked: str, info: list[Any], ours: Costs, theirs: Costs, ours_first: int
) -> float:
    """Read a program as the toolkit does and by TVM's evaluator alone; log of their ratio."""
    # A copy, so that its first calls are as cold.
    copy = bench.load(str(shutil.copy(linked, linked.replace(".so", "-copy.so"))))
    evaluator = copy.time_evaluator(
        "main",
        bench.device,
        number=PROTOCOL.number,
        repeat=PROTOCOL.repeat,
        min_repeat_ms=PROTOCOL.min_repeat_ms,
    )
    loaded, arguments = bench.load(linked), bench.arguments(info)
    alone = None if ours_first else theirs.of("run", evaluator, *arguments)
    request = {"arguments": info, "protocol": PROTOCOL.to_dict()}
    mine = ours.of("run", bench.run, loaded, request, lambda: None)
    if alone is None:
        alone = theirs.of("run", evaluator, *arguments)
    return float(np.log(mine["run_times_s"][0] / alone.mean))


def main() -> None:
    """Print one JSON object a workload."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workload", action="append")
    parser.add_argument("--trials", type=int, default=64)
    options = parser.parse_args()
    threads = physical_cores()
    # Idle threads of TVM's pool spin for a while, and would count as compiling.
    os.environ["TVM_NUM_THREADS"] = "1"
    target = default_target(threads)
    # As on a device elsewhere: compiled into an archive, linked and read there.
    bench = Bench({"target": json.loads(target), "cores": []})
    for name in options.workload or ["matmul:256,256,256", "conv2d_nhwc:1,28,28,64,64,3,1,1"]:
        (workload,) = parse_workload(name)
        space = MetaScheduleSpace(DesignSpace(workload.module, target))
        drawn = space.sample(np.random.default_rng(1), options.trials)
        costs, alone, apart = Costs(), Costs(), []
        with tempfile.TemporaryDirectory() as text:
            folder = Path(text)
            for number, candidate in enumerate(drawn):
                design = costs.of("schedule", space.realise, candidate)
                if design is None:
                    continue
                program = timed_program(design.schedule, space.design.inputs)
                made = costs.of("lower and optimise", bench.compile, program.text, timed=True)
                archive, objects = str(folder / f"{number}.tar"), folder / f"{number}"
                costs.of("generate code", made.export_library, archive, fcompile=tar)
                objects.mkdir()
                untar(archive, str(objects))
                linked = str(folder / f"{number}.so")
                costs.of("link", cc.create_shared, linked, [str(p) for p in objects.iterdir()])
                apart.append(read_both(bench, linked, program.arguments, costs, alone, number % 2))
        count = len(drawn)
        shown = {what: [round(s / count, 4) for s in sums] for what, sums in costs.sums.items()}
        total = sum(sums[0] for sums in costs.sums.values()) / count
        print(
            json.dumps(
                {"workload": name, "trials": count, "processor_s, wall_s": shown}
                | {"processor_s": round(total, 4), "cores": threads}
                | {"most_trials_per_minute": round(60 * threads / total, 1)}
                | {"run by TVM's evaluator alone, wall_s": round(alone.sums["run"][1] / count, 4)}
                | {"readings, ours over theirs": round(float(np.exp(np.median(apart))), 4)}
                | {"readings apart": round(float(np.median(np.abs(apart))), 4)}
            )
        )


if __name__ == "__main__":
    main()
