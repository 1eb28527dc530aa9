"""Tasks as the arms of a bandit whose reward is what a round took off the objective."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from pydantic import Field

from toolkit.search.schedulers.base import BaseScheduler, TaskProgress
from toolkit.search.strategy import StrategyOptions


class BanditOptions(StrategyOptions):
    """Options of the bandit."""

    discount: float = Field(
        default=0.7, gt=0, le=1, description="weight of a round against the one after it"
    )
    exploration: float = Field(default=0.3, ge=0, description="factor of the confidence bound")


class Bandit(BaseScheduler):
    """Discounted UCB: gains shrink as a task is tuned, so that old rewards count less."""

    name = "bandit"
    source = "Garivier and Moulines 2011, On Upper-Confidence Bound Policies for Switching Bandits"
    Options = BanditOptions
    options: BanditOptions

    def pick(self, tasks: Sequence[TaskProgress], alive: Sequence[int]) -> int:
        """Return the task with the highest discounted mean reward plus its bound."""
        unsolved = [i for i in alive if tasks[i].current_s == float("inf")]
        if unsolved:
            return min(unsolved, key=lambda i: tasks[i].rounds)
        o = self.options
        means, counts = [], []
        for i in alive:
            best = np.array(tasks[i].best_s)
            # The first success is no fall of the objective: rewards begin with the next round.
            falls = [tasks[i].weight * (a - b) for a, b in pairwise(best) if np.isfinite(a)] or [
                tasks[i].weight * tasks[i].current_s
            ]
            weights = o.discount ** np.arange(len(falls))[::-1]
            counts.append(float(weights.sum()))
            means.append(float((weights * falls).sum() / weights.sum()))
        total = sum(task.weight * task.current_s for task in tasks if np.isfinite(task.current_s))
        number = np.array(counts)
        bound = o.exploration * total * np.sqrt(np.log(number.sum() + 1.0) / number) / len(tasks)
        return alive[int((np.array(means) + bound).argmax())]
