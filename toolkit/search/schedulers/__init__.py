"""Task schedulers: which task of a network gets the next round of measurements."""

from __future__ import annotations

from toolkit.registry import Registry

SCHEDULERS = Registry(
    "scheduler",
    {
        "bandit": "toolkit.search.schedulers.policies:Bandit",
        "gradient": "toolkit.search.schedulers.policies:Gradient",
        "round-robin": "toolkit.search.schedulers.policies:RoundRobin",
    },
)

__all__ = ["SCHEDULERS"]
