"""Speed of replays; run by hand, on a quiet machine.

    python tests/benchmarks/bench_simulate.py evaluations CACHE [--kernel-tuner KT/bin/python]
    python tests/benchmarks/bench_simulate.py scenario DATASET [--model FOLDER ...] [--workers 2]

``evaluations`` replays random and genetic search on a Kernel Tuner cache (the A4000 convolution
space) and prints evaluations a second of one core; with ``--kernel-tuner``, an interpreter that
has Kernel Tuner, beside its simulation mode on the same file with as many evaluations a run::

    python -m venv KT && KT/bin/pip install "kernel_tuner<2"

Both have their default options, and ours gets as many evaluations (repeats included) as theirs
made. Both are timed in CPU seconds, best of ``--repeats``. Ours reads the cache and builds its
space once for all runs; Kernel Tuner does that in every run. The ratio is therefore given twice:
for whole runs, and with Kernel Tuner's start (measured by runs of one evaluation) taken off.

``scenario`` replays ten strategies on every enumerated task of a dataset, 25 seeds each, and prints
wall and CPU seconds of all processes. Strategies whose model is not given are left out, and said.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from toolkit.datasets import ingest, open_dataset
from toolkit.replay import RecordedOracle, RecordedSpace, load_scenario, load_tables, simulate
from toolkit.search import STRATEGIES
from toolkit.search.runner import Budget, SimulatedClock, run

KERNEL_TUNER = """
import json, os, sys, time, warnings
warnings.simplefilter("ignore")
import kernel_tuner
path, strategy, evaluations, repeats = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
cache = json.load(open(path))
recorded = set(cache["cache"])

def is_recorded(*values, **named):
    return ",".join(str(value) for value in values) in recorded

def seconds(n):
    begun = time.process_time()
    results, _ = kernel_tuner.tune_kernel(
        cache["kernel_name"], "__global__ void " + cache["kernel_name"] + "(){}",
        tuple(cache["problem_size"]), [], cache["tune_params"], restrictions=is_recorded,
        strategy=strategy, strategy_options={"max_fevals": n}, simulation_mode=True, cache=path,
        quiet=True, lang="CUDA")
    return time.process_time() - begun, len(results)

start = min(seconds(1)[0] for _ in range(repeats))
runs = [seconds(evaluations) for _ in range(repeats)]
count = runs[0][1]
print(count, min(s for s, _ in runs), start)
"""

PAIRS = [("random", "random_sample"), ("genetic", "genetic_algorithm")]
TEN = [
    "random",
    "grid",
    "annealing",
    "genetic",
    "evolutionary",
    "bayes-ei",
    "droplet",
    "etc-mutation",
    "beam",
    "transfer",
]


def best_rate(once: Callable[[int], int], repeats: int) -> float:
    """Best of several runs, in evaluations a CPU second."""
    rates = []
    for seed in range(repeats):
        begun = time.process_time()
        count = once(seed)
        rates.append(count / (time.process_time() - begun))
    return max(rates)


def evaluations(options: argparse.Namespace, folder: Path) -> None:
    """Evaluations a second, and the ratio to Kernel Tuner's simulation mode."""
    data = Path(options.what_on).read_bytes()
    cache = folder / "cache.json"
    cache.write_bytes(gzip.decompress(data) if options.what_on.endswith(".gz") else data)
    ingest(cache, folder / "dataset")
    (table,) = load_tables(open_dataset(folder / "dataset")).values()
    space = RecordedSpace(table)
    table.trials  # noqa: B018 (made once, for all runs)

    def whole(seed: int) -> int:
        strategy = STRATEGIES.get("random")(space, None, np.random.default_rng(seed))
        oracle = RecordedOracle(space, seed=seed)
        return run(strategy, oracle, Budget(), clock=SimulatedClock()).evaluations

    print(f"random, the whole space of {len(table)}: {best_rate(whole, options.repeats):,.0f}/s")
    for name, theirs in PAIRS:
        count, whole_s, start_s = options.evaluations, 0.0, 0.0
        if options.kernel_tuner:
            arguments = [str(cache), theirs, str(options.evaluations), str(options.repeats)]
            done = subprocess.run(
                [options.kernel_tuner, "-c", KERNEL_TUNER, *arguments],
                capture_output=True,
                text=True,
                check=True,
            )
            made, seconds, start = done.stdout.split()[-3:]
            count, whole_s, start_s = int(made), float(seconds), float(start)

        def limited(seed: int, name: str = name, count: int = count) -> int:
            strategy = STRATEGIES.get(name)(space, None, np.random.default_rng(seed))
            oracle = RecordedOracle(space, seed=seed)
            return run(strategy, oracle, Budget(count), clock=SimulatedClock()).evaluations

        ours = best_rate(limited, options.repeats)
        print(f"{name}, {count} evaluations a run: {ours:,.0f}/s")
        if options.kernel_tuner:
            rates = count / whole_s, count / max(whole_s - start_s, 1e-9)
            print(
                f"  Kernel Tuner {theirs}: {rates[0]:,.0f}/s, ratio {ours / rates[0]:.1f} "
                f"(bar: 20); without its start {rates[1]:,.0f}/s, ratio {ours / rates[1]:.1f}"
            )


def scenario(options: argparse.Namespace, folder: Path) -> None:
    """Ten strategies on every enumerated task."""
    chosen = load_scenario("enumerated")
    ten = {c.label: c for c in chosen.strategies if c.label in options.strategies}
    chosen = chosen.model_copy(
        update={"strategies": tuple(ten.values()), "seeds": options.seeds, "resamples": 1000}
    )
    begun, before = time.perf_counter(), os.times()
    summary = simulate(
        options.what_on, chosen, models=options.model, workers=options.workers, out=folder / "out"
    )
    wall, after = time.perf_counter() - begun, os.times()
    cpu = sum(after[:4]) - sum(before[:4])
    print(
        json.dumps(
            {
                "tasks": len(summary["tasks"]),
                "strategies": list(summary["strategies"]),
                "left_out": summary["left_out"],
                "seeds": options.seeds,
                "workers": options.workers,
                "evaluations": sum(s["evaluations"] for s in summary["strategies"].values()),
                "wall_s": round(wall, 1),
                "cpu_s": round(cpu, 1),
            }
        )
    )


def main() -> None:
    """Parse the command line and run one benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["evaluations", "scenario"])
    parser.add_argument("what_on", metavar="CACHE_OR_DATASET")
    parser.add_argument("--kernel-tuner", help="Python that has Kernel Tuner")
    parser.add_argument("--evaluations", type=int, default=500)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--model", action="append", default=[])
    parser.add_argument("--strategies", nargs="+", default=TEN)
    parser.add_argument("--seeds", type=int, default=25)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        {"evaluations": evaluations, "scenario": scenario}[options.what](options, Path(name))


if __name__ == "__main__":
    main()
