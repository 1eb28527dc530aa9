"""Measures whole networks: a process that speaks the protocol of ``live.measure.worker``.

A request's program is JSON: ``kind`` (``tvm``, ``onnxruntime``, ``openvino``), ``path`` (a folder
that ``toolkit compile`` wrote, or an ONNX file), and ``inputs``. Every kind runs with the threads
that it is told, and all else at its library's defaults for latency.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from toolkit.networks.run_network import Network, random_inputs

LEAST_RUNS = 3
WARM_RUNS = 3

Run = Callable[[], list[Any]]


def open_tvm(path: str, inputs: list[dict[str, Any]], bound: list[int]) -> Run:
    """Load a compiled network into TVM's virtual machine."""
    network = Network(Path(path))
    if bound:
        from tvm import get_global_func

        # -2: one core a thread (ThreadGroup::kSpecifyOneCorePerThread of threading_backend.h).
        configure = get_global_func("runtime.config_threadpool")
        configure(-2, len(bound), [str(core) for core in bound])
    tensors = [network.tensor(array) for array in random_inputs(inputs)]
    return lambda: network.outputs(network.run(*tensors))


def open_onnxruntime(path: str, inputs: list[dict[str, Any]], threads: int) -> Run:
    """Open an ONNX file in ONNX Runtime, all optimisations on."""
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


def open_arm(text: str, threads: int, bound: list[int]) -> Run:
    """Open what a program's JSON names."""
    arm = orjson.loads(text)
    if arm["kind"] == "tvm":
        return open_tvm(arm["path"], arm["inputs"], bound)
    opened = {"onnxruntime": open_onnxruntime, "openvino": open_openvino}[arm["kind"]]
    return opened(arm["path"], arm["inputs"], threads)


def mean_s(run: Run, least_ms: float) -> float:
    """Seconds a run, over as many as take so many milliseconds."""
    runs, begun = 0, time.perf_counter()
    while True:
        run()
        runs += 1
        elapsed = time.perf_counter() - begun
        if runs >= LEAST_RUNS and elapsed >= 1e-3 * least_ms:
            return elapsed / runs


def serve() -> None:
    """Answer requests until standard input ends."""
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    # Libraries print; nothing but replies may reach the other side's pipe.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def say(message: dict[str, Any]) -> None:
        replies.write(orjson.dumps(message, option=orjson.OPT_SERIALIZE_NUMPY) + b"\n")
        replies.flush()

    settings = orjson.loads(sys.stdin.buffer.readline())
    bound = settings.get("bound") or []
    if bound and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, bound)
    say({"ready": True})
    opened: dict[str, Run] = {}
    kept: list[Any] = []
    for line in sys.stdin.buffer:
        request = orjson.loads(line)
        try:
            _answer(request, opened, kept, bound, say)
        except Exception as error:
            say({"state": "runtime", "error": f"{type(error).__name__}: {error}"[-600:]})


def _answer(
    request: dict[str, Any],
    opened: dict[str, Run],
    kept: list[Any],
    bound: list[int],
    say: Callable[[dict[str, Any]], None],
) -> None:
    begun, op, key = time.perf_counter(), request["op"], request["key"]
    fresh = key not in opened
    if fresh:
        opened[key] = open_arm(request["program"], request["protocol"]["threads"], bound)
    answer: dict[str, Any] = {"state": "ok", "build_s": time.perf_counter() - begun}
    say({"built": True, "build_s": answer["build_s"], "fresh": fresh})
    begun = time.perf_counter()
    if op == "reference":
        kept[:] = [np.array(array) for array in opened[key]()]
    elif op == "check":
        worst = worst_difference(opened[key](), kept)
        wrong = not worst <= request["tolerance"]
        answer["error"] = f"outputs differ by {worst:.2g} of their range"
        answer["state"] = "wrong_answer" if wrong else "ok"
    elif op == "measure":
        if fresh or not request.get("keep"):
            for _ in range(WARM_RUNS):
                opened[key]()
        answer["run_times_s"] = [mean_s(opened[key], request["protocol"]["min_repeat_ms"])]
    answer["run_s"] = time.perf_counter() - begun
    say(answer)


def worst_difference(mine: list[Any], theirs: list[Any]) -> float:
    """Largest difference of outputs, relative to the range of the other's output."""
    if len(mine) != len(theirs):
        return float("inf")
    worst = 0.0
    for one, other in zip(mine, theirs, strict=True):
        left, right = np.asarray(one, dtype="float64"), np.asarray(other, dtype="float64")
        if left.shape != right.shape or not np.isfinite(left).all():
            return float("inf")
        scale = float(np.max(np.abs(right), initial=0.0)) or 1.0
        worst = max(worst, float(np.max(np.abs(left - right), initial=0.0)) / scale)
    return worst


if __name__ == "__main__":
    serve()
