"""Task schedulers: which task of a network gets the next round of measurements."""

from __future__ import annotations

from toolkit.registry import Registry

SCHEDULERS = Registry(
    "scheduler",
    {
        "bandit": "toolkit.search.schedulers.bandit:Bandit",
        "gradient": "toolkit.search.schedulers.gradient:Gradient",
        "round-robin": "toolkit.search.schedulers.round_robin:RoundRobin",
    },
)

__all__ = ["SCHEDULERS"]
