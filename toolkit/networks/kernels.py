"""Time by kernel of a compiled network: a process of its own with TVM's instrument."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import orjson

from toolkit import children
from toolkit.networks.run_network import Network, random_inputs

RUNS, WARM = 20, 5
TIMEOUT_S = 120.0


def profile(folder: Path, threads: int) -> list[dict[str, Any]]:
    """Mean seconds a run and calls a run of every kernel, slowest first; empty: it failed."""
    process = children.start(
        children.python("toolkit.networks.kernels", str(folder)),
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


def measure(folder: Path) -> list[dict[str, Any]]:
    """Run the network under TVM's instrument, in this process."""
    network = Network(folder)
    tensors = [network.tensor(array) for array in random_inputs(network.inputs)]
    seconds: dict[str, float] = {}
    calls: dict[str, int] = {}
    begun = [0.0]
    counts = [False]

    def instrument(_: Any, name: str, before: bool, *__: Any) -> int:
        if before:
            begun[0] = time.perf_counter()
        elif counts[0]:
            seconds[name] = seconds.get(name, 0.0) + time.perf_counter() - begun[0]
            calls[name] = calls.get(name, 0) + 1
        return 0  # TVM's NO_OP: go on as without an instrument

    network.machine.set_instrument(instrument)
    for number in range(WARM + RUNS):
        counts[0] = number >= WARM
        network.run(*tensors)
    rows = [
        {"kernel": name, "seconds": total / RUNS, "calls": calls[name] / RUNS}
        for name, total in seconds.items()
        if not name.startswith("vm.builtin.")
    ]
    return sorted(rows, key=lambda row: -float(row["seconds"]))


if __name__ == "__main__":
    sys.stdout.buffer.write(orjson.dumps(measure(Path(sys.argv[1]))))
