"""The schedulers: in turn, by Ansor's gradient, as the arms of a bandit.

Zheng et al. 2020, "Ansor", section 6 and appendix A, with the constants of TVM 0.16
(``auto_scheduler/task_scheduler.py``); Garivier and Moulines 2011.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from toolkit.search.schedulers.base import BaseScheduler, TaskProgress
from toolkit.search.strategy import Share, StrategyOptions


class RoundRobin(BaseScheduler):
    """The task with the fewest rounds."""

    name = "round-robin"
    source = "TVM 0.16, auto_scheduler/task_scheduler.py (strategy 'round-robin')"

    def pick(self, tasks: Sequence[TaskProgress], alive: Sequence[int]) -> int:
        """Return the task with the fewest rounds, the first of several."""
        return min(alive, key=lambda i: tasks[i].rounds)


class GradientOptions(StrategyOptions):
    """Options of the gradient scheduler; the defaults are Ansor's."""

    alpha: Share = Field(default=0.2, description="weight of the task's own past")
    beta: PositiveFloat = Field(default=2.0, description="trust in similar tasks")
    window: PositiveInt = Field(default=3, description="rounds of the backward difference")
    epsilon: Share = Field(default=0.05, description="share of random choices")
    decay: PositiveFloat = Field(
        default=1.0, description="power of the number of rounds in the optimistic guess"
    )


class Gradient(BaseScheduler):
    """The task whose next round is expected to lower the objective most.

    The expected gain of a round is a weighted mean of two numbers. The first is the backward
    difference of the task's own curve. The second is an optimistic guess: the latency falls by a
    share of 1 / rounds (rounds to the power ``decay``), or to what the best task of the same kind
    reaches for its floating-point work, whichever latency is lower.
    """

    name = "gradient"
    source = "Zheng et al. 2020 (Ansor), section 6; TVM 0.16 auto_scheduler/task_scheduler.py"
    Options = GradientOptions
    options: GradientOptions

    def pick(self, tasks: Sequence[TaskProgress], alive: Sequence[int]) -> int:
        """Return the task with the steepest expected descent; ties at random."""
        if self.rng.random() < self.options.epsilon:
            return alive[int(self.rng.integers(len(alive)))]
        gains = [self._gain(tasks, i) for i in alive]
        best = max(gains)
        steepest = [i for i, gain in zip(alive, gains, strict=True) if gain == best]
        return steepest[int(self.rng.integers(len(steepest)))]

    def _gain(self, tasks: Sequence[TaskProgress], i: int) -> float:
        """Expected fall of the objective, per round."""
        task, o = tasks[i], self.options
        now = task.current_s
        if now == math.inf:
            return math.inf  # nothing succeeded yet: the objective is infinite without it
        backward = 0.0
        if task.rounds > o.window and task.best_s[-1 - o.window] != math.inf:
            backward = (task.best_s[-1 - o.window] - now) / o.window
        forward = now - min(now - now / float(task.rounds**o.decay), self._similar(tasks, i))
        return task.weight * (o.alpha * backward + (1.0 - o.alpha) * max(forward, 0.0))

    def _similar(self, tasks: Sequence[TaskProgress], i: int) -> float:
        """Latency at the best throughput of a similar task, times ``beta``; infinite for none."""
        flops, kind = tasks[i].flops, tasks[i].kind
        speeds = [
            other.flops / other.current_s
            for other in tasks
            if other is not tasks[i] and other.kind == kind and other.flops
        ]
        best = max(speeds, default=0.0)
        return self.options.beta * flops / best if flops is not None and best else math.inf


class BanditOptions(StrategyOptions):
    """Options of the bandit."""

    discount: float = Field(
        default=0.7, gt=0, le=1, description="weight of a round relative to the next one"
    )
    exploration: NonNegativeFloat = Field(default=0.3, description="factor of the confidence bound")


class Bandit(BaseScheduler):
    """Discounted UCB: gains shrink as a task is tuned, so old rewards count less."""

    name = "bandit"
    source = "Garivier and Moulines 2011, On Upper-Confidence Bound Policies for Switching Bandits"
    Options = BanditOptions
    options: BanditOptions

    def pick(self, tasks: Sequence[TaskProgress], alive: Sequence[int]) -> int:
        """Return the task with the highest discounted mean reward plus its bound."""
        unsolved = [i for i in alive if tasks[i].current_s == math.inf]
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
