"""The measuring process: reads programs on standard input, builds and runs them, answers.

One JSON object a line in each direction. A build is announced before the program runs, so that
whoever waits knows which of the two took too long. The process is disposable: a crash or a
time-out costs one trial, never the run.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any

import orjson


def _reply(stream: Any, message: dict[str, Any]) -> None:
    stream.write(orjson.dumps(message) + b"\n")
    stream.flush()


class _CoreUse:
    """CPU seconds that other processes spent on some cores (Linux: ``/proc/stat``)."""

    def __init__(self, cores: list[int]) -> None:
        self._cores = {f"cpu{core}" for core in cores}
        self._tick = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
        self._busy, self._own, self._wall = self._read()

    def _read(self) -> tuple[float, float, float]:
        busy = 0.0
        try:
            with open("/proc/stat", encoding="ascii") as stat:  # noqa: PTH123 - a kernel file
                for line in stat:
                    name, *fields = line.split()
                    if name in self._cores:
                        user, nice, system, _idle, _iowait, irq, softirq, steal = map(
                            int, fields[:8]
                        )
                        busy += (user + nice + system + irq + softirq + steal) / self._tick
        except OSError:
            return 0.0, 0.0, time.perf_counter()
        own = os.times()
        return busy, own.user + own.system, time.perf_counter()

    def foreign_share(self) -> float:
        """Share of the cores' time since construction that was not this process's own."""
        busy, own, wall = self._read()
        available = max(wall - self._wall, 1e-9) * max(len(self._cores), 1)
        foreign = (busy - self._busy) - (own - self._own)
        # One tick of rounding on either side is not interference.
        return max(0.0, foreign - 2.0 / self._tick) / available


class Bench:
    """Builds and runs programs of one target under one protocol."""

    def __init__(self, settings: dict[str, Any]) -> None:
        import tvm

        self.tvm = tvm
        self.settings = settings
        self.target = tvm.target.Target(settings["target"])
        kind = self.target.kind.name
        self.device = tvm.device("cpu" if kind in ("llvm", "c") else kind, 0)
        self.cores = settings["cores"] or list(range(os.cpu_count() or 1))
        self._arguments: dict[str, list[Any]] = {}

    def build(self, program: str, *, timed: bool) -> Any:
        """Compile a scheduled module given as TVM's JSON."""
        module = self.tvm.ir.load_json(program)
        if timed:
            # As TVM's own builder does: weights arrive in the layout that the schedule chose,
            # and rewriting them is not part of what is timed.
            from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock

            module = RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(module)
        return self.tvm.compile(module, target=self.target)

    def arguments(self, info: list[Any]) -> list[Any]:
        """Random arguments (seeded by shape, so that every candidate computes on the same)."""
        import numpy as np

        key = orjson.dumps(info).decode()
        if key not in self._arguments:
            generator = np.random.default_rng(0)
            made = []
            for _kind, dtype, shape in info:
                if dtype.startswith("float"):
                    values = generator.uniform(-1.0, 1.0, shape).astype(dtype)
                else:
                    values = generator.integers(0, 8, shape).astype(dtype)
                made.append(self.tvm.runtime.tensor(values, device=self.device))
            self._arguments = {key: made}
        return self._arguments[key]

    def run(
        self,
        executable: Any,
        info: list[Any],
        protocol: dict[str, Any],
        again: Callable[[], None],
    ) -> dict[str, Any]:
        """Time a program; give run times in seconds and the disturbance.

        ``again`` is called before a disturbed reading is repeated: its time limit begins anew.
        """
        arguments = self.arguments(info)
        flush = "cache_flush_cpu_non_first_arg" if protocol["cache_flush"] else ""
        evaluator = executable.mod.time_evaluator(
            "main",
            self.device,
            number=protocol["number"],
            repeat=protocol["repeat"],
            min_repeat_ms=protocol["min_repeat_ms"],
            f_preproc=flush,
        )
        retries = 0
        while True:
            use = _CoreUse(self.cores)
            results = list(evaluator(*arguments).results)
            share = use.foreign_share()
            if share <= protocol["max_foreign_share"] or retries >= protocol["max_retries"]:
                return {"run_times_s": results, "foreign_share": share, "retries": retries}
            retries += 1
            again()

    def outputs(self, executable: Any, info: list[Any], inputs: int) -> list[Any]:
        """Run once on fresh copies; return the arguments behind the inputs, as arrays."""
        arguments = [
            self.tvm.runtime.tensor(a.numpy(), device=self.device) for a in self.arguments(info)
        ]
        executable["main"](*arguments)
        self.device.sync()
        return [a.numpy() for a in arguments[inputs:]]


def serve() -> None:
    """Answer requests until standard input ends."""
    requests = sys.stdin.buffer
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    # TVM and LLVM may print; nothing but replies may reach the other side's pipe.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    settings = orjson.loads(requests.readline())
    if settings["cores"] and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, settings["cores"])
    bench = Bench(settings)
    _reply(replies, {"ready": True})
    built: dict[str, Any] = {}
    reference: dict[str, Any] = {}
    for line in requests:
        request = orjson.loads(line)
        started = time.perf_counter()
        try:
            key = request["key"]
            if request["op"] == "forget":
                built.clear()
                _reply(replies, {"state": "ok"})
                continue
            if key not in built:
                built[key] = bench.build(request["program"], timed=request["op"] == "measure")
            build_s = time.perf_counter() - started
            _reply(replies, {"built": True, "build_s": build_s})
            answer: dict[str, Any] = {"state": "ok", "build_s": build_s}
            started = time.perf_counter()
            if request["op"] == "reference":
                reference["values"] = bench.outputs(
                    built[key], request["arguments"], request["inputs"]
                )
            elif request["op"] == "check":
                answer.update(_compare(bench, built[key], request, reference))
            else:
                answer.update(
                    bench.run(
                        built[key],
                        request["arguments"],
                        request["protocol"],
                        lambda: _reply(replies, {"again": True}),
                    )
                )
            answer["run_s"] = time.perf_counter() - started
            if not request.get("keep"):
                built.pop(key, None)
        except Exception as error:
            stage = "runtime" if key in built else "compile"
            answer = {"state": stage, "error": f"{type(error).__name__}: {error}"[-600:]}
            built.pop(key, None)
        _reply(replies, answer)


def _compare(
    bench: Bench, executable: Any, request: dict[str, Any], reference: dict[str, Any]
) -> dict[str, Any]:
    import numpy as np

    got = bench.outputs(executable, request["arguments"], request["inputs"])
    worst = 0.0
    for mine, theirs in zip(got, reference["values"], strict=True):
        scale = float(np.max(np.abs(theirs))) or 1.0
        difference = np.abs(mine.astype("float64") - theirs.astype("float64"))
        worst = max(worst, float(np.max(difference)) / scale)
        if not np.all(np.isfinite(mine) == np.isfinite(theirs)):
            worst = float("inf")
    wrong = not worst <= request["tolerance"]
    return {
        "state": "wrong_answer" if wrong else "ok",
        "max_relative_error": worst if worst != float("inf") else None,
        "error": f"outputs differ by {worst:.2g} of their range" if wrong else None,
    }


if __name__ == "__main__":
    serve()
