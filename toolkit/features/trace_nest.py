"""MetaSchedule traces, replayed on loops whose extents are vectors over candidates.

Loops and blocks are named in the trace, so that splits, fusions and bindings can be followed
without TVM; the extents of a block's loops come from the workload where it was read
(``logs/metaschedule_workload.py``), else from the tiles that are sampled for them.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import orjson

from toolkit.features.base import CandidateGroup
from toolkit.features.nest import Axis, Floats, Nest, bounded_product, knob_parts, product
from toolkit.logs.base import BadLine
from toolkit.logs.metaschedule_workload import Block, read_workload
from toolkit.records import Task

_INLINE = ("ComputeInline", "ReverseComputeInline")
_VECTOR_LIMIT = "meta_schedule.vectorize"
_PARALLEL_LIMIT = "meta_schedule.parallel"


@lru_cache(maxsize=256)
def _blocks(line: str) -> tuple[Block, ...]:
    try:
        return read_workload(line.encode()).blocks
    except BadLine:
        return ()


def workload_blocks(task: Task) -> tuple[Block, ...]:
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
        self.loops: dict[str, Floats | None] = {}
        self.owner: dict[str, str] = {}
        self.tiles: dict[str, list[Axis]] = {}
        self.order: list[str] = []
        self.limits: dict[str, Floats] = {}
        self._knob = 0
        self._bound: list[tuple[str, Floats | None]] = []

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
                elif kind in _INLINE:
                    self.nest.inlined += 1
        self._finish()
        return self.nest

    def _sample(self, kind: str, inputs: list[Any], outputs: list[Any]) -> None:
        name = self.group.sketch.knobs[self._knob].name
        parts = self.decide()
        if kind == "SampleComputeLocation":
            self.nest.located.append(parts[0])
            self.loops.update({str(out): None for out in outputs})
            return
        if kind != "SampleCategorical" and inputs:
            owner = self.owner.get(str(inputs[0]), "")
            self.tiles.setdefault(owner, []).append(Axis(name, parts))
        self.values.update({str(out): part for out, part in zip(outputs, parts, strict=False)})

    def _number(self, item: Any) -> Floats | None:
        if isinstance(item, str):
            return self.values.get(item)
        if type(item) is int and item > 0:
            return np.full(self.rows, float(item))
        return None

    def _getblock(self, inputs: list[Any], attrs: list[Any], outputs: list[Any]) -> None:
        if attrs and outputs:
            self.names[str(outputs[0])] = str(attrs[0])

    def _getloops(self, inputs: list[Any], attrs: list[Any], outputs: list[Any]) -> None:
        block = str(inputs[0]) if inputs else ""
        found = self.known.get(self.names.get(block, ""))
        extents: list[Floats | None] = [None] * len(outputs)
        if found is not None and len(found.extents) == len(outputs):
            extents = [np.full(self.rows, float(e)) if e > 0 else None for e in found.extents]
        for out, extent in zip(outputs, extents, strict=True):
            self.loops[str(out)] = extent
            self.owner[str(out)] = block

    def _split(self, inputs: list[Any], attrs: list[Any], outputs: list[Any]) -> None:
        whole = self.loops.get(str(inputs[0]))
        parts = [self._number(item) for item in inputs[1:]]
        if whole is not None and sum(part is None for part in parts) == 1:
            place = parts.index(None)
            others = product([p for p in parts if p is not None], self.rows)
            assert others is not None
            parts[place] = np.ceil(whole / others)
        for out, part in zip(outputs, parts, strict=False):
            self.loops[str(out)] = part
            self.owner[str(out)] = self.owner.get(str(inputs[0]), "")

    def _fuse(self, inputs: list[Any], attrs: list[Any], outputs: list[Any]) -> None:
        names = [str(item) for item in inputs]
        for out in outputs[:1]:
            self.loops[str(out)] = product([self.loops.get(n) for n in names], self.rows)
            self.owner[str(out)] = self.owner.get(names[0], "") if names else ""

    def _reorder(self, inputs: list[Any], attrs: list[Any], outputs: list[Any]) -> None:
        if len(inputs) > len(self.order):
            self.order = [str(item) for item in inputs]

    def _bind(self, inputs: list[Any], attrs: list[Any], outputs: list[Any]) -> None:
        if inputs and attrs:
            self._bound.append((str(attrs[0]), self.loops.get(str(inputs[0]))))

    def _cacheread(self, inputs: list[Any], attrs: list[Any], outputs: list[Any]) -> None:
        self.nest.cached += 1

    _cachewrite = _cacheread

    def _annotate(self, inputs: list[Any], attrs: list[Any], outputs: list[Any]) -> None:
        key = str(attrs[0]) if attrs else ""
        value = inputs[1] if len(inputs) > 1 else None
        if key in (_PARALLEL_LIMIT, _VECTOR_LIMIT) and value is None:
            self.limits[key] = self.decide()[0]
            return
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
        if self.tiles:
            main = max(self.tiles, key=lambda b: sum(len(axis.levels) for axis in self.tiles[b]))
            self.nest.axes = self.tiles[main]
            self.nest.label = self.names.get(main, main)
        loops = [self.loops.get(name) for name in self.order]
        if _PARALLEL_LIMIT in self.limits:
            self.nest.parallel = bounded_product(loops, self.limits[_PARALLEL_LIMIT], self.rows)
        if _VECTOR_LIMIT in self.limits:
            limit = self.limits[_VECTOR_LIMIT]
            self.nest.vector = bounded_product(loops[::-1], limit, self.rows)
        self._kernels()

    def _kernels(self) -> None:
        """List the kernels: a binding to the grid opens the next one; vthreads come first."""
        unknown = np.full(self.rows, np.nan)
        kernels: list[dict[str, Floats]] = []
        for word, extent in self._bound:
            axis = word.split(".")[0]
            if axis == "blockIdx" and (not kernels or "blockIdx" in kernels[-1]):
                kernels.append({})
            if not kernels:
                kernels.append({})
            value = unknown if extent is None else extent
            kernels[-1][axis] = kernels[-1].get(axis, 1.0) * value
        kernels.sort(key=lambda kernel: "vthread" not in kernel)
        one = np.ones(self.rows)
        for kernel in kernels:
            self.nest.blocks.append(kernel.get("blockIdx", one))
            self.nest.threads.append(kernel.get("threadIdx", one))
            self.nest.vthreads.append(kernel.get("vthread", one))


def trace_nest(group: CandidateGroup) -> Nest:
    """Replay a sketch's instructions for all candidates of a group at once."""
    return _Replay(group).run()
