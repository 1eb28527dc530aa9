"""Search strategies: ask and tell over a space, the same for a record and a device."""

from __future__ import annotations

from toolkit.registry import Registry

STRATEGIES = Registry(
    "strategy",
    {
        "random": "toolkit.search.random_search:RandomSearch",
        "grid": "toolkit.search.grid:GridSearch",
    },
)

__all__ = ["STRATEGIES"]
