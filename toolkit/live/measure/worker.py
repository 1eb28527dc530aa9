"""The measuring process: reads programs on standard input, builds and runs them, answers.

One JSON object a line in each direction. A build is announced before the program runs, so that
whoever waits knows which of the two took too long. The process is disposable: a crash or a
time-out costs one trial, never the run.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import orjson

from toolkit.live.measure.timing import Stopwatch

# Zones before and behind each argument while outputs are compared, and what they are filled with.
GUARD_BYTES = 1 << 17
GUARD = 0xA5
ALIGNMENT = 64
# Arguments that are placed begin up to so many bytes behind each other, in memory whose address is
# a multiple of this: caches look at no higher bits.
GAP_BYTES = 1 << 20
ARENA_ALIGNMENT = 1 << 28
# ThreadGroup::kSpecifyOneCorePerThread of TVM's threading_backend.h.
ONE_CORE_A_THREAD = -2


def _reply(stream: Any, message: dict[str, Any]) -> None:
    stream.write(orjson.dumps(message) + b"\n")
    stream.flush()


class OutOfBoundsError(Exception):
    """A program wrote where it must not."""


class Bench:
    """Builds and runs programs of one target under one protocol."""

    def __init__(self, settings: dict[str, Any]) -> None:
        import tvm

        self.tvm = tvm
        self.settings = settings
        self.target = tvm.target.Target(settings["target"])
        kind = self.target.kind.name
        name = "cpu" if kind in ("llvm", "c") else kind
        self.session = None
        if settings.get("rpc"):
            self.session = self._connect(settings["rpc"])
        self.device = tvm.device(name, 0) if self.session is None else self.session.device(name, 0)
        self.bound: list[int] = settings.get("bound", []) if self._in_own_memory else []
        self.cores = self.bound or settings["cores"] or list(range(os.cpu_count() or 1))
        self._arguments: dict[str, list[Any]] = {}
        self._pool_bound = False

    @staticmethod
    def _connect(rpc: dict[str, Any]) -> Any:
        """Take one device of a key from a tracker, for as long as this process lives."""
        from tvm import rpc as tvm_rpc

        tracker = tvm_rpc.connect_tracker(rpc["host"], rpc["port"])
        return tracker.request(rpc["key"], session_timeout=0)

    def load(self, path: str) -> Any:
        """Load what ``export`` wrote, here or on the remote device."""
        if self.session is None:
            return self.tvm.runtime.load_module(path)
        self.session.upload(path)
        return self.session.load_module(os.path.basename(path))  # noqa: PTH119 - a remote name

    def export(self, program: str, path: str) -> None:
        """Compile for a device elsewhere, into an archive of objects as TVM's builder does."""
        from tvm.support.tar import tar

        self.compile(program, timed=True).export_library(path, fcompile=tar)

    def build(self, program: str, *, timed: bool) -> Any:
        """Compile a program for this process, down to machine code."""
        executable = self.compile(program, timed=timed)
        if self.target.kind.name == "llvm":
            # LLVM makes machine code when a function is asked for: part of the build, not the run.
            _ = executable.mod["main"]
        return executable

    def compile(self, program: str, *, timed: bool) -> Any:
        """Compile a scheduled module given as TVM's JSON; LLVM has yet to make machine code."""
        from tvm_ffi.serialization import from_json_graph_str

        # This TVM wrote it: 'load_json' would first look for what older ones did otherwise.
        module = from_json_graph_str(program)
        if timed:
            # As TVM's own builder does: weights arrive in the layout that the schedule chose,
            # and rewriting them is not part of what is timed.
            from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock

            module = RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(module)
        return self.tvm.compile(module, target=self.target)

    def arguments(self, info: list[Any], placement: int | None = None) -> list[Any]:
        """Random arguments (seeded by shape, so that every candidate computes on the same).

        ``placement`` seeds where in memory each one begins (``Protocol.placement``).
        """
        import numpy as np

        key = orjson.dumps([info, placement]).decode()
        if key not in self._arguments:
            generator = np.random.default_rng(0)
            made = []
            for _kind, dtype, shape in info:
                if dtype.startswith("float"):
                    made.append(generator.uniform(-1.0, 1.0, shape).astype(dtype))
                else:
                    made.append(generator.integers(0, 8, shape).astype(dtype))
            if placement is None or not self._in_own_memory:
                tensors = [self.tvm.runtime.tensor(values, device=self.device) for values in made]
            else:
                tensors = self._placed(made, placement)
            self._arguments = {key: tensors}
        return self._arguments[key]

    def _placed(self, arrays: list[Any], placement: int) -> list[Any]:
        """Tensors whose addresses, as far as caches look at them, follow from ``placement``."""
        import numpy as np

        steps = GAP_BYTES // ALIGNMENT
        gaps = ALIGNMENT * np.random.default_rng(placement).integers(steps, size=len(arrays))
        sizes = [values.nbytes + -values.nbytes % ALIGNMENT for values in arrays]
        # Not NumPy's own memory, which asks for huge pages: TVM's does not.
        whole = np.frombuffer(
            mmap.mmap(-1, int(sum(sizes) + gaps.sum()) + ARENA_ALIGNMENT), dtype=np.uint8
        )
        begin = -whole.ctypes.data % ARENA_ALIGNMENT
        tensors = []
        for values, gap, size in zip(arrays, gaps.tolist(), sizes, strict=True):
            begin += gap
            tensors.append(self._within(whole, begin, values))
            begin += size
        return tensors

    def run(
        self,
        module: Any,
        info: list[Any],
        protocol: dict[str, Any],
        again: Callable[[], None],
        drop_above_s: float | None = None,
    ) -> dict[str, Any]:
        """Time a program, as ``Stopwatch.read`` says."""
        arguments = self.arguments(info, protocol.get("placement"))
        # A device elsewhere has other cores than the builders that keep these busy.
        cores = self.cores if self._in_own_memory else []
        watch = Stopwatch(module, self.device, arguments, protocol, cores)
        with self._in_place():
            return {**watch.read(again, drop_above_s), "processors": self.bound}

    @contextlib.contextmanager
    def _in_place(self) -> Iterator[None]:
        """Bind each thread of a program to its processor, and this one again to all that it had.

        TVM's pool binds its own threads to the first processors of the machine, wherever the
        process may run, and lets the calling thread wander among them
        (``runtime/threading_backend.cc``).
        """
        if not self.bound:
            yield
            return
        wide = os.sched_getaffinity(0)
        if not self._pool_bound:
            configure = self.tvm.get_global_func("runtime.config_threadpool")
            configure(ONE_CORE_A_THREAD, len(self.bound), [str(core) for core in self.bound])
            self._pool_bound = True
        os.sched_setaffinity(0, self.bound[:1])
        try:
            yield
        finally:
            os.sched_setaffinity(0, wide)

    def outputs(self, executable: Any, info: list[Any], inputs: int) -> list[Any]:
        """Run once on fresh copies; return the arguments behind the inputs, as arrays.

        Each argument lies between two guard zones. Raises ``OutOfBoundsError`` when the program
        wrote into one of them, or into an input.
        """
        made = [self._guarded(argument.numpy()) for argument in self.arguments(info)]
        before = [tensor.numpy().tobytes() for tensor, _ in made[:inputs]]
        executable.mod["main"](*(tensor for tensor, _ in made))
        self.device.sync()
        for number, (tensor, whole) in enumerate(made):
            if number < inputs and tensor.numpy().tobytes() != before[number]:
                raise OutOfBoundsError(f"it wrote into its input {number}")
            if whole is not None:
                size = tensor.numpy().nbytes
                begin = _aligned(whole)
                if (whole[:begin] != GUARD).any() or (whole[begin + size :] != GUARD).any():
                    raise OutOfBoundsError(f"it wrote out of the bounds of argument {number}")
        return [tensor.numpy() for tensor, _ in made[inputs:]]

    def _guarded(self, values: Any) -> tuple[Any, Any]:
        """A tensor of the same values and, on a CPU, the bytes around it (shared memory)."""
        import numpy as np

        if not self._in_own_memory:
            return self.tvm.runtime.tensor(values, device=self.device), None
        whole = np.full(values.nbytes + 2 * GUARD_BYTES, GUARD, dtype=np.uint8)
        return self._within(whole, _aligned(whole), values), whole

    @property
    def _in_own_memory(self) -> bool:
        """Whether programs run in this process, on its cores and in its memory."""
        return self.session is None and self.target.kind.name in ("llvm", "c")

    def _within(self, whole: Any, begin: int, values: Any) -> Any:
        """A tensor of these values in the memory of ``whole``, from this byte on."""
        inner = whole[begin : begin + values.nbytes].view(values.dtype).reshape(values.shape)
        inner[...] = values
        return self.tvm.runtime.from_dlpack(inner)


def _aligned(whole: Any) -> int:
    """Where a guarded tensor begins: aligned as TVM's own tensors are, behind the first zone."""
    address = whole.ctypes.data + GUARD_BYTES // 2
    return int(GUARD_BYTES // 2 + (-address) % ALIGNMENT)


def serve() -> None:
    """Answer requests until standard input ends."""
    requests = sys.stdin.buffer
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    # TVM and LLVM may print; nothing but replies may reach the other side's pipe.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    settings = orjson.loads(requests.readline())
    if settings["cores"] and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, settings["cores"])
    try:
        bench = Bench(settings)
    except Exception as error:
        _reply(replies, {"ready": False, "error": f"{type(error).__name__}: {error}"[-600:]})
        return
    _reply(replies, {"ready": True})
    built: dict[str, Any] = {}
    reference: dict[str, Any] = {}
    for line in requests:
        request = orjson.loads(line)
        if request["op"] == "forget":
            built.clear()
            _reply(replies, {"state": "ok"})
            continue
        _reply(replies, _answer(bench, request, built, reference, lambda m: _reply(replies, m)))


def _answer(
    bench: Bench,
    request: dict[str, Any],
    built: dict[str, Any],
    reference: dict[str, Any],
    say: Callable[[dict[str, Any]], None],
) -> dict[str, Any]:
    """Do what one request asks; failures are answers."""
    started = time.perf_counter()
    op, key = request["op"], request["key"]
    ready, fresh = False, key not in built
    try:
        if op == "export":
            bench.export(request["program"], request["path"])
        elif op == "run_artifact":
            built[key] = bench.load(request["path"])
        elif key not in built:
            built[key] = bench.build(request["program"], timed=op in ("measure", "build"))
        answer: dict[str, Any] = {"state": "ok", "build_s": time.perf_counter() - started}
        say({"built": True, "build_s": answer["build_s"], "fresh": fresh})
        ready = True
        if op in ("export", "build"):
            return answer
        started = time.perf_counter()
        if op == "reference":
            reference["values"] = bench.outputs(built[key], request["arguments"], request["inputs"])
        elif op == "check":
            answer.update(_compare(bench, built[key], request, reference))
        else:
            answer.update(
                bench.run(
                    built[key] if op == "run_artifact" else built[key].mod,
                    request["arguments"],
                    request["protocol"],
                    lambda: say({"again": True}),
                    request.get("drop_above_s"),
                )
            )
        answer["run_s"] = time.perf_counter() - started
        if not request.get("keep"):
            built.pop(key, None)
        return answer
    except OutOfBoundsError as error:
        built.pop(key, None)
        return {"state": "wrong_answer", "error": str(error)}
    except Exception as error:
        built.pop(key, None)
        stage = "runtime" if ready else "compile"
        return {"state": stage, "error": f"{type(error).__name__}: {error}"[-600:]}


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
