"""Runs the compiled network that is in the same folder as this file.

    python run.py                 measures its latency on random inputs
    python run.py INPUTS.npz      computes outputs; INPUTS.npz holds one array per input, by name;
                                  writes outputs.npz

From Python: ``from run import Network; outputs = Network()(*arrays)``. Only apache-tvm and numpy
are needed.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SECONDS = 3.0
"""Seconds for measuring the latency."""

WARM = 10
"""The first runs, which are not counted. At least as many runs are counted."""


class Network:
    """A compiled network: call it with one array per input, in the order of ``inputs``."""

    def __init__(self, folder: Path = HERE) -> None:
        facts = json.loads((folder / "network.json").read_text())
        # By default TVM would start half as many threads as processors. It reads this only once.
        os.environ.setdefault("TVM_NUM_THREADS", str(facts["threads"]))
        import tvm

        self.inputs: list[dict[str, Any]] = facts["inputs"]
        self.tensor = tvm.runtime.tensor
        library = tvm.runtime.load_module(str(folder / "network.so"))
        self.machine = tvm.relax.VirtualMachine(library, tvm.cpu())

    def __call__(self, *arrays: Any) -> list[Any]:
        """Compute the outputs; return a list of arrays."""
        return self.outputs(self.run(*(self.tensor(array) for array in arrays)))

    def run(self, *tensors: Any) -> Any:
        """Compute on TVM's tensors, without copying."""
        return self.machine["main"](*tensors)

    @staticmethod
    def outputs(returned: Any) -> list[Any]:
        """Turn the return value of the network into a list of arrays."""
        many = [returned] if hasattr(returned, "numpy") else list(returned)
        return [tensor.numpy() for tensor in many]


def random_inputs(inputs: list[dict[str, Any]], seed: int = 0) -> list[Any]:
    """Return one array per input: normal numbers, or 0 and 1. The same ``seed`` gives the same."""
    import numpy as np

    rng = np.random.default_rng(seed)
    made = []
    for one in inputs:
        if one["dtype"].startswith("float"):
            made.append(rng.standard_normal(one["shape"]).astype(one["dtype"]))
        else:
            made.append(rng.integers(0, 2, one["shape"]).astype(one["dtype"]))
    return made


def main() -> None:
    """Measure the latency, or compute on the arrays of a file."""
    import numpy as np

    network = Network()
    if len(sys.argv) > 1:
        given = np.load(sys.argv[1])
        outputs = network(*(given[one["name"]] for one in network.inputs))
        np.savez("outputs.npz", *outputs)
        print("wrote outputs.npz:", ", ".join(str(array.shape) for array in outputs))  # noqa: T201
        return
    tensors = [network.tensor(array) for array in random_inputs(network.inputs)]
    times: list[float] = []
    end = time.perf_counter() + SECONDS
    while len(times) < 2 * WARM or time.perf_counter() < end:
        begun = time.perf_counter()
        network.run(*tensors)
        times.append(time.perf_counter() - begun)
    read = times[WARM:]
    print(f"median of {len(read)} runs: {1e3 * float(np.median(read)):.3f} ms")  # noqa: T201


if __name__ == "__main__":
    main()
