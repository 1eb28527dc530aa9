"""A task of a search: the workload, and how often a network runs it."""

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
    network
        Whether the task is a function of a network.
    cold
        Whether its weights come from memory each time the network runs, since all weights
        together do not fit into a cache.
    """

    name: str
    module: tvm.IRModule
    weight: float = 1.0
    network: bool = False
    cold: bool = False
