"""Progress of a search: a line for the user, and figures for other programs."""

from __future__ import annotations

from collections.abc import Sequence

from toolkit.live.tune.tasks import TuneTask
from toolkit.progress import Step
from toolkit.records import Trial, TrialState
from toolkit.search.runner import WallClock
from toolkit.show import seconds


class Board:
    """Best latency so far (of several tasks: the weighted sum), trials a minute, and failures."""

    def __init__(self, step: Step, clock: WallClock, tasks: Sequence[TuneTask]) -> None:
        self._step = step
        self._clock = clock
        self._weights = {task.name: task.weight for task in tasks}
        self.trials = 0
        self.failures = 0
        self.best: dict[str, float] = {}
        self.started = clock.now()

    def take(self, name: str, trial: Trial) -> None:
        """Count one trial of a task; a trial that TVM refused does not count."""
        if trial.state is TrialState.INSTANTIATION:
            return
        self.trials += 1
        self.failures += trial.state is not TrialState.OK
        latency = trial.latency_s
        if latency is not None:
            self.best[name] = min(latency, self.best.get(name, latency))
        now = self._clock.now()
        weighted = sum(self._weights[one] * best for one, best in self.best.items())
        missing = len(self._weights) - len(self.best)
        # A best latency is of one task, so the task's name follows a slash. The network has a
        # latency once each task has a success.
        values = {"seconds": now, "trials": self.trials, "failed": self.failures}
        if name in self.best:
            values[f"best_latency_s/{name}"] = self.best[name]
        if not missing:
            values["weighted_latency_s"] = weighted
        if len(self._weights) == 1:
            best = seconds(self.best[name]) if name in self.best else "no success yet"
            so_far = f"{name}: best {best}"
        else:
            so_far = f"all tasks: {seconds(weighted)}"
            so_far += f" ({missing} tasks without a success)" if missing else ""
        rate = 60.0 * self.trials / max(now - self.started, 1e-9)
        note = f"{so_far}, {rate:.0f} trials/min, {self.failures} failed"
        self._step.advance(note=note, values=values)
