"""Models trained offline, as the live search takes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolkit.records import Task
from toolkit.search.base import DirectionScorer, Scorer
from toolkit.training.table.cores import core_warnings, target_task
from toolkit.training.trained.loading import default_folders, load_trained
from toolkit.training.trained.scorer import CautiousScorer, ThroughputScorer


@dataclass(frozen=True)
class Guides:
    """At most one throughput, one mutation and one validity model; each may be absent."""

    throughput: Any = None
    mutation: Any = None
    validity: Any = None

    def scorer(
        self, task: Task | str, related: Callable[[ThroughputScorer], Scorer] | None = None
    ) -> Scorer | None:
        """The throughput model's member that never saw the task, careful of failures if it can.

        ``related`` makes a scorer of it that learns from other tasks (``relatives``).
        """
        if self.throughput is None:
            return None
        own: ThroughputScorer = self.throughput.for_task(task)
        scorer = own if related is None else related(own)
        if self.validity is None:
            return scorer
        return CautiousScorer(scorer, self.validity.for_task(task))

    def direction_scorer(self, task: Task | str) -> DirectionScorer | None:
        """The mutation model's member that never saw the task."""
        scorer: DirectionScorer | None = (
            None if self.mutation is None else self.mutation.for_task(task)
        )
        return scorer

    def warnings(self, *targets: str) -> list[str]:
        """What to know before these models judge programs for targets: core counts unseen."""
        models = (self.throughput, self.mutation, self.validity)
        return core_warnings(models, map(target_task, targets))

    def best_strategy(self) -> str:
        """The strategy that makes the most of these models."""
        if self.throughput is not None:
            return "transfer-evolved"
        return "mutation-guided" if self.mutation is not None else "evolutionary"


def load_guides(folders: Sequence[Path] | None) -> Guides:
    """Load model folders; ``None`` takes those that lie in the default place, if any.

    Raises ``ModelError`` for a folder that was named and holds no model.
    """
    found = load_trained(default_folders() if folders is None else folders)
    return Guides(found.throughput, found.mutation, found.validity)
