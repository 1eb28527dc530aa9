"""The measuring process for Ansor records: the protocol of ``serve.py``, run by an older TVM.

A script for Python 3.7 or later with a TVM that has ``auto_scheduler`` (0.8 to 0.19). It does not
import the toolkit, and is run by its path. A request's ``program`` is a line of an Ansor log. A
``reference`` request builds the line's workload without a schedule.
"""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

SERVE = runpy.run_path(str(Path(__file__).parents[1] / "measure" / "serve.py"))


class AnsorBench:
    """Rebuild records, time them, and compute their outputs."""

    def __init__(self, settings: dict[str, Any]) -> None:
        import tvm
        from tvm import auto_scheduler  # noqa: F401 - a TVM without it is refused here

        self.tvm = tvm
        for path in settings["workloads"]:
            runpy.run_path(path)
        self.target = tvm.target.Target(settings["target"]) if settings["target"] else None

    def build(self, request: dict[str, Any]) -> tuple[Any, list[Any], Any]:
        """Compile a record, or its workload without a schedule; return it, tensors and target."""
        from tvm import te
        from tvm.auto_scheduler.measure import recover_measure_input
        from tvm.auto_scheduler.measure_record import load_record_from_string

        given, _ = load_record_from_string(request["program"])
        found = recover_measure_input(given, rebuild_state=True)
        task = found.task
        target = self.target or task.target
        if request["op"] != "reference":
            schedule, tensors = task.compute_dag.apply_steps_from_state(
                found.state, layout_rewrite=task.layout_rewrite_option
            )
        else:
            tensors = list(task.compute_dag.tensors)
            written = [t for t in tensors if not isinstance(t.op, te.PlaceholderOp)]
            schedule = te.create_schedule([t.op for t in written])
        with self.tvm.transform.PassContext(opt_level=3):
            return self.tvm.build(schedule, tensors, target), list(tensors), target

    def arguments(self, tensors: list[Any], target: Any) -> tuple[list[Any], Any]:
        """Return arguments (equal values for equal shapes) and their device."""
        kind = str(target.kind)
        device = self.tvm.device("cpu" if kind in ("llvm", "c") else kind, 0)
        shapes = [(t.dtype, tuple(int(extent) for extent in t.shape)) for t in tensors]
        arrays = SERVE["random_arrays"](shapes)
        return [self.tvm.nd.array(values, device) for values in arrays], device

    def run(
        self, built: tuple[Any, list[Any], Any], request: dict[str, Any], again: Any
    ) -> dict[str, Any]:
        """Return run times in seconds, measured with the request's protocol."""
        function, tensors, target = built
        values, device = self.arguments(tensors, target)
        protocol = request["protocol"]
        evaluator = function.time_evaluator(
            function.entry_name,
            device,
            number=protocol["number"],
            repeat=protocol["repeat"],
            min_repeat_ms=protocol["min_repeat_ms"],
            f_preproc="cache_flush_cpu_non_first_arg" if protocol["cache_flush"] else "",
        )
        return {"run_times_s": [float(seconds) for seconds in evaluator(*values).results]}

    def outputs(self, built: tuple[Any, list[Any], Any], request: dict[str, Any]) -> list[Any]:
        """Run a program once and return its outputs."""
        from tvm import te

        function, tensors, target = built
        values, device = self.arguments(tensors, target)
        function(*values)
        device.sync()
        return [
            value.numpy()
            for value, tensor in zip(values, tensors)  # noqa: B905 - Python 3.8
            if not isinstance(tensor.op, te.PlaceholderOp)
        ]


def told(error: Exception) -> str:
    """Return the last line of an error of TVM; the lines before it are a call stack."""
    last = str(error).strip().splitlines()[-1:] or [""]
    return f"{type(error).__name__}: {last[0]}"[-600:]


if __name__ == "__main__":
    SERVE["serve"](AnsorBench, told)
