"""The measuring process for Ansor records: the protocol of ``worker.py``, by an older TVM.

A script for any Python from 3.7 on that has a TVM with ``auto_scheduler`` (0.8 to 0.19), and
nothing of this toolkit: it is run by its path. A request's ``program`` is a line of an Ansor log;
an empty schedule in ``reference`` requests is what the record's workload computes unscheduled.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import time
from typing import Any


class AnsorBench:
    """Rebuilds records, times them and compares their outputs."""

    def __init__(self, settings: dict[str, Any]) -> None:
        import tvm
        from tvm import auto_scheduler

        self.tvm, self.auto_scheduler = tvm, auto_scheduler
        for path in settings["workloads"]:
            runpy.run_path(path)
        if settings["cores"] and hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, settings["cores"])
        self.target = tvm.target.Target(settings["target"]) if settings["target"] else None
        self.reference: list[Any] = []
        self.kept: dict[str, tuple[Any, list[Any], Any]] = {}

    def build(self, line: str, scheduled: bool) -> tuple[Any, list[Any], Any]:
        """Compile a record's program, or its workload without a schedule; give its tensors."""
        from tvm import te
        from tvm.auto_scheduler.measure import recover_measure_input
        from tvm.auto_scheduler.measure_record import load_record_from_string

        given, _ = load_record_from_string(line)
        found = recover_measure_input(given, rebuild_state=True)
        task = found.task
        target = self.target or task.target
        if scheduled:
            schedule, tensors = task.compute_dag.apply_steps_from_state(
                found.state, layout_rewrite=task.layout_rewrite_option
            )
        else:
            tensors = list(task.compute_dag.tensors)
            written = [t for t in tensors if not isinstance(t.op, te.PlaceholderOp)]
            schedule = te.create_schedule([t.op for t in written])
        with self.tvm.transform.PassContext(opt_level=3):
            return self.tvm.build(schedule, tensors, target), list(tensors), target

    def arguments(self, tensors: list[Any], target: Any) -> tuple[list[Any], list[bool], Any]:
        """Arguments (the same values for the same shape), and which of them are written."""
        import numpy as np
        from tvm import te

        kind = str(target.kind)
        device = self.tvm.device("cpu" if kind in ("llvm", "c") else kind, 0)
        generator = np.random.default_rng(0)
        made = []
        for tensor in tensors:
            shape = tuple(int(extent) for extent in tensor.shape)
            if tensor.dtype.startswith("float"):
                values = generator.uniform(-1.0, 1.0, shape).astype(tensor.dtype)
            else:
                values = generator.integers(0, 8, shape).astype(tensor.dtype)
            made.append(self.tvm.nd.array(values, device))
        return made, [not isinstance(t.op, te.PlaceholderOp) for t in tensors], device

    def time(self, built: tuple[Any, list[Any], Any], protocol: dict[str, Any]) -> list[float]:
        """Run times in seconds under a protocol."""
        function, tensors, target = built
        values, _, device = self.arguments(tensors, target)
        evaluator = function.time_evaluator(
            function.entry_name,
            device,
            number=protocol["number"],
            repeat=protocol["repeat"],
            min_repeat_ms=protocol["min_repeat_ms"],
            f_preproc="cache_flush_cpu_non_first_arg" if protocol["cache_flush"] else "",
        )
        return [float(seconds) for seconds in evaluator(*values).results]

    def outputs(self, built: tuple[Any, list[Any], Any]) -> list[Any]:
        """What a program writes."""
        function, tensors, target = built
        values, written, device = self.arguments(tensors, target)
        function(*values)
        device.sync()
        return [value.numpy() for value, out in zip(values, written) if out]  # noqa: B905 - 3.8


def compare(got: list[Any], wanted: list[Any], tolerance: float) -> dict[str, Any]:
    """Largest difference of outputs in shares of their range, and whether that is too much."""
    import numpy as np

    worst = 0.0
    for mine, theirs in zip(got, wanted):  # noqa: B905 - 3.8
        if not np.all(np.isfinite(mine) == np.isfinite(theirs)):
            worst = float("inf")
        scale = float(np.max(np.abs(theirs))) or 1.0
        gap = np.max(np.abs(mine.astype("float64") - theirs.astype("float64")))
        worst = max(worst, float(gap) / scale)
    if worst <= tolerance:
        return {"state": "ok"}
    return {"state": "wrong_answer", "error": f"outputs differ by {worst:.2g} of their range"}


def answer(bench: AnsorBench, request: dict[str, Any], say: Any) -> dict[str, Any]:
    """Do what one request asks; failures are answers."""
    started = time.perf_counter()
    stage = "compile"
    try:
        op, key = request["op"], request["key"]
        fresh = key not in bench.kept
        built = bench.build(request["program"], op != "reference") if fresh else bench.kept[key]
        if op == "build" or request.get("keep"):
            bench.kept[key] = built
        else:
            bench.kept.pop(key, None)
        build_s = time.perf_counter() - started
        say({"built": True, "build_s": build_s, "fresh": fresh})
        stage, started = "runtime", time.perf_counter()
        reply: dict[str, Any] = {"state": "ok", "build_s": build_s}
        if op == "build":
            return reply
        if op == "reference":
            bench.reference = bench.outputs(built)
        elif op == "check":
            reply.update(compare(bench.outputs(built), bench.reference, request["tolerance"]))
        else:
            reply["run_times_s"] = bench.time(built, request["protocol"])
        reply["run_s"] = time.perf_counter() - started
        return reply
    except Exception as error:  # TVM's errors have no type in common
        last = str(error).strip().splitlines()[-1:] or [""]
        return {"state": stage, "error": f"{type(error).__name__}: {last[0]}"[-600:]}


def main() -> None:
    """Answer until standard input ends."""
    replies = os.fdopen(os.dup(1), "w")
    # What TVM and the workload files print must not mix with the answers.
    os.dup2(2, 1)

    def say(message: dict[str, Any]) -> None:
        replies.write(json.dumps(message) + "\n")
        replies.flush()

    try:
        bench = AnsorBench(json.loads(sys.stdin.readline()))
    except Exception as error:  # whatever is wrong with that interpreter is told, in one line
        say({"ready": False, "error": f"{type(error).__name__}: {error}"[-300:]})
        return
    say({"ready": True})
    for line in sys.stdin:
        say(answer(bench, json.loads(line), say))


if __name__ == "__main__":
    main()
