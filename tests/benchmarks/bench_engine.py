"""Trials a minute of the live engine and of TVM's own tuner, side by side in one run.

    python tests/benchmarks/bench_engine.py --trials 128 --rounds 3 --mode local

Both build and measure random programs of the same workload with the same settings of the time
evaluator, in turn: TVM's ``tune_tir`` with its ``replay-trace`` strategy (random programs, no cost
model; its default builder and runner, batches of 64) and ``DeviceOracle``. Nothing else may run.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import statistics
import tempfile
import time

import numpy as np
import tvm
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.runner import EvaluatorConfig, LocalRunner, RPCConfig, RPCRunner

from tests.live.farm import KEY, Farm
from toolkit.live.measure.engines import open_engine
from toolkit.live.measure.machine import default_target, physical_cores
from toolkit.live.measure.protocol import Protocol
from toolkit.live.space.design import DesignSpace
from toolkit.live.space.oracle import DeviceOracle
from toolkit.live.space.space import MetaScheduleSpace
from toolkit.live.workloads.named import parse_workload
from toolkit.records import TrialState


def stock(
    module: tvm.IRModule, target: str, trials: int, protocol: Protocol, farm: Farm | None
) -> float:
    """Seconds that TVM's tuner takes for so many trials."""
    config = EvaluatorConfig(
        number=protocol.number, repeat=protocol.repeat, min_repeat_ms=protocol.min_repeat_ms
    )
    if farm is None:
        runner = LocalRunner(evaluator_config=config)
    else:
        where = RPCConfig("127.0.0.1", farm.port, KEY, session_timeout_sec=60)
        runner = RPCRunner(where, evaluator_config=config, max_workers=2)
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        ms.tune_tir(
            module,
            tvm.target.Target(json.loads(target)),
            work_dir=folder,
            max_trials_global=trials,
            num_trials_per_iter=64,
            runner=runner,
            cost_model="random",
            strategy="replay-trace",
            seed=1,
        )
        return time.perf_counter() - started


def ours(
    module: tvm.IRModule, target: str, trials: int, protocol: Protocol, farm: Farm | None
) -> float:
    """Seconds that the toolkit's engine takes for so many trials.

    What TVM refuses before it is built is no trial: the tuner does not count it either.
    """
    started = time.perf_counter()
    with open_engine(target, protocol, device=None if farm is None else farm.device) as engine:
        space = MetaScheduleSpace(DesignSpace(module, target))
        drawn = space.sample(np.random.default_rng(1), trials)
        states = [trial.state for trial in DeviceOracle(space, engine).measure(drawn)]
    built = sum(state is not TrialState.INSTANTIATION for state in states)
    return (time.perf_counter() - started) * trials / built


def main() -> None:
    """Print one JSON object a workload."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workload", action="append")
    parser.add_argument("--trials", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--mode",
        choices=("local", "adaptive", "rpc", "adaptive-rpc"),
        default="local",
        help="equal settings here; short first readings for ours; two RPC servers; both",
    )
    options = parser.parse_args()
    logging.getLogger("tvm").setLevel(logging.ERROR)
    threads = physical_cores()
    target = default_target(threads)
    drop = 1.3 if "adaptive" in options.mode else 0.0
    protocol = Protocol(
        number=3, repeat=1, min_repeat_ms=100, threads=threads, max_retries=0, drop_above=drop
    )
    farm = Farm() if "rpc" in options.mode else None
    # Programs run on as many threads on both sides: here on those that the target names (TVM by
    # itself takes half of the cores), behind RPC on as many as the servers take.
    os.environ["TVM_NUM_THREADS"] = str(threads)
    for name in options.workload or ["matmul:256,256,256", "conv2d_nhwc:1,28,28,64,64,3,1,1"]:
        (workload,) = parse_workload(name)
        pairs = []
        for _ in range(options.rounds):
            theirs = stock(workload.module, target, options.trials, protocol, farm)
            mine = ours(workload.module, target, options.trials, protocol, farm)
            pairs.append((theirs, mine))
        print(
            json.dumps(
                {
                    "workload": name,
                    "mode": options.mode,
                    "trials": options.trials,
                    "stock_trials_per_minute": round(
                        60 * options.trials / statistics.median(p[0] for p in pairs), 1
                    ),
                    "toolkit_trials_per_minute": round(
                        60 * options.trials / statistics.median(p[1] for p in pairs), 1
                    ),
                    "median_ratio": round(statistics.median(a / b for a, b in pairs), 2),
                }
            )
        )
    if farm is not None:
        farm.close()


if __name__ == "__main__":
    main()
