"""From a dataset to a training table: features from the cache, medians over occasions, labels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import polars as pl

from toolkit.datasets import Dataset
from toolkit.errors import DatasetError, ModelError
from toolkit.features import EXTRACTORS, best_extractor_for, cached_blocks, extractor_named
from toolkit.features.base import Extractor, FeatureBlock
from toolkit.progress import SILENT, Progress
from toolkit.records import Task
from toolkit.training.table import MeasuredGroup, Table, build_table

NETWORK_LABELS = ("network", "model")
"""Names of a source's labels that say which network its tasks belong to."""


def extractor_for(name: str, task: Task) -> Extractor | None:
    """Return the named extractor (``auto``: the task's best) if it can read the task."""
    if name == "auto":
        try:
            return best_extractor_for(task)
        except DatasetError:
            return None
    extractor = extractor_named(name)
    return extractor if extractor.supports(task) else None


def check_extractors(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Refuse a model whose columns mean something else in this toolkit.

    Raises
    ------
    ModelError
        When an extractor that it was trained with has another version here.
    """
    for name, version in manifest["extractor_versions"].items():
        own = extractor_named(name).version
        if own != version:
            raise ModelError(
                f"was trained with version {version} of the extractor {name!r}, this toolkit has "
                f"version {own}",
                where=folder,
                cure="train it again",
            )


def measured_groups(
    dataset: Dataset, task_ids: Iterable[str] | None = None
) -> Iterator[MeasuredGroup]:
    """Give every task's candidates, one sketch at a time, with their median latencies."""
    for group, rows in dataset.groups(task_ids):
        yield measured(group, rows)


def measured(group: Any, rows: pl.DataFrame) -> MeasuredGroup:
    """Join a group with what ``Dataset.candidates`` says of it."""
    latency = rows["latency_s"].cast(pl.Float64).fill_null(np.nan).to_numpy()
    return MeasuredGroup(group, np.asarray(latency, np.float64), rows["candidate_id"].to_list())


def gather_parts(
    dataset: Dataset,
    extractor: str = "auto",
    task_ids: Iterable[str] | None = None,
    *,
    progress: Progress = SILENT,
) -> tuple[list[tuple[MeasuredGroup, FeatureBlock]], dict[str, int]]:
    """Give every group with its features, by task, and the versions of the extractors.

    Tasks that the extractor cannot read are left out.

    Raises
    ------
    DatasetError
        When nothing is left.
    """
    tasks = dataset.tasks()
    wanted = list(tasks) if task_ids is None else list(task_ids)
    by_extractor: dict[str, list[str]] = {}
    versions: dict[str, int] = {}
    for task_id in wanted:
        found = extractor_for(extractor, tasks[task_id])
        if found is not None:
            by_extractor.setdefault(found.name, []).append(task_id)
            versions[found.name] = found.version
    parts: list[tuple[MeasuredGroup, FeatureBlock]] = []
    with progress.step("features", total=sum(map(len, by_extractor.values()))) as step:
        for name, own in sorted(by_extractor.items()):
            seen: set[str] = set()
            for group, rows, block in cached_blocks(dataset, extractor_named(name), own):
                parts.append((measured(group, rows), block))
                if group.task.task_id not in seen:
                    seen.add(group.task.task_id)
                    step.advance(note=group.task.workload[:30])
    if not parts:
        raise DatasetError(
            f"no task's candidates can be read by the extractor {extractor!r}",
            where=dataset.path,
            cure="known extractors: " + ", ".join(EXTRACTORS.names()),
        )
    parts.sort(key=lambda part: part[0].group.task.task_id)
    return parts, versions


def gather(
    dataset: Dataset,
    extractor: str = "auto",
    task_ids: Iterable[str] | None = None,
    *,
    progress: Progress = SILENT,
) -> tuple[Table, dict[str, int]]:
    """Build the table of a dataset (see ``gather_parts``)."""
    parts, versions = gather_parts(dataset, extractor, task_ids, progress=progress)
    return build_table(parts), versions


def networks_of(dataset: Dataset) -> dict[str, tuple[str, ...]]:
    """Networks that each task was met in, by task id: the sources' labels, or none."""
    labels: dict[str, str] = {}
    for row in dataset.sources().iter_rows(named=True):
        given = orjson.loads(row["labels"]) if row["labels"] else {}
        for key in NETWORK_LABELS:
            if isinstance(given.get(key), str):
                labels[row["source_id"]] = given[key]
                break
    if not labels:
        return {}
    pairs = dataset.records(["task_id", "source_id"]).unique().collect()
    found: dict[str, set[str]] = {}
    for task_id, source_id in pairs.iter_rows():
        if source_id in labels:
            found.setdefault(task_id, set()).add(labels[source_id])
    return {task_id: tuple(sorted(names)) for task_id, names in found.items()}
