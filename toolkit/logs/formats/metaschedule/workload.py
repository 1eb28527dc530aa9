"""Read what a workload computes from MetaSchedule's workload lines, without TVM."""

from __future__ import annotations

import math
from dataclasses import dataclass

from toolkit.logs.formats.metaschedule.graph import (
    BAD_GRAPH,
    UNKNOWN_LAYOUT,
    WorkloadGraph,
    read_graph,
)
from toolkit.logs.rows.base import BadLine, check_extents

WORKLOAD = "a workload (kept with its task)"
"""Reason why a workload line is no record."""


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
    """The content of a workload line."""

    structural_hash: str
    functions: tuple[str, ...]
    blocks: tuple[WorkloadBlock, ...]
    tvm_version: str | None
    line: str

    @property
    def name(self) -> str:
        """The functions' names other than ``main``, else the blocks' names."""
        told = [name for name in self.functions if name != "main"]
        return "+".join(told or [block.name for block in self.blocks] or ["main"])

    @property
    def extents(self) -> tuple[int, ...]:
        """Extents of the block with most iterations."""
        largest = max(self.blocks, key=lambda block: block.volume, default=None)
        return () if largest is None else largest.extents


def read_workload(line: bytes) -> LoggedWorkload:
    """Decode a workload line; raise ``BadLine`` for another line, or if its graph is damaged."""
    structural_hash, graph = read_graph(line)
    try:
        functions = tuple(name for name, _ in graph.functions())
        blocks = tuple(
            _block(graph, name, node)
            for _, function in graph.functions()
            for name, node in graph.blocks(function)
        )
        version = graph.tvm_version
        # Python's JSON may give half a surrogate pair, which cannot be encoded.
        "".join((*functions, *(block.name for block in blocks), version or "")).encode()
    except BAD_GRAPH:
        raise BadLine(UNKNOWN_LAYOUT) from None
    for block in blocks:
        check_extents(block.extents)
    return LoggedWorkload(structural_hash, functions, blocks, version, line.decode())


def _block(graph: WorkloadGraph, name: str, node: int) -> WorkloadBlock:
    iterators = graph.items(graph.field(node, "iter_vars"))
    domains = [graph.field(iterator, "dom") for iterator in iterators]
    extents = [graph.integer(graph.field(domain, "extent")) for domain in domains]
    reduces = [graph.field(iterator, "iter_type") == 2 for iterator in iterators]
    return WorkloadBlock(name, tuple(extents), tuple(reduces))
