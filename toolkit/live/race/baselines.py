"""TVM's own tuner with one change, as an arm that is compared with stock like the others.

How much of a race's result comes from a warm model, from small batches, or from finalists?
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import tvm

from toolkit.atomic import write_atomically
from toolkit.datasets.urls import folder_at
from toolkit.live.measure.protocol import Protocol
from toolkit.live.space.programs import count_inputs, replay_trace, timed_program
from toolkit.live.tune.finalists import FINALISTS, NEAR, hold_heats, rounds_here
from toolkit.live.tvm.stock import TRIALS_FILE, tune_stock

NAMED_FILE = "named.json"


@dataclass(frozen=True)
class Baseline:
    """One change: a ``warm`` cost model, trials in batches of ``batch``, or ``finalists``."""

    warm: bool = False
    batch: int | None = None
    finalists: int = 0


BASELINES: Mapping[str, Baseline] = {
    "stock": Baseline(),
    "stock-warm": Baseline(warm=True),
    "stock-finalists": Baseline(finalists=FINALISTS),
    "stock-small-batches": Baseline(batch=16),
}
"""TVM's tuner unchanged, with the trained throughput model as its cost model, with its best
programs read again as in ``toolkit tune``, and with batches of 16 trials instead of 64."""


def run_baseline(
    baseline: Baseline,
    module: tvm.IRModule,
    folder: Path,
    *,
    protocol: Protocol,
    spec: Mapping[str, Any],
    started: float,
) -> float:
    """Run TVM's tuner into ``folder`` with a leg's ``spec``; return the seconds that it took.

    ``started`` is the value of ``time.perf_counter()`` at clock time 0.
    """
    cost_model = None
    if baseline.warm:
        from toolkit.live import cost_model as warm
        from toolkit.training.trained.store import read_manifest

        (model,) = (
            m for m in spec["models"] if read_manifest(folder_at(m))["kind"] == "throughput"
        )
        cost_model = warm(model, machine=spec["machine"])
    tune_stock(
        module,
        folder,
        target=spec["target"],
        protocol=protocol,
        trials=spec["trials"],
        seed=spec["seed"],
        started=started,
        build_timeout_s=spec["stock_build_timeout_s"],
        cost_model=cost_model,
        batch=baseline.batch,
    )
    if baseline.finalists:
        read_again(module, folder, baseline.finalists, spec["target"], protocol, started)
    return time.perf_counter() - started


def named_trial(folder: Path) -> dict[str, Any] | None:
    """Return the winner of the finalists, ``trial`` and ``clock_s``; ``None``: no finalists."""
    path = folder / NAMED_FILE
    return orjson.loads(path.read_bytes()) if path.is_file() else None


def record_of(folder: Path, latency_s: float) -> Any:
    """Return TVM's tuning record with this latency; the database has another order than trials."""
    lines = (folder / "database_tuning_record.json").read_bytes().splitlines()
    timed = [record for line in lines if (record := orjson.loads(line)[1])[1]]
    return min(timed, key=lambda record: abs(sum(record[1]) / len(record[1]) - latency_s))


def read_again(
    module: tvm.IRModule,
    folder: Path,
    finalists: int,
    target: str,
    protocol: Protocol,
    started: float,
) -> None:
    """Measure the best programs again in turns, and write the winner to ``named.json``."""
    rows = [orjson.loads(line) for line in (folder / TRIALS_FILE).read_bytes().splitlines()]
    timed = sorted(
        (row["latency_s"], trial)
        for trial, row in enumerate(rows, start=1)
        if row["latency_s"] is not None
    )
    near = [(seconds, trial) for seconds, trial in timed if seconds <= NEAR * timed[0][0]]
    programs = {}
    for seconds, trial in near[:finalists]:
        schedule = replay_trace(module, record_of(folder, seconds)[0])
        if schedule is not None:
            programs[str(trial)] = timed_program(schedule, count_inputs(module))
    if len(programs) < 2:
        return
    with rounds_here(programs, target, protocol, np.random.default_rng(0)) as read:
        standing = hold_heats(list(programs), read)
    if standing.order:
        named = {"trial": int(standing.order[0]), "clock_s": time.perf_counter() - started}
        write_atomically(folder / NAMED_FILE, orjson.dumps(named))
