"""A task of a search: what is tuned, and how often a network runs it."""

from __future__ import annotations

from dataclasses import dataclass

import tvm


@dataclass(frozen=True, slots=True)
class TuneTask:
    """One task.

    Attributes
    ----------
    module
        The workload; its entry is ``main``.
    weight
        How often the network runs it.
    network_bytes
        Size of all weights of that network; 0 for a single workload. Where they do not stay in the
        cache, a program reads its weights from memory.
    """

    name: str
    module: tvm.IRModule
    weight: float = 1.0
    network_bytes: int = 0
