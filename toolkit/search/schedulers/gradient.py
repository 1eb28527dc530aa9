"""Ansor's gradient scheduler.

Zheng et al. 2020, "Ansor", section 6 and appendix A; constants from TVM 0.16
(``auto_scheduler/task_scheduler.py``).
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from toolkit.search.schedulers.base import BaseScheduler, TaskProgress
from toolkit.search.strategy import StrategyOptions


class GradientOptions(StrategyOptions):
    """Options of the gradient scheduler; the defaults are Ansor's."""

    alpha: float = Field(default=0.2, ge=0, le=1, description="weight of the task's own past")
    beta: float = Field(default=2.0, gt=0, description="trust in similar tasks")
    window: int = Field(default=3, ge=1, description="rounds of the backward difference")
    epsilon: float = Field(default=0.05, ge=0, le=1, description="share of random choices")


class Gradient(BaseScheduler):
    """The task whose next round is expected to lower the objective most.

    The expected gain of a round is a weighting of the backward difference of the task's own curve
    and of an optimistic guess: the latency falls by its 1 / rounds share, or to what the best task
    of the same kind reaches for its floating-point work, whichever is less.
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
        if now == float("inf"):
            return float("inf")  # nothing succeeded yet: the objective is infinite without it
        backward = 0.0
        if task.rounds > o.window and task.best_s[-1 - o.window] != float("inf"):
            backward = (task.best_s[-1 - o.window] - now) / o.window
        forward = now - min(now - now / task.rounds, self._similar(tasks, i))
        return task.weight * (o.alpha * backward + (1.0 - o.alpha) * max(forward, 0.0))

    def _similar(self, tasks: Sequence[TaskProgress], i: int) -> float:
        """Latency at the best throughput of a similar task, times ``beta``; infinite for none."""
        flops, kind = tasks[i].flops, tasks[i].kind
        if flops is None:
            return float("inf")
        speeds = [
            other.flops / other.current_s
            for j, other in enumerate(tasks)
            if j != i and other.kind == kind and other.flops and other.current_s != float("inf")
        ]
        return self.options.beta * flops / max(speeds) if speeds else float("inf")
