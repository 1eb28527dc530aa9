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
        self.nests: dict[str, list[str]] = {}
        self.inlined: set[str] = set()
        self.limits: dict[str, Floats] = {}
        self._knob = 0
        self._bound: list[tuple[str, Floats | None, str]] = []

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
        name = self.names.get(block, block)
        now = self.nests.get(name, [])
        if len(now) == len(outputs):  # as split and fused so far
            extents = [self.loops.get(loop) for loop in now]
        self.nests[name] = [str(out) for out in outputs]
        for out, extent in zip(outputs, extents, strict=True):
            self.loops[str(out)] = extent
            self.owner[str(out)] = block

    def _getconsumers(self, inputs: list[Any], attrs: list[Any], outputs: list[Any]) -> None:
        """Name the consumers: the blocks that come next in the program and were not inlined."""
        order = list(self.known)
        name = self.names.get(str(inputs[0]) if inputs else "", "")
        if name in order:
            later = [n for n in order[order.index(name) + 1 :] if n not in self.inlined]
            self.names.update({str(out): n for out, n in zip(outputs, later, strict=False)})

    def _computeinline(self, inputs: list[Any], attrs: list[Any], outputs: list[Any]) -> None:
        self.nest.inlined += 1
        self.inlined.update(self.names.get(str(item), "") for item in inputs[:1])

    _reversecomputeinline = _computeinline

    def _replace(self, block: str, old: list[str], new: list[str]) -> None:
        """Keep a block's loops in their order as they are split and fused."""
        loops = self.nests.get(self.names.get(block, block), [])
        if old and all(name in loops for name in old):
            at = loops.index(old[0])
            loops[at : at + len(old)] = new

    def _split(self, inputs: list[Any], attrs: list[Any], outputs: list[Any]) -> None:
        whole = self.loops.get(str(inputs[0]))
        parts = [self._number(item) for item in inputs[1:]]
        if whole is not None and sum(part is None for part in parts) == 1:
            place = parts.index(None)
            others = product([p for p in parts if p is not None], self.rows)
            assert others is not None
            parts[place] = np.ceil(whole / others)
        owner = self.owner.get(str(inputs[0]), "")
        for out, part in zip(outputs, parts, strict=False):
            self.loops[str(out)] = part
            self.owner[str(out)] = owner
        self._replace(owner, [str(inputs[0])], [str(out) for out in outputs])

    def _fuse(self, inputs: list[Any], attrs: list[Any], outputs: list[Any]) -> None:
        names = [str(item) for item in inputs]
        for out in outputs[:1]:
            self.loops[str(out)] = product([self.loops.get(n) for n in names], self.rows)
            self.owner[str(out)] = self.owner.get(names[0], "") if names else ""
            self._replace(self.owner[str(out)], names, [str(out)])

    def _reorder(self, inputs: list[Any], attrs: list[Any], outputs: list[Any]) -> None:
        if len(inputs) > len(self.order):
            self.order = [str(item) for item in inputs]

    def _bind(self, inputs: list[Any], attrs: list[Any], outputs: list[Any]) -> None:
        if inputs and attrs:
            loop = str(inputs[0])
            owner = self.owner.get(loop, "")
            name = self.names.get(owner, owner)
            self._bound.append((str(attrs[0]), self.loops.get(loop), name))

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
        last: dict[str, Floats] = {}
        members: list[set[str]] = []
        for word, extent, block in self._bound:
            opens = word.startswith("blockIdx") and any(w.startswith("blockIdx") for w in last)
            if not kernels or (opens and word in last):
                last = {}
                kernels.append(last)
                members.append(set())
            members[-1].add(block)
            value = unknown if extent is None else extent
            # Blocks of one kernel share its threads: an axis that several bind is as long as the
            # longest (a reduction across threads binds one axis in every block).
            if word in last:
                value = np.fmax(last[word], value)
                if word.startswith("threadIdx"):
                    self.nest.across = np.fmax(self.nest.across, value)
            last[word] = value
        self.nest.serial = self._serial(kernels, members)
        kernels.sort(key=lambda kernel: not any(word.startswith("vthread") for word in kernel))
        for kernel in kernels:
            for axis, found in (
                ("blockIdx", self.nest.blocks),
                ("threadIdx", self.nest.threads),
                ("vthread", self.nest.vthreads),
            ):
                own = [extent for word, extent in kernel.items() if word.startswith(axis)]
                found.append(np.prod(np.stack([np.ones(self.rows), *own]), axis=0))

    def _serial(self, kernels: list[dict[str, Floats]], members: list[set[str]]) -> Floats | None:
        """Iterations that the busiest thread runs one after the other, over all kernels.

        A block is in the kernel that bound its loops last, else in the first; kernels follow one
        another. ``None`` where the workload was not read or nothing is bound.
        """
        if not kernels or not self.known:
            return None
        home = {block: number for number, own in enumerate(members) for block in own}
        total = np.zeros(self.rows)
        for name, block in self.known.items():
            if name in self.inlined:
                continue
            threads = np.ones(self.rows)
            for word, extent in kernels[home.get(name, 0)].items():
                if not word.startswith("vthread"):
                    threads = threads * np.where(np.isfinite(extent), extent, 1.0)
            total += np.maximum(block.volume / threads, 1.0)
        return total


def trace_nest(group: CandidateGroup) -> Nest:
    """Replay a sketch's instructions for all candidates of a group at once."""
    return _Replay(group).run()
