"""Search strategies with an ask-and-tell interface, for records and devices."""

from __future__ import annotations

from toolkit.registry import Registry

_AT = "toolkit.search.strategies"

STRATEGIES = Registry(
    "strategy",
    {
        "annealing": f"{_AT}.annealing:Annealing",
        "bandit-sketch": f"{_AT}.evolutionary:BANDIT_SKETCH",
        "bayes-ei": f"{_AT}.annealing:BAYES_EI",
        "bayes-ucb": f"{_AT}.annealing:BAYES_UCB",
        "beam": f"{_AT}.beam:Beam",
        "droplet": f"{_AT}.droplet:Droplet",
        "droplet-faithful": f"{_AT}.droplet_faithful:DropletFaithful",
        "etc-mutation": f"{_AT}.evolutionary:ETC_MUTATION",
        "etc-sketch": f"{_AT}.evolutionary:ETC_SKETCH",
        "evolutionary": f"{_AT}.evolutionary:Evolutionary",
        "explore-then-droplet": f"{_AT}.droplet:ExploreThenDroplet",
        "genetic": f"{_AT}.genetic:Genetic",
        "grid": f"{_AT}.unguided:GridSearch",
        "kernel-tuner": f"{_AT}.kernel_tuner:KernelTuner",
        "mcts": f"{_AT}.mcts:Mcts",
        "model-ranked": f"{_AT}.model_ranked:ModelRanked",
        "mutation-guided": f"{_AT}.evolutionary:MUTATION_GUIDED",
        "potential": f"{_AT}.transfer:POTENTIAL",
        "random": f"{_AT}.unguided:RandomSearch",
        "transfer": f"{_AT}.transfer:Transfer",
        "transfer-evolved": f"{_AT}.transfer:TRANSFER_EVOLVED",
    },
)

__all__ = ["STRATEGIES"]
