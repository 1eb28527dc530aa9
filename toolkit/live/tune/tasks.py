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
    network
        Whether it is a function of a network, and no workload of its own.
    cold
        Whether its weights come from memory whenever the network runs: all of them together do not
        fit a cache.
    """

    name: str
    module: tvm.IRModule
    weight: float = 1.0
    network: bool = False
    cold: bool = False
