"""Which numbers of cores a model has seen: what more or fewer cost it can only guess."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import orjson

from toolkit.features.task.hardware import cores_of, is_gpu
from toolkit.records import Task


def target_task(target: str) -> Task:
    """A task whose target alone is known, as JSON or as an option string."""
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
            known = {int(cores)} if math.isfinite(cores) else set()
            found[task.target_kind] = found.get(task.target_kind, set()) | known
    return {kind: sorted(counts) for kind, counts in sorted(found.items())}


def core_warnings(models: Iterable[Any], tasks: Iterable[Task]) -> list[str]:
    """One line for each core count of the tasks that no model has seen, with its cure.

    ``models`` are trained models of any kind, or ``None``. Nothing is said where all of them
    together, or the target, tell no core count.
    """
    seen = [model.manifest.get("cores", {}) for model in models if model is not None]
    warnings = []
    for kind, counts in core_counts(tasks).items():
        known = sorted({count for cores in seen for count in cores.get(kind, ())})
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
