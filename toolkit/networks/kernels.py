"""Time by kernel of a compiled network: a process of its own with TVM's instrument."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from toolkit import children
from toolkit.live.measure.machine import places_for
from toolkit.networks.run_network import Network, random_inputs
from toolkit.networks.worker import bind_threads

RUNS, WARM = 20, 5
TIMEOUT_S = 120.0


def profile(folder: Path, threads: int) -> list[dict[str, Any]]:
    """Seconds and calls a run of every kernel, slowest first; empty: it failed."""
    process = children.start(
        children.python("toolkit.networks.kernels", str(folder), str(threads)),
        environment={"TVM_NUM_THREADS": str(threads)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        output, _ = process.communicate(timeout=TIMEOUT_S)
        rows: list[dict[str, Any]] = orjson.loads(output) if process.returncode == 0 else []
        return rows
    except (subprocess.TimeoutExpired, orjson.JSONDecodeError):
        return []
    finally:
        children.end(process)


def measure(folder: Path, threads: int) -> list[dict[str, Any]]:
    """Run the network under TVM's instrument, in this process; medians over the runs."""
    network = Network(folder)
    bind_threads(places_for(threads))
    tensors = [network.tensor(array) for array in random_inputs(network.inputs)]
    spent: dict[str, float] = {}
    calls: dict[str, int] = {}
    runs: list[dict[str, float]] = []
    begun = [0.0]

    def instrument(_: Any, name: str, before: bool, *__: Any) -> int:
        if before:
            begun[0] = time.perf_counter()
        else:
            spent[name] = spent.get(name, 0.0) + time.perf_counter() - begun[0]
            calls[name] = calls.get(name, 0) + 1
        return 0  # TVM's NO_OP: go on as without an instrument

    network.machine.set_instrument(instrument)
    for _ in range(WARM + RUNS):
        spent.clear()
        calls.clear()
        network.run(*tensors)
        runs.append(dict(spent))
    rows = [
        {"kernel": n, "seconds": float(np.median([run[n] for run in runs[WARM:]])), "calls": count}
        for n, count in calls.items()
        if not n.startswith("vm.builtin.")
    ]
    return sorted(rows, key=lambda row: -row["seconds"])


if __name__ == "__main__":
    sys.stdout.buffer.write(orjson.dumps(measure(Path(sys.argv[1]), int(sys.argv[2]))))
