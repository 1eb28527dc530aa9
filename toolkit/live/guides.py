"""Models trained offline, as the live search takes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from toolkit import training
from toolkit.errors import ModelError
from toolkit.search.base import DirectionScorer, Scorer
from toolkit.workspace import Workspace


@dataclass(frozen=True)
class Guides:
    """At most one throughput and one mutation model; either may be absent."""

    throughput: Any = None
    mutation: Any = None

    def scorer(self, task_id: str) -> Scorer | None:
        """The throughput model's member that never saw the task."""
        scorer: Scorer | None = (
            None if self.throughput is None else self.throughput.for_task(task_id)
        )
        return scorer

    def direction_scorer(self, task_id: str) -> DirectionScorer | None:
        """The mutation model's member that never saw the task."""
        scorer: DirectionScorer | None = (
            None if self.mutation is None else self.mutation.for_task(task_id)
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
    if folders is None:
        workspace = Workspace()
        defaults = [workspace.model("throughput"), workspace.model("mutation")]
        folders = [folder for folder in defaults if (folder / "manifest.json").is_file()]
    found: dict[str, Any] = {}
    for folder in folders:
        manifest = folder / "manifest.json"
        if not manifest.is_file():
            raise ModelError("there is no trained model", where=folder, cure="run: toolkit train")
        kind = orjson.loads(manifest.read_bytes()).get("kind")
        if kind == "throughput":
            found[kind] = training.load_throughput(folder)
        elif kind == "mutation":
            found[kind] = training.load_mutation(folder)
        else:
            raise ModelError(f"a model of the unknown kind {kind!r}", where=manifest)
    return Guides(**found)
