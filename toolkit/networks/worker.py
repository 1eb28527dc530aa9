"""Measures whole networks, in its own process (``toolkit.live.measure.serve``).

A request's program is JSON: ``kind`` (``tvm``, ``onnxruntime``, ``openvino``, ``torch``), ``path``
(a folder of ``toolkit compile``, or a model file), and ``inputs``. Every kind runs with the given
number of threads. All other settings are the library's defaults for latency.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from toolkit.live.measure.quick_import import import_tvm
from toolkit.live.measure.serve import serve
from toolkit.networks.run_network import Network, random_inputs

LEAST_RUNS = 3
WARM_RUNS = 3
WARM_SHARE = 1 / 3
"""Share of the milliseconds of a measurement, at least one run, that is run first, not counted."""

Run = Callable[[], list[Any]]


def bind_threads(processors: Sequence[int]) -> None:
    """Bind each of TVM's threads to its own processor, the calling thread included.

    TVM binds the threads of its pool anyway, but not the calling thread. It could wake on a core
    where a pool thread spins and share that core: everything then takes nearly twice as long.
    """
    if not processors:
        return
    from tvm import get_global_func

    # -2: one core per thread (ThreadGroup::kSpecifyOneCorePerThread of threading_backend.h).
    configure = get_global_func("runtime.config_threadpool")
    configure(-2, len(processors), [str(core) for core in processors])
    os.sched_setaffinity(0, processors[:1])


def open_tvm(path: str, inputs: list[dict[str, Any]], bound: list[int]) -> Run:
    """Load a compiled network into TVM's virtual machine."""
    import_tvm("llvm")
    network = Network(Path(path))
    bind_threads(bound)
    tensors = [network.tensor(array) for array in random_inputs(inputs)]
    return lambda: network.outputs(network.run(*tensors))


def open_onnxruntime(path: str, inputs: list[dict[str, Any]], threads: int) -> Run:
    """Open an ONNX file in ONNX Runtime, with all optimisations."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [one.name for one in session.get_inputs()]
    arrays = dict(zip(names, random_inputs(inputs), strict=True))
    return lambda: list(session.run(None, arrays))


def open_openvino(path: str, inputs: list[dict[str, Any]], threads: int) -> Run:
    """Compile an ONNX file with OpenVINO for latency."""
    import openvino

    settings = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": threads,
        "INFERENCE_PRECISION_HINT": "f32",
    }
    request = openvino.compile_model(path, "CPU", settings).create_infer_request()
    tensors = [openvino.Tensor(array) for array in random_inputs(inputs)]
    for place, tensor in enumerate(tensors):
        request.set_input_tensor(place, tensor)

    def run() -> list[Any]:
        request.infer()
        return [request.get_output_tensor(i).data for i in range(len(request.model_outputs))]

    return run


def open_torch(path: str, inputs: list[dict[str, Any]], threads: int) -> Run:
    """Load an exported program into PyTorch, which runs it operator by operator."""
    import torch
    from torch.utils import _pytree as tree

    torch.set_num_threads(threads)
    program = torch.export.load(path)
    module = program.module()
    tensors = [torch.from_numpy(array) for array in random_inputs(inputs)]
    args, options = tree.tree_unflatten(tensors, program.call_spec.in_spec)

    def run() -> list[Any]:
        with torch.inference_mode():
            return [one.numpy() for one in tree.tree_leaves(module(*args, **options))]

    return run


RUNTIMES = {"onnxruntime": open_onnxruntime, "openvino": open_openvino, "torch": open_torch}


class NetworkBench:
    """Opens and measures networks (``toolkit.live.measure.serve``)."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.bound: list[int] = settings.get("bound") or []
        if self.bound and hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, self.bound)

    def build(self, request: dict[str, Any]) -> Run:
        """Open the program of a request, and run it until it is warm."""
        arm = json.loads(request["program"])
        if arm["kind"] == "tvm":
            run = open_tvm(arm["path"], arm["inputs"], self.bound)
        else:
            run = RUNTIMES[arm["kind"]](arm["path"], arm["inputs"], request["protocol"]["threads"])
        if request["op"] == "build":
            for _ in range(WARM_RUNS):
                run()
        return run

    def run(self, run: Run, request: dict[str, Any], _: Callable[[], None]) -> dict[str, Any]:
        """Return the mean seconds of a run, over as many runs as fill the protocol's milliseconds.

        For a protocol of more than one repeat, return the seconds of every single run instead. The
        first runs do not count: the caches may hold data of another network.
        """
        protocol = request["protocol"]
        least_s, begun = 1e-3 * protocol["min_repeat_ms"], time.perf_counter()
        run()
        while time.perf_counter() - begun < WARM_SHARE * least_s:
            run()
        marks = [time.perf_counter()]
        while len(marks) <= LEAST_RUNS or marks[-1] - marks[0] < least_s:
            run()
            marks.append(time.perf_counter())
        if protocol.get("repeat", 1) > 1:
            return {"run_times_s": np.diff(marks).tolist()}
        return {"run_times_s": [(marks[-1] - marks[0]) / (len(marks) - 1)]}

    def outputs(self, run: Run, _: dict[str, Any]) -> list[Any]:
        """Run the network once; return copies of its outputs."""
        return [np.array(array) for array in run()]


if __name__ == "__main__":
    serve(NetworkBench)
