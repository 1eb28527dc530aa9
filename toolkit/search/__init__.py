"""Search strategies: ask and tell over a space, the same for a record and a device."""

from __future__ import annotations

from toolkit.registry import Registry

STRATEGIES = Registry(
    "strategy",
    {
        "annealing": "toolkit.search.strategies.annealing:Annealing",
        "bandit-sketch": "toolkit.search.strategies.sketch_choice:BanditSketch",
        "bayes-ei": "toolkit.search.strategies.bayes:BayesEI",
        "bayes-ucb": "toolkit.search.strategies.bayes:BayesUCB",
        "beam": "toolkit.search.strategies.beam:Beam",
        "droplet": "toolkit.search.strategies.droplet:Droplet",
        "droplet-faithful": "toolkit.search.strategies.droplet_faithful:DropletFaithful",
        "etc-mutation": "toolkit.search.strategies.mutation_guided:EtcMutation",
        "etc-sketch": "toolkit.search.strategies.sketch_choice:EtcSketch",
        "evolutionary": "toolkit.search.strategies.evolutionary:Evolutionary",
        "explore-then-droplet": "toolkit.search.strategies.explore_then_droplet:ExploreThenDroplet",
        "genetic": "toolkit.search.strategies.genetic:Genetic",
        "grid": "toolkit.search.strategies.unguided:GridSearch",
        "model-ranked": "toolkit.search.strategies.model_ranked:ModelRanked",
        "mutation-guided": "toolkit.search.strategies.mutation_guided:MutationGuided",
        "random": "toolkit.search.strategies.unguided:RandomSearch",
        "transfer": "toolkit.search.strategies.transfer:Transfer",
        "transfer-evolved": "toolkit.search.strategies.transfer_evolved:TransferEvolved",
    },
)

__all__ = ["STRATEGIES"]
