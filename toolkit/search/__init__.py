"""Search strategies: ask and tell over a space, the same for a record and a device."""

from __future__ import annotations

from toolkit.registry import Registry

STRATEGIES = Registry(
    "strategy",
    {
        "annealing": "toolkit.search.annealing:Annealing",
        "bandit-sketch": "toolkit.search.bandit_sketch:BanditSketch",
        "bayes-ei": "toolkit.search.bayes:BayesEI",
        "bayes-ucb": "toolkit.search.bayes:BayesUCB",
        "beam": "toolkit.search.beam:Beam",
        "droplet": "toolkit.search.droplet:Droplet",
        "droplet-faithful": "toolkit.search.droplet_faithful:DropletFaithful",
        "etc-mutation": "toolkit.search.etc_mutation:EtcMutation",
        "etc-sketch": "toolkit.search.etc_sketch:EtcSketch",
        "evolutionary": "toolkit.search.evolutionary:Evolutionary",
        "explore-then-droplet": "toolkit.search.explore_then_droplet:ExploreThenDroplet",
        "genetic": "toolkit.search.genetic:Genetic",
        "grid": "toolkit.search.grid:GridSearch",
        "model-ranked": "toolkit.search.model_ranked:ModelRanked",
        "mutation-guided": "toolkit.search.mutation_guided:MutationGuided",
        "random": "toolkit.search.random_search:RandomSearch",
        "transfer": "toolkit.search.transfer:Transfer",
        "transfer-evolved": "toolkit.search.transfer_evolved:TransferEvolved",
    },
)

__all__ = ["STRATEGIES"]
