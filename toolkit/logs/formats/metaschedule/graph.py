"""The graph of objects in a MetaSchedule workload line, in either layout that TVM writes.

A line is ``["<structural hash>", "<base64>"]``; decoded, the base64 is an 8-byte little-endian
length and a JSON object graph. TVM up to 0.18 writes ``root/nodes/b64ndarrays/attrs`` with nodes
``{type_key, attrs, data}`` whose attributes are strings; TVM 0.23 and later write
``root_index/nodes/metadata`` with nodes ``{type, data}``.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import orjson

from toolkit.logs.rows.base import TOO_DEEP, BadLine

BAD_GRAPH = (
    LookupError,
    ArithmeticError,
    TypeError,
    ValueError,
    AttributeError,
    RecursionError,
)
"""What following a damaged graph, or one of an unknown layout, may raise."""


UNKNOWN_LAYOUT = "the workload's graph is of an unknown layout"


class WorkloadGraph:
    """Reads both layouts; ``kind``, ``field`` and ``items`` hide the difference."""

    def __init__(self, graph: Any) -> None:
        self._old = "root" in graph
        self._nodes: list[Any] = graph["nodes"]
        self._visits = 4 * len(self._nodes)
        self._root = int(graph["root"] if self._old else graph["root_index"])
        about = graph.get("attrs" if self._old else "metadata") or {}
        version = about.get("tvm_version")
        self.tvm_version = version if isinstance(version, str) else None

    def kind(self, index: int) -> str:
        """Type of a node, without the namespace that TVM's versions name differently."""
        node = self._nodes[index]
        name: str = node.get("type_key", "") if self._old else node["type"]
        return name.rpartition(".")[2]

    def field(self, index: int, name: str) -> int:
        """Return the value of an integer field, or the index of the node it points to."""
        return int(self._nodes[index]["attrs" if self._old else "data"][name])

    def items(self, index: int) -> list[int]:
        """Nodes of an array."""
        data = self._nodes[index].get("data")
        return [int(item) for item in data] if isinstance(data, list) else []

    def text(self, index: int) -> str:
        """A string."""
        return str(self._nodes[index]["repr_str" if self._old else "data"])

    def integer(self, index: int) -> int:
        """A constant integer; 0 where it is symbolic."""
        node = self._nodes[index]
        if self.kind(index) == "IntImm":
            value = self.field(index, "value")
            # TVM 0.27 stores the type and the value of an immediate as two other nodes.
            if not self._old and "ty" in node["data"]:
                return int(self._nodes[value]["data"])
            return value
        return int(node["data"]) if not self._old and node.get("type") == "int" else 0

    def shape(self, index: int) -> list[int]:
        """Extents of a buffer; 0 where one is symbolic."""
        own = self._nodes[index]["attrs" if self._old else "data"]
        # In TVM 0.27 the buffer's type has them.
        holder = index if "shape" in own else self.field(index, "ty")
        return [self.integer(extent) for extent in self.items(self.field(holder, "shape"))]

    def called(self, index: int) -> str:
        """Name of what a call calls, as TVM registers it (``tirx.exp``)."""
        node = self._nodes[self.field(index, "op")]
        return str(node.get("repr_str") or node.get("data") or "")

    def functions(self) -> Iterator[tuple[str, int]]:
        """Names and nodes of the module's functions."""
        pairs = self.items(self.field(self._root, "functions"))
        for key, function in zip(pairs[::2], pairs[1::2], strict=True):
            yield self.text(self.field(key, "name_hint")), function

    def blocks(self, function: int) -> Iterator[tuple[str, int]]:
        """Names and nodes of a function's blocks in program order; none of a Relax function."""
        if self.kind(function) != "PrimFunc":
            return
        waiting = [self.field(function, "body")]
        while waiting:
            # A damaged graph may have cycles, or share nodes so often that the walk never ends.
            self._visits -= 1
            if self._visits < 0:
                raise ValueError("the statements are no tree")
            at = waiting.pop()
            kind = self.kind(at)
            if kind == "SeqStmt":
                waiting.extend(reversed(self.items(self.field(at, "seq"))))
            elif kind in ("BlockRealize", "SBlockRealize"):
                block = self.field(at, "block")
                name = self.text(self.field(block, "name_hint"))
                if self.items(self.field(block, "iter_vars")) or name != "root":
                    yield name, block
                waiting.append(self.field(block, "body"))
            elif kind in ("For", "AttrStmt", "LetStmt", "Allocate", "AssertStmt", "DeclBuffer"):
                waiting.append(self.field(at, "body"))
            elif kind == "IfThenElse":
                waiting.append(self.field(at, "then_case"))


def read_graph(line: bytes) -> tuple[str, WorkloadGraph]:
    """Structural hash and graph of a workload line; raise ``BadLine`` for another line."""
    try:
        entry = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise BadLine(f"not JSON: {error}") from None
    if not (isinstance(entry, list) and len(entry) == 2 and all(isinstance(e, str) for e in entry)):
        raise BadLine("the line is not a workload [hash, base64]")
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
        return entry[0], WorkloadGraph(graph)
    except BAD_GRAPH:
        raise BadLine(UNKNOWN_LAYOUT) from None


def _decoded(graph: bytes) -> Any:
    """Decode a graph; TVM writes infinities (of a maximum or mask), which are not valid JSON."""
    try:
        return orjson.loads(graph)
    except orjson.JSONDecodeError:
        return json.loads(graph)
