"""Measures the time of each kernel of compiled networks by TVM's instrument, in its own process."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from toolkit import children
from toolkit.live.measure.machine import places_for
from toolkit.live.measure.quick_import import import_tvm
from toolkit.networks.run_network import Network, random_inputs
from toolkit.networks.worker import bind_threads

WARM, FEWEST_ROUNDS, RUNS = 3, 3, 2
"""Runs before the first measurement; minimum number of rounds; measured runs per round."""

TIMEOUT_S = 120.0


def profile(folders: Sequence[Path], threads: int, seconds: float) -> list[list[dict[str, Any]]]:
    """Measure several builds of one network in turns; return an empty list on failure.

    Returns, for each folder, a row for each kernel, slowest first: its ``seconds`` and ``calls`` a
    run, and its ``ratio`` to the same kernel of the first folder (median over rounds). A round is
    short, so the ratio does not change when the machine is slow for a while.
    """
    process = children.start(
        children.python("toolkit.networks.kernels", str(threads), str(seconds), *map(str, folders)),
        environment={"TVM_NUM_THREADS": str(threads)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        output, _ = process.communicate(timeout=TIMEOUT_S + seconds)
        rows: list[list[dict[str, Any]]] = orjson.loads(output) if process.returncode == 0 else []
        return rows
    except (subprocess.TimeoutExpired, orjson.JSONDecodeError):
        return []
    finally:
        children.end(process)


class _Read:
    """One build: runs under the instrument and keeps the seconds of each kernel, by round."""

    def __init__(self, folder: Path) -> None:
        self._network = Network(folder)
        self._tensors = [self._network.tensor(a) for a in random_inputs(self._network.inputs)]
        self._spent: dict[str, float] = {}
        self._begun = 0.0
        self.calls: dict[str, int] = {}
        self.rounds: dict[str, list[float]] = {}
        self.means: dict[str, list[float]] = {}
        self._network.machine.set_instrument(self._instrument)

    def _instrument(self, _: Any, name: str, before: bool, *__: Any) -> int:
        if before:
            self._begun = time.perf_counter()
        else:
            self._spent[name] = self._spent.get(name, 0.0) + time.perf_counter() - self._begun
            self.calls[name] = self.calls.get(name, 0) + 1
        return 0  # TVM's NO_OP: go on as without an instrument

    def run(self) -> dict[str, float]:
        """Return the seconds of each kernel in one run."""
        self._spent, self.calls = {}, {}
        self._network.run(*self._tensors)
        return self._spent

    def read(self) -> None:
        """Measure one round; a first run brings the weights into the cache, as in normal use."""
        self.run()
        runs = [self.run() for _ in range(RUNS)]
        for name in runs[0]:
            if not name.startswith("vm.builtin."):
                # The minimum compares builds best; the mean is the time in the network.
                self.rounds.setdefault(name, []).append(min(run[name] for run in runs))
                self.means.setdefault(name, []).append(sum(run[name] for run in runs) / RUNS)


def measure(folders: Sequence[Path], threads: int, seconds: float) -> list[list[dict[str, Any]]]:
    """Measure the builds in turns, in this process (see ``profile``)."""
    builds = [_Read(folder) for folder in folders]
    bind_threads(places_for(threads))
    for build in builds:
        for _ in range(WARM):
            build.run()
    begun, rounds = time.perf_counter(), 0
    rng = np.random.default_rng(0)
    while rounds < FEWEST_ROUNDS or time.perf_counter() - begun < seconds:
        for number in rng.permutation(len(builds)).tolist():
            builds[number].read()
        rounds += 1
    first = {function_of(name): np.array(found) for name, found in builds[0].rounds.items()}
    return [_rows(build, first) for build in builds]


def function_of(kernel: str) -> str:
    """Return the function that a kernel comes from; packed weights add a suffix to its name."""
    return kernel.removesuffix("_prepacked")


def _rows(build: _Read, first: dict[str, Any]) -> list[dict[str, Any]]:
    rows = []
    for name, found in build.rounds.items():
        other = first.get(function_of(name))
        rows.append(
            {
                "kernel": name,
                "seconds": float(np.median(build.means[name])),
                "calls": build.calls[name],
                "ratio": None if other is None else float(np.median(np.array(found) / other)),
            }
        )
    return sorted(rows, key=lambda row: -row["seconds"])


if __name__ == "__main__":
    import_tvm("llvm")
    found = measure([Path(one) for one in sys.argv[3:]], int(sys.argv[1]), float(sys.argv[2]))
    sys.stdout.buffer.write(orjson.dumps(found))
