"""What a search says while it goes on."""

from __future__ import annotations

from toolkit.progress import Step
from toolkit.records import Trial, TrialState
from toolkit.search.runner import WallClock


class Board:
    """Best so far, trials a minute, failures."""

    def __init__(self, step: Step, clock: WallClock) -> None:
        self._step = step
        self._clock = clock
        self.trials = 0
        self.failures = 0
        self.best: dict[str, float] = {}
        self.started = clock.now()

    def take(self, name: str, trial: Trial) -> None:
        """Note one trial of a task."""
        self.trials += 1
        self.failures += trial.state is not TrialState.OK
        latency = trial.latency_s
        if latency is not None:
            self.best[name] = min(latency, self.best.get(name, latency))
        rate = 60.0 * self.trials / max(self._clock.now() - self.started, 1e-9)
        best = f"best {self.best[name] * 1e6:.1f} us" if name in self.best else "no success yet"
        self._step.advance(note=f"{name}: {best}, {rate:.0f} trials/min, {self.failures} failed")
