"""Models trained offline, as the live search takes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolkit.records import Task
from toolkit.search.base import DirectionScorer, Scorer
from toolkit.training.loading import default_folders, load_trained


@dataclass(frozen=True)
class Guides:
    """At most one throughput and one mutation model; either may be absent."""

    throughput: Any = None
    mutation: Any = None

    def scorer(self, task: Task | str) -> Scorer | None:
        """The throughput model's member that never saw the task."""
        scorer: Scorer | None = None if self.throughput is None else self.throughput.for_task(task)
        return scorer

    def direction_scorer(self, task: Task | str) -> DirectionScorer | None:
        """The mutation model's member that never saw the task."""
        scorer: DirectionScorer | None = (
            None if self.mutation is None else self.mutation.for_task(task)
        )
        return scorer

    def best_strategy(self) -> str:
        """The strategy that makes the most of these models."""
        if self.throughput is not None:
            return "transfer"
        return "mutation-guided" if self.mutation is not None else "evolutionary"


def load_guides(folders: Sequence[Path] | None) -> Guides:
    """Load model folders; ``None`` takes those that lie in the default place, if any.

    Raises ``ModelError`` for a folder that was named and holds no model.
    """
    found = load_trained(default_folders() if folders is None else folders)
    return Guides(found.throughput, found.mutation)
