"""MetaSchedule traces, replayed on loops whose extents are vectors over candidates.

Loops and blocks are named in the trace, so that splits, fusions and bindings can be followed
without TVM; the extents of a block's loops come from the workload where it was read
(``toolkit.logs.formats.metaschedule.workload``), else from the tiles that are sampled for them.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from functools import lru_cache, partialmethod

import numpy as np
import orjson

from toolkit.features.base import CandidateGroup, Floats
from toolkit.features.loops.executions import INLINED, ROOT, Executions, Placed
from toolkit.features.loops.nest import Axis, Loop, Nest, Replay, product
from toolkit.features.loops.parallel import root_regions
from toolkit.features.loops.program import ProgramBodies
from toolkit.features.loops.vectors import kept_sums, vectorised
from toolkit.features.task.hardware import vector_bytes
from toolkit.logs.formats.metaschedule.bodies import read_bodies
from toolkit.logs.formats.metaschedule.workload import WorkloadBlock, read_workload
from toolkit.logs.rows.base import BadLine
from toolkit.records import Task

_VECTOR_LIMIT = "meta_schedule.vectorize"
_PARALLEL_LIMIT = "meta_schedule.parallel"
_SUM_BYTES = 4.0
"""Bytes of a sum, float32."""


@lru_cache(maxsize=256)
def _blocks(line: str) -> tuple[WorkloadBlock, ...]:
    try:
        return read_workload(line.encode()).blocks
    except BadLine:
        return ()


_bodies = lru_cache(maxsize=256)(read_bodies)


def workload_blocks(task: Task) -> tuple[WorkloadBlock, ...]:
    """Blocks of a MetaSchedule task's workload; none where it cannot be read."""
    return _blocks(task.blob) if task.blob else ()


class _Replay(Replay):
    def __init__(self, group: CandidateGroup) -> None:
        super().__init__(group)
        self.known = {block.name: block for block in workload_blocks(group.task)}
        self.program = list(self.known)  # blocks in their order
        self.nests = {name: self._original(block) for name, block in self.known.items()}
        self.names: dict[str, str] = {}  # blocks, values and loops by the trace's variables
        self.values: dict[str, Floats] = {}
        self.loops: dict[str, Loop] = {}
        self.tiles: dict[str, list[Axis]] = {}
        self.inlined: set[str] = set()
        self.tiled: set[str] = set()
        self.moved: dict[str, tuple[Floats | float, str | None]] = {}
        self.factors: dict[str, int] = {}
        self.limits: dict[str, Floats] = {}
        self.bound: list[tuple[str, Loop]] = []
        self.bodies = ProgramBodies(_bodies(group.task.blob.encode()) if group.task.blob else {})

    def _original(self, block: WorkloadBlock) -> list[Loop]:
        """Loops of a block as the workload has them."""
        return [
            Loop(np.full(self.rows, extent if extent > 0 else np.nan), place, adds, "", block.name)
            for place, (extent, adds) in enumerate(
                zip(block.extents, block.reductions, strict=True)
            )
        ]

    def _loop(self, variable: str) -> Loop:
        return self.loops.get(variable) or Loop(self.unknown)

    def _block(self, variable: str) -> str:
        return self.names.get(variable, variable)

    def _number(self, item: str) -> Floats:
        if item.isdecimal() and int(item) > 0:
            return np.full(self.rows, float(item))
        return self.values.get(item, self.unknown)

    def run(self) -> Nest:
        for kind, *operands in orjson.loads(self.group.sketch.skeleton):
            inputs, attrs, outputs = (list(map(str, part)) for part in operands)
            method = getattr(self, "_on_" + kind.lower(), None)
            # An instruction of a damaged trace may lack its operands.
            with contextlib.suppress(IndexError, StopIteration):
                if kind.startswith("Sample"):
                    self._sample(kind, inputs, outputs)
                elif method is not None:
                    method(inputs, attrs, outputs)
        self._finish()
        return self.nest

    def _sample(self, kind: str, inputs: list[str], outputs: list[str]) -> None:
        name, parts = self.decide()
        if kind == "SampleComputeLocation":
            self.nest.located.append(parts[0])
        elif kind != "SampleCategorical" and inputs:
            loop = self.loops.setdefault(inputs[0], Loop(self.unknown))
            loop.source = name
            self.tiles.setdefault(loop.block, []).append(Axis(name, parts, loop.reduces))
        self.values.update(zip(outputs, parts, strict=False))

    def _on_getblock(self, inputs: list[str], attrs: list[str], outputs: list[str]) -> None:
        name = self.names[outputs[0]] = attrs[0]
        if name != "root" and name not in self.program:
            self.program.append(name)

    def _on_getloops(self, inputs: list[str], attrs: list[str], outputs: list[str]) -> None:
        name = self._block(inputs[0])
        found = self.nests.get(name, [])  # as split and fused so far
        if len(found) != len(outputs):
            found = [Loop(self.unknown, block=name) for _ in outputs]
        self.nests[name] = [replace(loop) for loop in found]
        self.loops.update(zip(outputs, self.nests[name], strict=True))

    def _on_getconsumers(
        self, inputs: list[str], attrs: list[str], outputs: list[str], way: int = 1
    ) -> None:
        """Name the next (or previous) blocks of the program that were not inlined."""
        name = self._block(inputs[0])
        if name in self.program:
            others = self.program[self.program.index(name) :: way][1:]
            there = (other for other in others if other not in self.inlined)
            self.names.update(zip(outputs, there, strict=False))

    _on_getproducers = partialmethod(_on_getconsumers, way=-1)

    def _on_computeinline(self, inputs: list[str], attrs: list[str], outputs: list[str]) -> None:
        self.inlined.add(self._block(inputs[0]))
        self.nest.inlined += 1

    _on_reversecomputeinline = _on_computeinline

    def _on_computeat(self, inputs: list[str], attrs: list[str], outputs: list[str]) -> None:
        """Move a block into a loop: a sampled one of its consumer, or one that the trace names."""
        block, variable = self._block(inputs[0]), inputs[1]
        loop = self._loop(variable)
        if variable in self.values:
            self.moved[block] = (self.values[variable], None)
        elif loop in self.nests.get(loop.block, []):
            self.moved[block] = (float(self.nests[loop.block].index(loop)), loop.block)

    _on_reversecomputeat = _on_computeat

    def _replace(self, old: list[Loop], new: list[Loop], outputs: list[str]) -> None:
        """Keep a block's loops in their order as they are split and fused."""
        loops = self.nests.get(old[0].block, [])
        if all(loop in loops for loop in old):
            at = loops.index(old[0])
            loops[at : at + len(old)] = new
        self.loops.update(zip(outputs, new, strict=False))

    def _on_split(self, inputs: list[str], attrs: list[str], outputs: list[str]) -> None:
        loop = self._loop(inputs[0])
        parts = [self._number(item) for item in inputs[1:]]
        others = [part for part in parts if part is not self.unknown]
        if len(others) == len(parts) - 1:
            rest = np.ceil(loop.extent / product(others, self.rows))
            parts = [rest if part is self.unknown else part for part in parts]
        self._replace([loop], [replace(loop, extent=part) for part in parts], outputs)

    def _on_fuse(self, inputs: list[str], attrs: list[str], outputs: list[str]) -> None:
        old = [self._loop(item) for item in inputs]
        extent = product((loop.extent for loop in old), self.rows)
        reduces = any(loop.reduces for loop in old)
        self.bodies.fuse(old)
        self._replace(old, [replace(old[0], extent=extent, reduces=reduces)], outputs)

    def _on_reorder(self, inputs: list[str], attrs: list[str], outputs: list[str]) -> None:
        loops = [self._loop(item) for item in inputs]
        if set(loops) == set(self.nests.get(loops[0].block, [])):
            self.nests[loops[0].block] = loops

    def _on_rfactor(self, inputs: list[str], attrs: list[str], outputs: list[str]) -> None:
        """Reduce in two steps: a new block before keeps one sum for each iteration of a loop."""
        loop = self._loop(inputs[0])
        name, loops = loop.block, self.nests.get(loop.block, [])
        if loop not in loops:
            return
        first = self.names[outputs[0]] = f"{name}_rf"
        self.factors[first] = self.factors[name] = loop.place
        self.nests[first] = [
            replace(own, reduces=own.reduces and own is not loop, block=first) for own in loops
        ]
        self.nests[name] = [own for own in loops if own is loop or not own.reduces]
        if name in self.program:
            self.program.insert(self.program.index(name), first)
        self.bodies.split_sum(name, first, loop.place)

    def _on_bind(self, inputs: list[str], attrs: list[str], outputs: list[str]) -> None:
        self.bound.append((attrs[0], self._loop(inputs[0])))

    def _on_cacheread(self, inputs: list[str], attrs: list[str], outputs: list[str]) -> None:
        self.nest.cached += 1

    def _on_cachewrite(self, inputs: list[str], attrs: list[str], outputs: list[str]) -> None:
        """Add the block that copies a block's result to where it belongs."""
        self.nest.cached += 1
        name = self._block(inputs[0])
        if name in self.known:
            copy = self.names[outputs[0]] = f"{name}.copy"
            loops = [loop for loop in self._original(self.known[name]) if not loop.reduces]
            self.nests[copy] = [replace(loop, block=copy) for loop in loops]
            self.program.insert(self.program.index(name) + 1, copy)
            self.bodies.copy(name, copy)

    def _on_annotate(self, inputs: list[str], attrs: list[str], outputs: list[str]) -> None:
        key, value = attrs[0], inputs[1]
        number = self._number(value)
        if key in (_PARALLEL_LIMIT, _VECTOR_LIMIT) and value == "None":
            self.limits[key] = self.decide()[1][0]
        elif key == "meta_schedule.tiling_structure":
            self.tiled.add(self._block(inputs[0]))
        elif number is self.unknown:
            return
        elif key in ("meta_schedule.unroll_explicit", "meta_schedule.unroll_implicit"):
            self.nest.unroll = number
        elif key == "meta_schedule.cooperative_fetch":
            self.nest.fetch.append(number)
        elif key in (_PARALLEL_LIMIT, _VECTOR_LIMIT):
            self.limits[key] = number

    def _finish(self) -> None:
        main = ""
        if self.tiles:
            main = max(self.tiles, key=lambda b: sum(len(axis.levels) for axis in self.tiles[b]))
            self.nest.axes = self.tiles[main]
            self.nest.label = main
        if _PARALLEL_LIMIT in self.limits and self.program:
            self._regions(main)
        self._kernels()

    def _regions(self, main: str) -> None:
        """Place all blocks, and find the loops that run in parallel."""
        blocks = []
        for name in self.program:
            loops = self.nests.get(name, [])
            volume = product((loop.extent for loop in loops), self.rows) if loops else self.unknown
            depth, into = self.moved.get(name, (ROOT, None))
            depth = INLINED if name in self.inlined else depth
            tiled, factor = name in self.tiled, self.factors.get(name)
            body = self.bodies.get(name)
            blocks.append(Placed(name, volume, loops, depth, into, tiled, factor, body))
        volumes = {name: block.volume for name, block in self.known.items()}
        if main not in self.program:
            main = max(self.program, key=lambda name: volumes.get(name, 0))
        executions = Executions(blocks, self.rows)
        limit = self.limits.get(_VECTOR_LIMIT, np.ones(self.rows))
        place, vectors = self.program.index(main), vectorised(executions, limit)
        if main in self.tiled:
            step = np.zeros(self.rows) if self.nest.unroll is None else self.nest.unroll
            lanes = vector_bytes(self.group.task) / _SUM_BYTES
            self.nest.vector = vectors.extents[place]
            self.nest.sums = kept_sums(executions, place, vectors, step, lanes)
        self.nest.regions, self.nest.parallel, self.nest.fused = root_regions(
            executions, vectors, self.limits[_PARALLEL_LIMIT], place
        )
        self.nest.work = self.bodies.work(executions, volumes)
        self.nest.least = float(sum(volumes.values())) or None

    def _kernels(self) -> None:
        """List the kernels, those with vthreads first; a second grid binding starts a new one."""
        nest = self.nest
        kernels: list[dict[str, Floats]] = []
        home: dict[str, int] = {}
        for word, loop in self.bound:
            if not kernels or (word.startswith("blockIdx") and word in kernels[-1]):
                kernels.append({})
            home[loop.block] = len(kernels) - 1
            # Blocks of one kernel share its threads: an axis that several bind is as long as the
            # longest (a reduction across threads binds one axis in every block).
            extent = np.fmax(kernels[-1].get(word, loop.extent), loop.extent)
            if word in kernels[-1] and word.startswith("threadIdx"):
                nest.across = np.fmax(nest.across, extent)
            kernels[-1][word] = extent
        if kernels and self.known:
            # A block is in the kernel that bound its loops last, else in the first; kernels run
            # one after the other.
            nest.serial = np.zeros(self.rows)
            for name, block in self.known.items():
                if name not in self.inlined:
                    bound = kernels[home.get(name, 0)].items()
                    extents = [extent for word, extent in bound if not word.startswith("vthread")]
                    threads = product((np.where(np.isnan(e), 1.0, e) for e in extents), self.rows)
                    nest.serial += np.maximum(block.volume / threads, 1.0)
        kernels.sort(key=lambda kernel: not any(word.startswith("vthread") for word in kernel))
        lists = {"blockIdx": nest.blocks, "threadIdx": nest.threads, "vthread": nest.vthreads}
        for kernel in kernels:
            for axis, found in lists.items():
                own = [extent for word, extent in kernel.items() if word.startswith(axis)]
                found.append(product(own, self.rows))


def trace_nest(group: CandidateGroup) -> Nest:
    """Replay a sketch's instructions for all candidates of a group at once."""
    return _Replay(group).run()
