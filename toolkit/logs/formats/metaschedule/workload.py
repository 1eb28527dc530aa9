"""MetaSchedule workload lines → what the workload computes, without TVM.

A line is ``["<structural hash>", "<base64>"]``; decoded, the base64 is an 8-byte little-endian
length and a JSON object graph. TVM up to 0.18 writes ``root/nodes/b64ndarrays/attrs`` with nodes
``{type_key, attrs, data}`` whose attributes are strings; TVM 0.23 and later write
``root_index/nodes/metadata`` with nodes ``{type, data}``.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import orjson

from toolkit.logs.rows.base import TOO_DEEP, BadLine, check_extents

WORKLOAD = "a workload (kept with its task)"
"""Why a workload is no record."""


@dataclass(frozen=True, slots=True)
class WorkloadBlock:
    """One block of a workload: its iterators' extents (0 where symbolic) and reductions."""

    name: str
    extents: tuple[int, ...]
    reductions: tuple[bool, ...]

    @property
    def volume(self) -> int:
        """Number of iterations, symbolic extents counted as 1."""
        return math.prod(max(extent, 1) for extent in self.extents)


@dataclass(frozen=True, slots=True)
class LoggedWorkload:
    """What a workload line says."""

    structural_hash: str
    functions: tuple[str, ...]
    blocks: tuple[WorkloadBlock, ...]
    tvm_version: str | None
    line: str

    @property
    def name(self) -> str:
        """Function names where they say something, else the blocks' names."""
        told = [name for name in self.functions if name != "main"]
        return "+".join(told or [block.name for block in self.blocks] or ["main"])

    @property
    def extents(self) -> tuple[int, ...]:
        """Extents of the block that does most of the work."""
        largest = max(self.blocks, key=lambda block: block.volume, default=None)
        return () if largest is None else largest.extents


def read_workload(line: bytes) -> LoggedWorkload:
    """Decode a workload line; raise ``BadLine`` for any other, or where its graph is damaged."""
    try:
        entry = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise BadLine(f"not JSON: {error}") from None
    if not (isinstance(entry, list) and len(entry) == 2 and all(isinstance(e, str) for e in entry)):
        raise BadLine("a workload is [hash, base64]")
    try:
        raw = base64.b64decode(entry[1], validate=True)
        graph = _decoded(raw[8:])
    except ValueError as error:  # of base64 (also where it is not ASCII) or of JSON
        raise BadLine(f"the workload's graph is damaged: {error}") from None
    except RecursionError:
        raise BadLine(TOO_DEEP) from None
    if int.from_bytes(raw[:8], "little") != len(raw) - 8:
        raise BadLine("the workload's graph is cut off")
    try:
        functions, blocks, version = _Graph(graph).describe()
        # Python's JSON may hold half a character, which can be written nowhere.
        "".join((*functions, *(block.name for block in blocks), version or "")).encode()
    except (LookupError, ArithmeticError, TypeError, ValueError, AttributeError, RecursionError):
        raise BadLine("the workload's graph is of an unknown layout") from None
    for block in blocks:
        check_extents(block.extents)
    return LoggedWorkload(entry[0], functions, blocks, version, line.decode())


def _decoded(graph: bytes) -> Any:
    """Decode a graph; TVM writes infinities (of a maximum, of a mask) as no JSON has them."""
    try:
        return orjson.loads(graph)
    except orjson.JSONDecodeError:
        return json.loads(graph)


class _Graph:
    """Follows either graph layout; ``kind``, ``field`` and ``items`` hide the difference."""

    def __init__(self, graph: Any) -> None:
        self._old = "root" in graph
        self._nodes: list[Any] = graph["nodes"]
        self._visits = 4 * len(self._nodes)
        self._root = int(graph["root"] if self._old else graph["root_index"])
        about = graph.get("attrs" if self._old else "metadata") or {}
        version = about.get("tvm_version")
        self._version = version if isinstance(version, str) else None

    def kind(self, index: int) -> str:
        node = self._nodes[index]
        name: str = node.get("type_key", "") if self._old else node["type"]
        return name.rpartition(".")[2]

    def field(self, index: int, name: str) -> int:
        """Value of an integer field, or the node it points to."""
        return int(self._nodes[index]["attrs" if self._old else "data"][name])

    def items(self, index: int) -> list[int]:
        data = self._nodes[index].get("data")
        return [int(item) for item in data] if isinstance(data, list) else []

    def text(self, index: int) -> str:
        return str(self._nodes[index]["repr_str" if self._old else "data"])

    def extent(self, index: int) -> int:
        node = self._nodes[index]
        if self.kind(index) == "IntImm":
            value = self.field(index, "value")
            # TVM 0.27 gives an immediate its type as a node and its value as another one.
            if not self._old and "ty" in node["data"]:
                return int(self._nodes[value]["data"])
            return value
        return int(node["data"]) if not self._old and node.get("type") == "int" else 0

    def describe(self) -> tuple[tuple[str, ...], tuple[WorkloadBlock, ...], str | None]:
        """Names of the functions, their blocks in program order, TVM's version."""
        pairs = self.items(self.field(self._root, "functions"))
        names: list[str] = []
        blocks: list[WorkloadBlock] = []
        for key, function in zip(pairs[::2], pairs[1::2], strict=True):
            names.append(self.text(self.field(key, "name_hint")))
            if self.kind(function) == "PrimFunc":
                blocks.extend(self._blocks(self.field(function, "body")))
        return tuple(names), tuple(blocks), self._version

    def _blocks(self, statement: int) -> Iterator[WorkloadBlock]:
        waiting = [statement]
        while waiting:
            # A damaged graph may run in circles, or share what it repeats without end.
            self._visits -= 1
            if self._visits < 0:
                raise ValueError("the statements are no tree")
            at = waiting.pop()
            kind = self.kind(at)
            if kind == "SeqStmt":
                waiting.extend(reversed(self.items(self.field(at, "seq"))))
            elif kind in ("BlockRealize", "SBlockRealize"):
                block = self.field(at, "block")
                iterators = self.items(self.field(block, "iter_vars"))
                name = self.text(self.field(block, "name_hint"))
                if iterators or name != "root":
                    domains = [self.field(iterator, "dom") for iterator in iterators]
                    extents = [self.extent(self.field(domain, "extent")) for domain in domains]
                    reduces = [self.field(iterator, "iter_type") == 2 for iterator in iterators]
                    yield WorkloadBlock(name, tuple(extents), tuple(reduces))
                waiting.append(self.field(block, "body"))
            elif kind in ("For", "AttrStmt", "LetStmt", "Allocate", "AssertStmt", "DeclBuffer"):
                waiting.append(self.field(at, "body"))
            elif kind == "IfThenElse":
                waiting.append(self.field(at, "then_case"))
