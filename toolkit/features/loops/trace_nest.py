"""MetaSchedule traces, replayed on loops whose extents are vectors over candidates.

Loops and blocks are named in the trace, so that splits, fusions and bindings can be followed
without TVM; the extents of a block's loops come from the workload where it was read
(``toolkit.logs.formats.metaschedule.workload``), else from the tiles that are sampled for them.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import orjson

from toolkit.features.base import CandidateGroup
from toolkit.features.loops.kernels import list_kernels
from toolkit.features.loops.nest import Axis, Floats, Nest, bounded_product, knob_parts, product
from toolkit.features.loops.regions import INLINED, ROOT, Limits, Loop, Placed, root_regions
from toolkit.logs.formats.metaschedule.workload import WorkloadBlock, read_workload
from toolkit.logs.rows.base import BadLine
from toolkit.records import Task

_VECTOR_LIMIT = "meta_schedule.vectorize"
_PARALLEL_LIMIT = "meta_schedule.parallel"
_TILED = "meta_schedule.tiling_structure"


@lru_cache(maxsize=256)
def _blocks(line: str) -> tuple[WorkloadBlock, ...]:
    try:
        return read_workload(line.encode()).blocks
    except BadLine:
        return ()


def workload_blocks(task: Task) -> tuple[WorkloadBlock, ...]:
    """Blocks of a MetaSchedule task's workload; none where it cannot be read."""
    return _blocks(task.blob) if task.blob else ()


class _Replay:
    def __init__(self, group: CandidateGroup) -> None:
        self.group = group
        self.rows = len(group)
        self.nest = Nest(self.rows)
        self.known = {block.name: block for block in workload_blocks(group.task)}
        self.names: dict[str, str] = {}
        self.values: dict[str, Floats] = {}
        self.loops: dict[str, Loop] = {}
        self.owner: dict[str, str] = {}
        self.tiles: dict[str, list[Axis]] = {}
        self.order: list[str] = []
        self.program = list(self.known)
        self.nests = {name: self._original(block) for name, block in self.known.items()}
        self.inlined: set[str] = set()
        self.tiled: set[str] = set()
        self.located: dict[str, Floats] = {}
        self.moved: dict[str, tuple[Floats | float, str | None]] = {}
        self.limits: dict[str, Floats] = {}
        self._knob = 0
        self._bound: list[tuple[str, Floats | None, str]] = []

    def _original(self, block: WorkloadBlock, *, spatial: bool = False) -> list[str]:
        """Name the loops of a block as the workload has them."""
        names = []
        for place, (extent, adds) in enumerate(zip(block.extents, block.reductions, strict=True)):
            if spatial and adds:
                continue
            name = f"{block.name}.{place}{'.copy' if spatial else ''}"
            length = np.full(self.rows, float(extent)) if extent > 0 else None
            self.loops[name] = Loop(length, place, adds)
            names.append(name)
        return names

    def _extent(self, name: str) -> Floats | None:
        loop = self.loops.get(name)
        return None if loop is None else loop.extent

    def _block(self, item: Any) -> str:
        """Name of the block that a variable stands for."""
        return self.names.get(str(item), str(item))

    def decide(self) -> list[Floats]:
        """Parts of the next knob, each a vector."""
        knob = self.group.sketch.knobs[self._knob]
        self._knob += 1
        return knob_parts(self.group, knob)

    def run(self) -> Nest:
        for kind, inputs, attrs, outputs in orjson.loads(self.group.sketch.skeleton):
            if kind.startswith("Sample"):
                self._sample(kind, inputs, outputs)
            else:
                method = getattr(self, "_" + kind.lower(), None)
                if method is not None:
                    method(inputs, attrs, outputs)
        self._finish()
        return self.nest

    def _sample(self, kind: str, inputs: list[Any], outputs: list[Any]) -> None:
        name = self.group.sketch.knobs[self._knob].name
        parts = self.decide()
        if kind == "SampleComputeLocation":
            self.nest.located.append(parts[0])
            self.located.update({str(out): parts[0] for out in outputs})
            return
        if kind != "SampleCategorical" and inputs:
            owner = self.owner.get(str(inputs[0]), "")
            loop = self.loops.setdefault(str(inputs[0]), Loop(None))
            loop.source = name
            self.tiles.setdefault(owner, []).append(Axis(name, parts, loop.reduces))
        self.values.update({str(out): part for out, part in zip(outputs, parts, strict=False)})

    def _number(self, item: Any) -> Floats | None:
        if isinstance(item, str):
            return self.values.get(item)
        if type(item) is int and item > 0:
            return np.full(self.rows, float(item))
        return None

    def _getblock(self, inputs: list[Any], attrs: list[Any], outputs: list[Any]) -> None:
        if attrs and outputs:
            name = str(attrs[0])
            self.names[str(outputs[0])] = name
            if name != "root" and name not in self.program:
                self.program.append(name)

    def _getloops(self, inputs: list[Any], attrs: list[Any], outputs: list[Any]) -> None:
        block = str(inputs[0]) if inputs else ""
        name = self._block(block)
        found = [self.loops[loop] for loop in self.nests.get(name, [])]  # as split and fused so far
        if len(found) != len(outputs):
            found = [Loop(None) for _ in outputs]
        self.nests[name] = [str(out) for out in outputs]
        for out, loop in zip(outputs, found, strict=True):
            self.loops[str(out)] = loop
            self.owner[str(out)] = block

    def _getconsumers(self, inputs: list[Any], attrs: list[Any], outputs: list[Any]) -> None:
        """Name the consumers: the blocks that come next in the program and were not inlined."""
        name = self._block(inputs[0]) if inputs else ""
        if name in self.program:
            later = self.program[self.program.index(name) + 1 :]
            self._name(outputs, [n for n in later if n not in self.inlined])

    def _getproducers(self, inputs: list[Any], attrs: list[Any], outputs: list[Any]) -> None:
        """Name the producers: the blocks that come before in the program and were not inlined."""
        name = self._block(inputs[0]) if inputs else ""
        if name in self.program:
            before = self.program[: self.program.index(name)][::-1]
            self._name(outputs, [n for n in before if n not in self.inlined])

    def _name(self, outputs: list[Any], names: list[str]) -> None:
        self.names.update({str(out): name for out, name in zip(outputs, names, strict=False)})

    def _computeinline(self, inputs: list[Any], attrs: list[Any], outputs: list[Any]) -> None:
        self.nest.inlined += 1
        self.inlined.update(self._block(item) for item in inputs[:1])

    _reversecomputeinline = _computeinline

    def _computeat(self, inputs: list[Any], attrs: list[Any], outputs: list[Any]) -> None:
        """Move a block into a loop: a sampled one of its consumer, or one that the trace names."""
        if len(inputs) < 2:
            return
        block, loop = self._block(inputs[0]), str(inputs[1])
        if loop in self.located:
            self.moved[block] = (self.located[loop], None)
            return
        into = self._block(self.owner.get(loop, ""))
        loops = self.nests.get(into, [])
        if loop in loops:
            self.moved[block] = (float(loops.index(loop)), into)

    _reversecomputeat = _computeat

    def _replace(self, block: str, old: list[str], new: list[str]) -> None:
        """Keep a block's loops in their order as they are split and fused."""
        loops = self.nests.get(self._block(block), [])
        if old and all(name in loops for name in old):
            at = loops.index(old[0])
            loops[at : at + len(old)] = new

    def _split(self, inputs: list[Any], attrs: list[Any], outputs: list[Any]) -> None:
        loop = self.loops.get(str(inputs[0]), Loop(None))
        whole = loop.extent
        parts = [self._number(item) for item in inputs[1:]]
        if whole is not None and sum(part is None for part in parts) == 1:
            place = parts.index(None)
            others = product([p for p in parts if p is not None], self.rows)
            assert others is not None
            parts[place] = np.ceil(whole / others)
        owner = self.owner.get(str(inputs[0]), "")
        for out, part in zip(outputs, parts, strict=False):
            self.loops[str(out)] = Loop(part, loop.place, loop.reduces, loop.source)
            self.owner[str(out)] = owner
        self._replace(owner, [str(inputs[0])], [str(out) for out in outputs])

    def _fuse(self, inputs: list[Any], attrs: list[Any], outputs: list[Any]) -> None:
        names = [str(item) for item in inputs]
        for out in outputs[:1]:
            loops = [self.loops.get(n, Loop(None)) for n in names]
            extent = product([loop.extent for loop in loops], self.rows)
            first = loops[0] if loops else Loop(None)
            reduces = any(loop.reduces for loop in loops)
            self.loops[str(out)] = replace(first, extent=extent, reduces=reduces)
            self.owner[str(out)] = self.owner.get(names[0], "") if names else ""
            self._replace(self.owner[str(out)], names, [str(out)])

    def _reorder(self, inputs: list[Any], attrs: list[Any], outputs: list[Any]) -> None:
        names = [str(item) for item in inputs]
        if len(names) > len(self.order):
            self.order = names
        block = self._block(self.owner.get(names[0], "")) if names else ""
        if sorted(names) == sorted(self.nests.get(block, [])):
            self.nests[block] = names

    def _rfactor(self, inputs: list[Any], attrs: list[Any], outputs: list[Any]) -> None:
        """Add up in two steps: a block before keeps one sum for each iteration of a loop."""
        loop = str(inputs[0]) if inputs else ""
        name = self._block(self.owner.get(loop, ""))
        loops = self.nests.get(name, [])
        if loop not in loops or not outputs:
            return
        first = f"{name}_rf"
        copies = {n: f"{n}.rf" for n in loops}
        for own, copy in copies.items():
            self.loops[copy] = replace(self.loops[own])
        self.loops[copies[loop]].reduces = False
        self.nests[first] = list(copies.values())
        self.nests[name] = [n for n in loops if n == loop or not self.loops[n].reduces]
        self.names[str(outputs[0])] = first
        if name in self.program:
            self.program.insert(self.program.index(name), first)

    def _bind(self, inputs: list[Any], attrs: list[Any], outputs: list[Any]) -> None:
        if inputs and attrs:
            loop = str(inputs[0])
            owner = self.owner.get(loop, "")
            self._bound.append((str(attrs[0]), self._extent(loop), self._block(owner)))

    def _cacheread(self, inputs: list[Any], attrs: list[Any], outputs: list[Any]) -> None:
        self.nest.cached += 1

    def _cachewrite(self, inputs: list[Any], attrs: list[Any], outputs: list[Any]) -> None:
        """Add the block that copies a block's result to where it belongs."""
        self.nest.cached += 1
        name = self._block(inputs[0]) if inputs else ""
        if outputs and name in self.known:
            copy = f"{name}.copy"
            self.names[str(outputs[0])] = copy
            self.nests[copy] = self._original(self.known[name], spatial=True)
            self.program.insert(self.program.index(name) + 1, copy)

    def _annotate(self, inputs: list[Any], attrs: list[Any], outputs: list[Any]) -> None:
        key = str(attrs[0]) if attrs else ""
        value = inputs[1] if len(inputs) > 1 else None
        if key in (_PARALLEL_LIMIT, _VECTOR_LIMIT) and value is None:
            self.limits[key] = self.decide()[0]
            return
        if key == _TILED:
            self.tiled.add(self._block(inputs[0]))
        number = self._number(value)
        if number is None:
            return
        if key in ("meta_schedule.unroll_explicit", "meta_schedule.unroll_implicit"):
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
            self.nest.label = main = self._block(main)
        if _PARALLEL_LIMIT in self.limits:
            self._regions(main)
        if _VECTOR_LIMIT in self.limits:
            loops = [self._extent(name) for name in self.order[::-1]]
            self.nest.vector = bounded_product(loops, self.limits[_VECTOR_LIMIT], self.rows)
        list_kernels(self.nest, self._bound, self.known, self.inlined)

    def _regions(self, main: str) -> None:
        """Place all blocks, and see which loops run in parallel."""
        blocks = []
        for name in self.program:
            loops = [self.loops[loop] for loop in self.nests.get(name, [])]
            volume = product([loop.extent for loop in loops], self.rows)
            depth, into = self.moved.get(name, (ROOT, None))
            blocks.append(
                Placed(
                    name,
                    np.full(self.rows, np.nan) if volume is None or not loops else volume,
                    loops,
                    INLINED if name in self.inlined else depth,
                    into,
                    name in self.tiled,
                )
            )
        if not blocks:
            return
        volumes = {name: block.volume for name, block in self.known.items()}
        if main not in self.program:
            main = max(self.program, key=lambda name: volumes.get(name, 0))
        unlimited = np.full(self.rows, 1.0)
        limits = Limits(
            self.limits[_PARALLEL_LIMIT],
            self.limits.get(_VECTOR_LIMIT, unlimited),
            frozenset(_volumes(self.group.task.arguments)),
        )
        self.nest.regions, self.nest.parallel, self.nest.fused = root_regions(
            blocks, limits, self.rows, self.program.index(main)
        )
        self.nest.least = float(sum(volumes.values())) or None


def _volumes(arguments: Any) -> list[float]:
    """Elements of each tensor among a task's arguments (``["TENSOR", type, shape]``)."""
    found = []
    for argument in arguments if isinstance(arguments, list) else []:
        if isinstance(argument, list) and len(argument) == 3 and isinstance(argument[2], list):
            found.append(float(np.prod([float(extent) for extent in argument[2]])))
    return found


def trace_nest(group: CandidateGroup) -> Nest:
    """Replay a sketch's instructions for all candidates of a group at once."""
    return _Replay(group).run()
