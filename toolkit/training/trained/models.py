"""The models that guide a search, from their folders: at most one of each kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolkit.datasets.urls import folder_at
from toolkit.errors import ModelError
from toolkit.records import Task, content_id
from toolkit.search.base import DirectionScorer, Scorer
from toolkit.training.table.cores import core_warnings, target_task
from toolkit.training.trained.loading import KINDS, default_folders
from toolkit.training.trained.scorer import CautiousScorer, ThroughputScorer
from toolkit.training.trained.store import MANIFEST, read_manifest


@dataclass(frozen=True)
class TrainedModels:
    """At most one throughput, one mutation and one validity model; each may be absent.

    Each is what ``toolkit.training`` loads: ``for_task(task)`` gives a scorer that never saw the
    task or its workload. ``fingerprint`` identifies their manifests, '' without any. Another
    process loads them from their ``folders``.
    """

    throughput: Any = None
    mutation: Any = None
    validity: Any = None
    fingerprint: str = ""
    folders: tuple[Path, ...] = ()

    def __reduce__(self) -> Any:
        return (load_trained, (self.folders,)) if self.folders else super().__reduce__()

    def scorer(
        self, task: Task | str, related: Callable[[ThroughputScorer], Scorer] | None = None
    ) -> Scorer | None:
        """Return the throughput model's scorer for a task that it never saw; ``None`` without one.

        With a validity model it accounts for failures. ``related`` turns it into a scorer that
        learns from other tasks (``live.tune.relatives``).
        """
        if self.throughput is None:
            return None
        own: ThroughputScorer = self.throughput.for_task(task)
        scorer = own if related is None else related(own)
        if self.validity is None:
            return scorer
        return CautiousScorer(scorer, self.validity.for_task(task))

    def direction_scorer(self, task: Task | str) -> DirectionScorer | None:
        """Return the mutation model's scorer for a task that it never saw; ``None`` without one."""
        scorer: DirectionScorer | None = (
            None if self.mutation is None else self.mutation.for_task(task)
        )
        return scorer

    def warnings(self, *targets: str) -> list[str]:
        """Return warnings about core counts of these targets that the models have not seen."""
        models = (self.throughput, self.mutation, self.validity)
        return core_warnings(models, map(target_task, targets))

    def best_strategy(self) -> str:
        """The strategy that makes the most of these models."""
        if self.throughput is not None:
            return "transfer-evolved"
        if self.mutation is None:
            return "evolutionary"
        return "potential" if self.mutation.expects else "mutation-guided"


def load_trained(folders: Sequence[Path | str] | None) -> TrainedModels:
    """Load models, one of each kind at most; each manifest says its kind.

    ``None`` loads the workspace's default models, if any.

    Raises ``ModelError`` where a folder holds no model, one of an unknown kind, or a second one of
    a kind.
    """
    found: dict[str, Any] = {}
    contents: list[bytes] = []
    given = tuple(map(folder_at, default_folders() if folders is None else folders))
    for folder in given:
        kind = read_manifest(folder)["kind"]
        if kind not in KINDS.names():
            raise ModelError(f"the model has the unknown kind {kind!r}", where=folder / MANIFEST)
        if kind in found:
            raise ModelError(f"is a second {kind} model", where=folder, cure="give one per kind")
        found[kind] = KINDS.get(kind).model.load(folder)
        contents.append((folder / MANIFEST).read_bytes())
    fingerprint = content_id(*sorted(contents)) if contents else ""
    return TrainedModels(**found, fingerprint=fingerprint, folders=given)
