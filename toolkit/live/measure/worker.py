"""The measuring process of this TVM: builds programs and runs them (``serve.py``)."""

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

# Zones before and behind each argument while outputs are compared, and what they are filled with.
GUARD_BYTES = 1 << 17
GUARD = 0xA5
ALIGNMENT = 64
# Arguments that are placed begin up to so many bytes behind each other, in memory whose address is
# a multiple of this: caches look at no higher bits.
GAP_BYTES = 1 << 20
ARENA_ALIGNMENT = 1 << 28
# A global function of this process, by which TVM's evaluator flushes.
FLUSH = "toolkit.flush"
# ThreadGroup::kSpecifyOneCorePerThread of TVM's threading_backend.h.
ONE_CORE_A_THREAD = -2


def suffix_of(linker: str | None) -> str:
    """Ending of a file that a device's server loads: TVM tells by it what it is."""
    return "tar" if linker is None else "so"


def export_for(built: Any, path: str, linker: str | None) -> None:
    """Write a compiled module as a device's server loads it (``suffix_of``).

    A library where there is a linker for the device, the compiler of that name; else TVM's archive
    of objects, which the server links by a compiler of its own.
    """
    from tvm.support import cc, tar

    built.export_library(path, fcompile=tar.tar if linker is None else cc.cross_compiler(linker))


class Bench:
    """Builds and runs programs of one target, here or on one device of a tracker (``serve``)."""

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

            # For as long as this process lives.
            tracker = tvm_rpc.connect_tracker(rpc["host"], rpc["port"])
            self.session = tracker.request(rpc["key"], session_timeout=0)
        self.device = tvm.device(name, 0) if self.session is None else self.session.device(name, 0)
        # An unscheduled program has no threads of a GPU: its outputs are computed by this CPU.
        self._runs_unscheduled = name == "cpu"
        # Whether programs run in this process, on its cores and in its memory.
        self._is_here = self.session is None and name == "cpu"
        self.bound: list[int] = settings.get("bound", []) if self._is_here else []
        # A device elsewhere has other cores than the builders that keep these busy.
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
        """Compile a program for this process, down to machine code, or load an archive."""
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
            # LLVM makes machine code when a function is asked for: part of the build, not the run.
            _ = module["main"]
        return module

    def export(self, request: dict[str, Any]) -> None:
        """Compile for a device elsewhere, into the file that its server loads."""
        built = self.compile(request["program"], timed=True, target=self.target)
        export_for(built, request["path"], self.linker)

    def _shipped(self, built: Any) -> Any:
        """Send what was compiled to the device and load it there."""
        self._sent += 1
        with tempfile.TemporaryDirectory(prefix="toolkit-built-") as folder:
            path = f"{folder}/shipped-{self._sent}.{suffix_of(self.linker)}"
            export_for(built, path, self.linker)
            return self.load(path)

    def load(self, path: str) -> Any:
        """Load what ``export`` wrote, here or on the remote device."""
        if self.session is None:
            return self.tvm.runtime.load_module(path)
        self.session.upload(path)
        return self.session.load_module(os.path.basename(path))  # noqa: PTH119 - a remote name

    def compile(self, program: str, *, timed: bool, target: Any) -> Any:
        """Compile a scheduled module given as TVM's JSON; LLVM has yet to make machine code."""
        from tvm_ffi.serialization import from_json_graph_str

        # This TVM wrote it: 'load_json' would first look for what older ones did otherwise.
        module = from_json_graph_str(program)
        if timed:
            # As TVM's own builder does: weights arrive in the layout that the schedule chose,
            # and rewriting them is not part of what is timed.
            from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock

            module = RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(module)
        return self.tvm.compile(module, target=target)

    def run(self, built: Any, request: dict[str, Any], again: Callable[[], None]) -> dict[str, Any]:
        """Time a program, as ``read_program`` says."""
        protocol, drop_above_s = request["protocol"], request.get("drop_above_s")
        given = self.arguments(request["arguments"], protocol.get("placement"))
        flush = self._flush_name() if protocol["cache_flush"] else FLUSH_OF_TVM
        with self._in_place():
            reading = read_program(
                built, self.device, given, protocol, self.cores, again, drop_above_s, flush
            )
        return {**reading, "processors": self.bound}

    def _flush_name(self) -> str:
        """The global function that takes all arguments but the first out of the caches."""
        if self._flush is None:
            flush = make_flush(self.tvm) if self._is_here else None
            if flush is None:
                self._flush = FLUSH_OF_TVM
                return self._flush

            def flush_all(*_arguments: Any) -> None:
                for one in self._bytes[1:]:
                    flush(one)

            self.tvm.register_global_func(FLUSH, flush_all, override=True)
            self._flush = FLUSH
        return self._flush

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

    def arguments(self, info: list[Any], placement: int | None = None) -> list[Any]:
        """Random arguments (seeded by shape, so that every candidate computes on the same).

        ``placement`` seeds where in memory each one begins (``Protocol.placement``); without, each
        process draws it.
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
        """Tensors whose addresses, as far as caches look at them, follow from ``placement``."""
        import numpy as np

        steps = GAP_BYTES // ALIGNMENT
        gaps = ALIGNMENT * np.random.default_rng(placement).integers(steps, size=len(arrays))
        sizes = [values.nbytes + -values.nbytes % ALIGNMENT for values in arrays]
        needed = int(sum(sizes) + gaps.sum())
        # Not NumPy's own memory, which asks for huge pages: TVM's does not.
        whole = np.frombuffer(
            mmap.mmap(-1, needed + 2 * GAP_BYTES + ARENA_ALIGNMENT), dtype=np.uint8
        )
        begin = GAP_BYTES + -(whole.ctypes.data + GAP_BYTES) % ARENA_ALIGNMENT
        # Where a border is padded, vector loads reach in front of the tensor with their lanes off:
        # no fault, but slow by the hundreds of cycles unless that page is in memory.
        whole[begin - GAP_BYTES : begin + needed + GAP_BYTES] = 0
        tensors, self._bytes = [], []
        for values, gap, size in zip(arrays, gaps.tolist(), sizes, strict=True):
            begin += gap
            tensors.append(self._within(whole, begin, values))
            self._bytes.append(self.tvm.runtime.from_dlpack(whole[begin : begin + values.nbytes]))
            begin += size
        return tensors

    def outputs(self, built: Any, request: dict[str, Any]) -> list[Any]:
        """Run once on fresh copies; return the arguments behind the inputs, as arrays.

        On a CPU each argument lies between two guard zones. Raises ``WrongAnswerError`` when the
        program wrote into one of them, or into an input.
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
            # Aligned as TVM's own tensors are, behind the first zone.
            half = GUARD_BYTES // 2
            begin = int(half + -(whole.ctypes.data + half) % ALIGNMENT)
            tensors.append(self._within(whole, begin, values))
            zones.append((whole[:begin], whole[begin + values.nbytes :]))
        before = [tensor.numpy().tobytes() for tensor in tensors[:inputs]]
        built["main"](*tensors)
        device.sync()
        for number, values in enumerate(before):
            if tensors[number].numpy().tobytes() != values:
                raise WrongAnswerError(f"it wrote into its input {number}")
        for number, around in enumerate(zones):
            if any((zone != GUARD).any() for zone in around):
                raise WrongAnswerError(f"it wrote out of the bounds of argument {number}")
        return [tensor.numpy() for tensor in tensors[inputs:]]

    def _within(self, whole: Any, begin: int, values: Any) -> Any:
        """A tensor of these values in the memory of ``whole``, from this byte on."""
        inner = whole[begin : begin + values.nbytes].view(values.dtype).reshape(values.shape)
        inner[...] = values
        return self.tvm.runtime.from_dlpack(inner)


if __name__ == "__main__":
    serve(Bench)
