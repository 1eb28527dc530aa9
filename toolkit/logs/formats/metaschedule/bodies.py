"""Read what the blocks of a MetaSchedule workload compute and read, without TVM."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from toolkit.logs.formats.metaschedule.graph import BAD_GRAPH, WorkloadGraph, read_graph
from toolkit.logs.rows.base import BadLine

_LOADS = {"TensorLoad": "source", "BufferLoad": "buffer"}
"""Kinds of loads (of TVM 0.27, and of those before), and the field that holds the buffer."""

_OPERANDS = {
    **dict.fromkeys(("Add", "Sub", "Mul", "Div", "Mod", "FloorDiv", "FloorMod"), ("a", "b")),
    **dict.fromkeys(("Min", "Max", "EQ", "NE", "LT", "LE", "GT", "GE"), ("a", "b")),
    **dict.fromkeys(("And", "Or"), ("a", "b")),
    "Not": ("a",),
    "Cast": ("value",),
    "Select": ("condition", "true_value", "false_value"),
}
"""Kinds of arithmetic, and the fields of their operands."""

_INSTRUCTIONS = frozenset({
    "abs", "bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor", "ceil", "fabs", "floor",
    "likely", "max_value", "min_value", "nearbyint", "reinterpret", "round", "shift_left",
    "shift_right", "sqrt", "trunc",
})  # fmt: skip
"""Calls that are one instruction of a processor; the others call a library's function."""


@dataclass(frozen=True, slots=True)
class IndexTerm:
    """Movement along an axis of a tensor, caused by one iterator of the block that reads it.

    ``place`` is the iterator's number in its block. Every ``every`` steps of it move ``stride``
    elements along the axis; there are at most ``most`` positions.
    """

    place: int
    stride: float = 1.0
    every: int = 1
    most: float = math.inf


@dataclass(frozen=True, slots=True)
class Read:
    """A read of another block's result: for each axis, the iterators that move along it."""

    producer: str
    axes: tuple[tuple[IndexTerm, ...], ...]


Access = tuple[tuple[int, int], ...]
"""Iterators that an access depends on, by number, and how many elements each moves it.

As TVM's postprocessor counts them: along the last axis whose index is the iterator times a number.
"""


@dataclass(frozen=True, slots=True)
class BlockBody:
    """The work of one iteration of a block.

    ``arithmetic`` is a number of instructions (equal terms count once), ``calls`` of calls of
    functions such as ``exp``, ``branches`` of conditions on the place (the border of a padding).
    ``writes`` is, for each axis of the result, the number of the iterator that indexes it, -1 if
    not a single one does. ``accesses`` are those of all tensors that it reads, then of the result.
    """

    arithmetic: int
    calls: int
    branches: int
    reads: tuple[Read, ...]
    writes: tuple[int, ...]
    accesses: tuple[Access, ...] = ()


def read_bodies(line: bytes) -> dict[str, BlockBody]:
    """Read the bodies of a workload line's blocks, by name; empty if it cannot be read."""
    try:
        return _Bodies(read_graph(line)[1]).bodies()
    except (BadLine, *BAD_GRAPH):
        return {}


class _Bodies:
    def __init__(self, graph: WorkloadGraph) -> None:
        self.graph = graph
        # Equal expressions have one number.
        self.terms: dict[int, int] = {}
        self.numbers: dict[Hashable, int] = {}

    def bodies(self) -> dict[str, BlockBody]:
        graph, stores, iterators = self.graph, {}, {}
        for _, function in graph.functions():
            for name, block in graph.blocks(function):
                own = graph.items(graph.field(block, "iter_vars"))
                iterators[name] = {graph.field(one, "var"): place for place, one in enumerate(own)}
                stores[name] = list(self._stores(graph.field(block, "body")))
        writers = {graph.field(one, "buffer"): name for name, own in stores.items() for one in own}
        return {
            name: self._body(name, own, iterators[name], writers)
            for name, own in stores.items()
            if own
        }

    def _stores(self, statement: int) -> Iterator[int]:
        """Stores in a block's body, without those of blocks inside it."""
        waiting, seen = [statement], set()
        while waiting:
            at = waiting.pop()
            if at in seen:
                continue
            seen.add(at)
            kind = self.graph.kind(at)
            if kind == "BufferStore":
                yield at
            elif kind == "SeqStmt":
                waiting.extend(self.graph.items(self.graph.field(at, "seq")))
            elif kind in ("LetStmt", "AttrStmt"):
                waiting.append(self.graph.field(at, "body"))

    def _body(
        self,
        name: str,
        stores: list[int],
        iterators: Mapping[int, int],
        writers: Mapping[int, str],
    ) -> BlockBody:
        graph = self.graph
        walks = _Walks(graph, iterators)
        arithmetic = calls = branches = 0
        reads: dict[Read, None] = {}
        accesses: dict[Access, None] = {}
        seen: set[int] = set()
        waiting = [graph.field(store, "value") for store in stores]
        while waiting:
            at = waiting.pop()
            term = self._term(at)
            if term in seen:
                continue
            seen.add(term)
            kind = graph.kind(at)
            if kind in _LOADS:
                axes = graph.items(graph.field(at, "indices"))
                buffer = graph.field(at, _LOADS[kind])
                accesses[walks.access(axes, graph.shape(buffer))] = None
                producer = writers.get(buffer, name)
                if producer != name:
                    reads[Read(producer, tuple(walks.terms(axis) for axis in axes))] = None
                continue
            operands = self._operands(at)
            if kind == "Call":
                called = graph.called(at).rpartition(".")[2]
                if called == "if_then_else":
                    # Its condition tests indices, which is no arithmetic on values.
                    branches += 1
                    operands = operands[1:]
                elif called in _INSTRUCTIONS:
                    arithmetic += 1
                else:
                    calls += 1
            elif kind in _OPERANDS:
                arithmetic += 1
            waiting.extend(operands)
        axes = graph.items(graph.field(stores[0], "indices"))
        writes = tuple(walks.alone(index) for index in axes)
        own = walks.access(axes, graph.shape(graph.field(stores[0], "buffer")))
        accesses.pop(own, None)
        return BlockBody(arithmetic, calls, branches, tuple(reads), writes, (*accesses, own))

    def _operands(self, at: int) -> list[int]:
        """Return the operands of arithmetic or of a call; none for other expressions."""
        kind = self.graph.kind(at)
        if kind == "Call":
            return self.graph.items(self.graph.field(at, "args"))
        return [self.graph.field(at, name) for name in _OPERANDS.get(kind, ())]

    def _term(self, at: int) -> int:
        """Return a number that equal expressions share: a compiler computes them once."""
        if at not in self.terms:
            kind = self.graph.kind(at)
            term: Hashable = at  # a variable, or a fraction
            if kind == "IntImm":
                term = kind, self.graph.integer(at)
            elif kind in _LOADS:
                indices = self.graph.items(self.graph.field(at, "indices"))
                buffer = self.graph.field(at, _LOADS[kind])
                term = kind, buffer, *(self._term(index) for index in indices)
            elif operands := self._operands(at):
                called = self.graph.called(at) if kind == "Call" else ""
                term = kind, called, *(self._term(one) for one in operands)
            self.terms[at] = self.numbers.setdefault(term, len(self.numbers))
        return self.terms[at]


class _Walks:
    """Movement of a block's iterators along the axes of buffers."""

    def __init__(self, graph: WorkloadGraph, iterators: Mapping[int, int]) -> None:
        self.graph, self.iterators = graph, iterators
        self.known: dict[int, dict[int, tuple[float, int]]] = {}

    def terms(self, index: int) -> tuple[IndexTerm, ...]:
        """Return the iterators in an index of a buffer."""
        found = self._steps(index)
        return tuple(IndexTerm(place, *found[place]) for place in sorted(found))

    def access(self, axes: Sequence[int], shape: Sequence[int]) -> Access:
        """Return the strides of an access to a buffer of this shape."""
        pitch = 1
        strides: dict[int, int] = {}
        for axis, extent in zip(reversed(axes), reversed(shape), strict=True):
            for place, (stride, every) in self._steps(axis).items():
                if every == 1 and stride == int(stride) != 0:
                    strides.setdefault(place, int(stride) * pitch)
            pitch *= extent
        return tuple(sorted(strides.items()))

    def alone(self, index: int) -> int:
        """Return the number of the iterator that an index consists of; -1 for any other index."""
        found = self._steps(index)
        return next(iter(found)) if list(found.values()) == [(1.0, 1)] else -1

    def _steps(self, at: int) -> dict[int, tuple[float, int]]:
        """Return each iterator's stride in an expression, and the steps that make one stride."""
        if at in self.iterators:
            return {self.iterators[at]: (1.0, 1)}
        if at in self.known:
            return self.known[at]
        kind = self.graph.kind(at)
        operands = [self.graph.field(at, name) for name in _OPERANDS.get(kind, ())]
        found: dict[int, tuple[float, int]] = {}
        for one in operands:
            for place, (stride, every) in self._steps(one).items():
                known = found.get(place, (0.0, every))
                found[place] = known[0] + stride, min(known[1], every)
        by = [self.graph.integer(one) for one in operands if self.graph.kind(one) == "IntImm"]
        if len(by) == 1 and abs(by[0]) > 1 and kind in ("Mul", "FloorDiv"):
            factor = abs(by[0])
            for place, (stride, every) in found.items():
                if kind == "Mul":
                    found[place] = stride * factor, every
                elif stride == 1:
                    found[place] = stride, every * factor
                else:
                    found[place] = stride / factor, every
        self.known[at] = found
        return found
