"""From a dataset to a training table: features from the cache, medians over occasions, labels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from toolkit.datasets import Dataset
from toolkit.datasets.read.labels import NETWORK_LABELS
from toolkit.errors import DatasetError
from toolkit.features import EXTRACTORS, best_extractor_for, cached_blocks, extractor_named
from toolkit.features.base import Extractor, FeatureBlock
from toolkit.progress import SILENT, Progress
from toolkit.records import Task
from toolkit.training.recipes.recipe import Recipe
from toolkit.training.table.table import (
    Choose,
    MeasuredGroup,
    Table,
    build_table,
    draw_key,
    fastest_and_drawn,
    task_order,
    workload_key,
)

Part = tuple[MeasuredGroup, FeatureBlock]


@dataclass(frozen=True)
class Gathered:
    """Data that a model is trained and judged on; ``extractors`` has versions by name."""

    dataset: Dataset
    recipe: Recipe
    table: Table
    extractors: dict[str, int]

    def tasks(self) -> dict[str, Task]:
        """The table's tasks by id."""
        known = self.dataset.tasks()
        return {task_id: known[task_id] for task_id in self.table.task_ids}


def extractor_for(name: str, task: Task) -> Extractor | None:
    """Return the named extractor (``auto``: the task's best) if it can read the task."""
    if name == "auto":
        try:
            return best_extractor_for(task)
        except DatasetError:
            return None
    extractor = extractor_named(name)
    return extractor if extractor.supports(task) else None


def gather_parts(
    dataset: Dataset,
    extractor: str = "auto",
    task_ids: Iterable[str] | None = None,
    *,
    thin: Callable[[Part], Part] | None = None,
    progress: Progress = SILENT,
) -> tuple[list[Part], dict[str, int]]:
    """Return every group with its features, in order of tasks, and the extractors' versions.

    Tasks that the extractor cannot read, and tasks that an emulator measured, are left out.
    ``thin`` reduces each group as it is read.

    Raises ``DatasetError`` when nothing is left.
    """
    tasks = dataset.tasks()
    emulated = dataset.emulated_tasks()
    wanted = [key for key in (tasks if task_ids is None else task_ids) if key not in emulated]
    by_extractor: dict[str, list[str]] = {}
    versions: dict[str, int] = {}
    for task_id in wanted:
        found = extractor_for(extractor, tasks[task_id])
        if found is not None:
            by_extractor.setdefault(found.name, []).append(task_id)
            versions[found.name] = found.version
    parts: list[Part] = []
    with progress.step("features", total=sum(map(len, by_extractor.values()))) as step:
        for name, own in sorted(by_extractor.items()):
            seen: set[str] = set()
            for group, rows, block in cached_blocks(dataset, extractor_named(name), own):
                latency = rows["latency_s"].cast(pl.Float64).fill_null(np.nan).to_numpy()
                part = MeasuredGroup(group, np.asarray(latency, np.float64)), block
                parts.append(part if thin is None else thin(part))
                if group.task.task_id not in seen:
                    seen.add(group.task.task_id)
                    step.advance(note=group.task.workload[:30])
    if not parts and emulated and not wanted:
        raise DatasetError(
            "all tasks were measured by an emulator, and models need real measurements",
            where=dataset.path,
            cure="add logs of a real machine",
        )
    if not parts:
        raise DatasetError(
            f"the extractor {extractor!r} cannot read the candidates of any task",
            where=dataset.path,
            cure="known extractors: " + ", ".join(EXTRACTORS.names()),
        )
    order = {task_id: task_order(tasks[task_id]) for task_id in wanted}
    parts.sort(key=lambda part: order[part[0].group.task.task_id])
    return parts, versions


def gather(
    dataset: Dataset,
    extractor: str = "auto",
    task_ids: Iterable[str] | None = None,
    *,
    most: int | None = None,
    choose: Choose = fastest_and_drawn,
    progress: Progress = SILENT,
) -> tuple[Table, dict[str, int]]:
    """Build the table of a dataset (see ``gather_parts``).

    ``most`` limits the number of rows, approximately, and with it the memory. Tasks with many
    candidates then keep what ``choose`` takes from each sketch: by default the fastest fifth of
    their share and a random sample of the others. The draw of one task depends on that task alone.
    """
    wanted = list(dataset.tasks()) if task_ids is None else list(task_ids)
    counts = candidate_counts(dataset, wanted)
    quota = np.inf if most is None else share_of(list(counts.values()), most)

    def thin(part: Part) -> Part:
        return _light(part, quota / counts[part[0].group.task.task_id], choose)

    parts, versions = gather_parts(dataset, extractor, wanted, thin=thin, progress=progress)
    return build_table(parts), versions


def candidate_counts(dataset: Dataset, task_ids: Iterable[str]) -> dict[str, int]:
    """Number of candidates of each task."""
    records = dataset.records(["task_id", "candidate_id"])
    own = records.filter(pl.col("task_id").is_in(list(task_ids)))
    counted = own.group_by("task_id").agg(pl.col("candidate_id").n_unique()).collect()
    return {str(task_id): int(count) for task_id, count in counted.iter_rows()}


def share_of(counts: Sequence[int], most: int) -> int:
    """Return the largest quota q (at least 10) with the sum of min(count, q) at most ``most``."""
    left, remaining = most, sorted(counts)
    for place, count in enumerate(remaining):
        share = left // (len(remaining) - place)
        if count > share:
            return max(10, share)
        left -= count
    return max([10, *remaining])


def _light(part: Part, share: float, choose: Choose) -> Part:
    """Return a part without schedules, with the chosen share of its rows."""
    measured, block = part
    group, latency = replace(measured.group, schedules=None), measured.latency_s
    if share >= 1:
        return replace(measured, group=group), block
    key = [draw_key(workload_key(group.task)), int(group.sketch.sketch_id[:8], 16)]
    rows, _ = choose(latency, max(1, round(share * len(group))), key)
    group = replace(group, decisions=group.decisions[rows])
    return MeasuredGroup(group, latency[rows]), replace(block, values=block.values[rows])


def networks_of(dataset: Dataset, task_ids: Iterable[str]) -> tuple[tuple[str, ...], ...]:
    """Return the networks of each task, from its sources' labels; empty where there are none."""
    labels = {
        source_id: next(own[key] for key in NETWORK_LABELS if key in own)
        for source_id, own in dataset.source_labels().items()
        if any(key in own for key in NETWORK_LABELS)
    }
    found: dict[str, set[str]] = {}
    if labels:
        pairs = dataset.records(["task_id", "source_id"]).unique().collect()
        for task_id, source_id in pairs.iter_rows():
            if source_id in labels:
                found.setdefault(task_id, set()).add(labels[source_id])
    return tuple(tuple(sorted(found.get(task_id, ()))) for task_id in task_ids)
