"""Which numbers of cores a model has seen: what more or fewer cost it can only guess."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import orjson

from toolkit.features.task.hardware import cores_of, is_gpu
from toolkit.records import Task


class Manifested(Protocol):
    """What has a manifest: a trained model of any kind."""

    @property
    def manifest(self) -> Mapping[str, Any]:
        """What was kept of its training."""
        ...


def target_task(target: str) -> Task:
    """A task of which only the target is known, as JSON or as an option string."""
    if target.lstrip().startswith("{"):
        options = orjson.loads(target)
        return Task("", "", "", None, target, str(options.get("kind", "")), options)
    return Task("", "", "", None, target, target.split(" ", 1)[0])


def core_counts(tasks: Iterable[Task]) -> dict[str, list[int]]:
    """Core counts of CPU targets by their kind; none where the targets of a kind never say."""
    found: dict[str, set[int]] = {}
    for task in tasks:
        if not is_gpu(task) and task.target_kind:
            cores = cores_of(task)
            found.setdefault(task.target_kind, set()).update(
                [int(cores)] if math.isfinite(cores) else []
            )
    return {kind: sorted(counts) for kind, counts in sorted(found.items())}


def seen_cores(models: Iterable[Manifested | None]) -> dict[str, list[int]]:
    """Core counts that all models together were trained on; models that do not say are left out."""
    found: dict[str, set[int]] = {}
    for model in models:
        known: Mapping[str, Sequence[int]] = (
            {} if model is None else model.manifest.get("cores", {})
        )
        for kind, counts in known.items():
            found.setdefault(kind, set()).update(counts)
    return {kind: sorted(counts) for kind, counts in found.items()}


def core_warnings(models: Iterable[Manifested | None], tasks: Iterable[Task]) -> list[str]:
    """One line for each core count of the tasks that no model has seen, with its cure.

    Nothing is said where the models or the target tell no core count.
    """
    seen = seen_cores(models)
    warnings = []
    for kind, counts in core_counts(tasks).items():
        known = seen.get(kind, [])
        unseen = [count for count in counts if count not in known]
        if known and unseen:
            warnings.append(
                f"the models have seen {kind} logs of {listed_cores(known)}; this target has "
                f"{' or '.join(map(str, unseen))}: what that many cores cost is a guess; "
                f"cure: toolkit collect --threads {unseen[0]}"
            )
    return warnings


def listed_cores(counts: Sequence[int]) -> str:
    """Write core counts: ``1 core``, ``1 or 2 cores``."""
    return f"{' or '.join(map(str, counts))} core{'' if list(counts) == [1] else 's'}"


def told_cores(counts: Mapping[str, Sequence[int]]) -> list[str]:
    """Lines that say which core counts logs hold, and what one alone cannot teach."""
    lines = []
    for kind, known in counts.items():
        if not known:
            lines.append(f"{kind}: the logs do not say of how many cores they are")
            continue
        line = f"{kind}: logs of {listed_cores(known)}"
        if len(known) == 1:
            line += "; what more or fewer cost cannot be learned from them (hw_cores is constant)"
        lines.append(line)
    return lines
