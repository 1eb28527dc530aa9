"""Core counts that a model has seen; for other counts its predictions are a guess."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import orjson

from toolkit.features.task.hardware import cores_of, is_gpu
from toolkit.records import Task


def target_task(target: str) -> Task:
    """Return a task with a target only, given as JSON or as an option string."""
    if target.lstrip().startswith("{"):
        options = orjson.loads(target)
        return Task("", "", "", None, target, str(options.get("kind", "")), options)
    return Task("", "", "", None, target, target.split(" ", 1)[0])


def core_counts(tasks: Iterable[Task]) -> dict[str, list[int]]:
    """Return the core counts of CPU targets by target kind; an empty list where none is known."""
    found: dict[str, set[int]] = {}
    for task in tasks:
        if not is_gpu(task) and task.target_kind:
            cores = cores_of(task)
            known = {int(cores)} if math.isfinite(cores) else set()
            found[task.target_kind] = found.get(task.target_kind, set()) | known
    return {kind: sorted(counts) for kind, counts in sorted(found.items())}


def core_warnings(models: Iterable[Any], tasks: Iterable[Task]) -> list[str]:
    """Return one line, with its cure, per target kind with core counts that no model has seen.

    ``models`` are trained models of any kind, or ``None``. There is no line if all models together,
    or the target, give no core count.
    """
    seen = [model.manifest.get("cores", {}) for model in models if model is not None]
    warnings = []
    for kind, counts in core_counts(tasks).items():
        known = sorted({count for cores in seen for count in cores.get(kind, ())})
        unseen = [count for count in counts if count not in known]
        if known and unseen:
            warnings.append(
                f"the models were trained on {kind} logs of {listed_cores(known)}; this target has "
                f"{' or '.join(map(str, unseen))}, so their predictions are a guess; "
                f"cure: toolkit collect --threads {unseen[0]}"
            )
    return warnings


def listed_cores(counts: Sequence[int]) -> str:
    """Write core counts: ``1 core``, ``1 or 2 cores``."""
    return f"{' or '.join(map(str, counts))} core{'' if list(counts) == [1] else 's'}"


def told_cores(counts: Mapping[str, Sequence[int]]) -> list[str]:
    """Return lines with the core counts of logs, and a note where there is only one."""
    lines = []
    for kind, known in counts.items():
        if not known:
            lines.append(f"{kind}: the logs do not say how many cores they used")
            continue
        line = f"{kind}: logs of {listed_cores(known)}"
        if len(known) == 1:
            line += "; the effect of other core counts cannot be learned (hw_cores is constant)"
        lines.append(line)
    return lines
