"""Search strategies: ask and tell over a space, the same for a record and a device."""

from __future__ import annotations

from toolkit.registry import Registry

STRATEGIES = Registry(
    "strategy",
    {
        "annealing": "toolkit.search.annealing:Annealing",
        "droplet": "toolkit.search.droplet:Droplet",
        "droplet-faithful": "toolkit.search.droplet_faithful:DropletFaithful",
        "genetic": "toolkit.search.genetic:Genetic",
        "model-ranked": "toolkit.search.model_ranked:ModelRanked",
        "random": "toolkit.search.random_search:RandomSearch",
        "transfer": "toolkit.search.transfer:Transfer",
        "grid": "toolkit.search.grid:GridSearch",
    },
)

__all__ = ["STRATEGIES"]
