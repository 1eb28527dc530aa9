"""The measuring process for this TVM: it builds programs and runs them (``serve.py``)."""

from __future__ import annotations

import contextlib
import mmap
import os
import secrets
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import orjson

from toolkit.live.measure.quick_import import CPU_KINDS, import_tvm
from toolkit.live.measure.serve import WrongAnswerError, random_arrays, serve
from toolkit.live.measure.timing import FLUSH_OF_TVM, make_flush, read_program

# Zones before and after each argument while outputs are compared, and the value that fills them.
GUARD_BYTES = 1 << 17
GUARD = 0xA5
ALIGNMENT = 64
# A placed argument begins up to so many bytes after the one before. The memory's address is a
# multiple of the alignment, because caches do not use higher address bits.
GAP_BYTES = 1 << 20
ARENA_ALIGNMENT = 1 << 28
# Name of the global function with which TVM's evaluator flushes in this process.
FLUSH = "toolkit.flush"
# ThreadGroup::kSpecifyOneCorePerThread of TVM's threading_backend.h.
ONE_CORE_A_THREAD = -2


def suffix_of(linker: str | None) -> str:
    """Return the file ending for a device's server, which reads the file's type from it."""
    return "tar" if linker is None else "so"


def export_for(built: Any, path: str, linker: str | None) -> None:
    """Write a compiled module in the form that a device's server loads (``suffix_of``).

    With a linker (a compiler for the device) this is a library. Without one it is TVM's archive of
    objects, which the server links with its own compiler.
    """
    from tvm.support import cc, tar

    built.export_library(path, fcompile=tar.tar if linker is None else cc.cross_compiler(linker))


class Bench:
    """Builds and runs programs of one target, on this machine or on a tracker's device."""

    def __init__(self, settings: dict[str, Any]) -> None:
        target = settings["target"]
        kind = target["kind"] if isinstance(target, dict) else target.split()[0]
        self.tvm = tvm = import_tvm(kind)
        self.target = tvm.target.Target(target)
        kind = self.target.kind.name
        name = "cpu" if kind in CPU_KINDS else kind
        rpc, self.session = settings.get("rpc"), None
        if rpc:
            from tvm import rpc as tvm_rpc

            # Held until this process ends.
            tracker = tvm_rpc.connect_tracker(rpc["host"], rpc["port"])
            self.session = tracker.request(rpc["key"], session_timeout=0)
        self.device = tvm.device(name, 0) if self.session is None else self.session.device(name, 0)
        # An unscheduled program cannot run on a GPU: this CPU computes its outputs.
        self._runs_unscheduled = name == "cpu"
        # Whether programs run in this process, with its cores and its memory.
        self._is_here = self.session is None and name == "cpu"
        self.bound: list[int] = settings.get("bound", []) if self._is_here else []
        # Builders keep this machine's cores busy; that does not disturb a device elsewhere.
        cores = self.bound or settings["cores"] or list(range(os.cpu_count() or 1))
        self.cores = cores if self._is_here else []
        self.linker: str | None = settings.get("linker")
        self._sent = 0
        self._arguments: dict[str, list[Any]] = {}
        self._bytes: list[Any] = []
        self._flush: str | None = None
        self._pool_bound = False
        self._place = secrets.randbits(32)

    def build(self, request: dict[str, Any]) -> Any:
        """Compile a program down to machine code for this process, or load an archive."""
        if request["op"] == "run_artifact":
            return self.load(request["path"])
        timed, target = request["op"] in ("measure", "build"), self.target
        if request["op"] == "reference" and not self._runs_unscheduled:
            target = self.tvm.target.Target("llvm")
        built = self.compile(request["program"], timed=timed, target=target)
        if self.session is not None and target is self.target:
            return self._shipped(built)
        module = built.mod
        if target.kind.name == "llvm":
            # LLVM makes machine code at the first access: this belongs to the build, not the run.
            _ = module["main"]
        return module

    def export(self, request: dict[str, Any]) -> None:
        """Compile for a device elsewhere, into a file that its server can load."""
        built = self.compile(request["program"], timed=True, target=self.target)
        export_for(built, request["path"], self.linker)

    def _shipped(self, built: Any) -> Any:
        """Send a compiled program to the device and load it there."""
        self._sent += 1
        with tempfile.TemporaryDirectory(prefix="toolkit-built-") as folder:
            path = f"{folder}/shipped-{self._sent}.{suffix_of(self.linker)}"
            export_for(built, path, self.linker)
            return self.load(path)

    def load(self, path: str) -> Any:
        """Load a file that ``export`` wrote, here or on the remote device."""
        if self.session is None:
            return self.tvm.runtime.load_module(path)
        self.session.upload(path)
        return self.session.load_module(os.path.basename(path))  # noqa: PTH119 - a remote name

    def compile(self, program: str, *, timed: bool, target: Any) -> Any:
        """Compile a scheduled module (TVM's JSON); LLVM makes the machine code only later."""
        from tvm_ffi.serialization import from_json_graph_str

        # This TVM wrote it, so the conversion of older formats in 'load_json' is not needed.
        module = from_json_graph_str(program)
        if timed:
            # As TVM's own builder does: weights arrive in the layout that the schedule chose,
            # and rewriting them is not part of what is timed.
            from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock

            module = RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(module)
        return self.tvm.compile(module, target=target)

    def run(self, built: Any, request: dict[str, Any], again: Callable[[], None]) -> dict[str, Any]:
        """Time a program (``read_program``)."""
        protocol, drop_above_s = request["protocol"], request.get("drop_above_s")
        given = self.arguments(request["arguments"], protocol.get("placement"))
        flush = self._flush_name() if protocol["cache_flush"] else FLUSH_OF_TVM
        with self._in_place():
            reading = read_program(
                built, self.device, given, protocol, self.cores, again, drop_above_s, flush
            )
        return {**reading, "processors": self.bound}

    def _flush_name(self) -> str:
        """Return the global function that flushes all arguments except the first."""
        if self._flush is None:
            flush = make_flush(self.tvm) if self._is_here else None
            self._flush = FLUSH_OF_TVM if flush is None else FLUSH
            if flush is not None:

                def flush_all(*_arguments: Any) -> None:
                    for one in self._bytes[1:]:
                        flush(one)

                self.tvm.register_global_func(FLUSH, flush_all, override=True)
        return self._flush

    @contextlib.contextmanager
    def _in_place(self) -> Iterator[None]:
        """Bind each thread of a program to its processor; restore this thread's processors later.

        TVM's pool binds its own threads to the first processors of the machine, even outside the
        processors of the process, and does not bind the calling thread
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

    def arguments(self, info: list[Any], placement: int | None = None) -> list[Any]:
        """Return random arguments, seeded by shape: all candidates compute with the same values.

        ``placement`` is the seed of their start addresses (``Protocol.placement``); without it,
        each process draws its own.
        """
        key = orjson.dumps([info, placement]).decode()
        if key not in self._arguments:
            made = random_arrays([(dtype, shape) for _kind, dtype, shape in info])
            if self._is_here:
                tensors = self._placed(made, self._place if placement is None else placement)
            else:
                tensors = [self.tvm.runtime.tensor(values, device=self.device) for values in made]
            self._arguments = {key: tensors}
        return self._arguments[key]

    def _placed(self, arrays: list[Any], placement: int) -> list[Any]:
        """Return tensors whose addresses, as far as caches use them, depend on ``placement``."""
        import numpy as np

        steps = GAP_BYTES // ALIGNMENT
        gaps = ALIGNMENT * np.random.default_rng(placement).integers(steps, size=len(arrays))
        sizes = [values.nbytes + -values.nbytes % ALIGNMENT for values in arrays]
        needed = int(sum(sizes) + gaps.sum())
        # Not in NumPy's memory, which uses huge pages: TVM's memory does not.
        whole = np.frombuffer(
            mmap.mmap(-1, needed + 2 * GAP_BYTES + ARENA_ALIGNMENT), dtype=np.uint8
        )
        begin = GAP_BYTES + -(whole.ctypes.data + GAP_BYTES) % ARENA_ALIGNMENT
        # At a padded border, vector loads read before the tensor with masked lanes. This is no
        # fault, but it costs hundreds of cycles unless the page is in memory.
        whole[begin - GAP_BYTES : begin + needed + GAP_BYTES] = 0
        tensors, self._bytes = [], []
        for values, gap, size in zip(arrays, gaps.tolist(), sizes, strict=True):
            begin += gap
            tensors.append(self._within(whole, begin, values))
            self._bytes.append(self.tvm.runtime.from_dlpack(whole[begin : begin + values.nbytes]))
            begin += size
        return tensors

    def outputs(self, built: Any, request: dict[str, Any]) -> list[Any]:
        """Run once on fresh copies; return the arguments after the inputs, as arrays.

        On a CPU each argument lies between two guard zones. Raises ``WrongAnswerError`` when the
        program wrote into a guard zone or into an input.
        """
        import numpy as np

        inputs, device = request["inputs"], self.device
        if request["op"] == "reference" and not self._runs_unscheduled:
            device = self.tvm.cpu()
        tensors, zones = [], []
        for argument in self.arguments(request["arguments"]):
            values = argument.numpy()
            if not self._is_here:
                tensors.append(self.tvm.runtime.tensor(values, device=device))
                continue
            whole = np.full(values.nbytes + 2 * GUARD_BYTES, GUARD, dtype=np.uint8)
            # Aligned like TVM's own tensors, after the first zone.
            half = GUARD_BYTES // 2
            begin = int(half + -(whole.ctypes.data + half) % ALIGNMENT)
            tensors.append(self._within(whole, begin, values))
            zones.append((whole[:begin], whole[begin + values.nbytes :]))
        before = [tensor.numpy().tobytes() for tensor in tensors[:inputs]]
        built["main"](*tensors)
        device.sync()
        for number, values in enumerate(before):
            if tensors[number].numpy().tobytes() != values:
                raise WrongAnswerError(f"the program wrote into its input {number}")
        for number, around in enumerate(zones):
            if any((zone != GUARD).any() for zone in around):
                raise WrongAnswerError(f"the program wrote out of the bounds of argument {number}")
        return [tensor.numpy() for tensor in tensors[inputs:]]

    def _within(self, whole: Any, begin: int, values: Any) -> Any:
        """Return a tensor with these values in the memory of ``whole``, from byte ``begin`` on."""
        inner = whole[begin : begin + values.nbytes].view(values.dtype).reshape(values.shape)
        inner[...] = values
        return self.tvm.runtime.from_dlpack(inner)


if __name__ == "__main__":
    serve(Bench)
