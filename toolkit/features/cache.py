"""Features of a dataset, computed once: one Parquet file per task, sketch and extractor version.

The files lie in the dataset under ``features/<extractor>-v<version>/``. A file is used again only
if it was made for the same candidates in the same order; otherwise it is made anew. Features do not
depend on measurements.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from toolkit.atomic import replacing, sweep
from toolkit.cluster import Cluster
from toolkit.features.base import CandidateGroup, Extractor, FeatureBlock
from toolkit.progress import SILENT, Progress
from toolkit.records import content_id

if TYPE_CHECKING:
    from toolkit.datasets import Dataset

_KEY = "candidate_id"


def cached_blocks(
    dataset: Dataset, extractor: Extractor, task_ids: Iterable[str] | None = None
) -> Iterator[tuple[CandidateGroup, pl.DataFrame, FeatureBlock]]:
    """Give each group of a dataset with its rows and features, from the cache where it holds them.

    Groups that the extractor does not support are left out. If the extractor cannot compute here
    (``stored_only``), groups without a file are left out too, and candidates that were added after
    the file have no features.
    """
    stored_only = _stored_only(extractor)
    sweep(_folder(dataset, extractor))
    for group, rows in dataset.groups(task_ids):
        if not extractor.supports(group.task):
            continue
        block = _read(_path(dataset, extractor, group), rows, partly=stored_only)
        if block is None and stored_only:
            continue
        if block is None:
            block = extractor.extract(group)
            write_block(dataset, extractor, group, rows, block)
        yield group, rows, block


def write_block(
    dataset: Dataset,
    extractor: Extractor,
    group: CandidateGroup,
    rows: pl.DataFrame,
    block: FeatureBlock,
) -> None:
    """Store a group's features; if the disk is full or read-only, they are made anew next time.

    Raises ``OSError`` in that case for an extractor with ``stored_only``: features could get lost.
    """
    path = _path(dataset, extractor, group)
    data = [rows[_KEY]]
    data.extend(pl.Series(name, block.values[:, i]) for i, name in enumerate(block.columns))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary:
            pl.DataFrame(data).write_parquet(temporary)
    except OSError:
        # Even if they can be computed here: elsewhere they may only come from this file.
        if hasattr(extractor, "stored_only"):
            raise


def drop_block(dataset: Dataset, extractor: Extractor, group: CandidateGroup) -> None:
    """Remove a group's stored features."""
    _path(dataset, extractor, group).unlink(missing_ok=True)


def extract(
    dataset: Dataset,
    extractor: Extractor,
    task_ids: Iterable[str] | None = None,
    *,
    cluster: Cluster | None = None,
    progress: Progress = SILENT,
) -> dict[str, Any]:
    """Fill the cache (on a cluster, if given); returns counts and columns."""
    columns: set[str] = set()
    tasks: set[str] = set()
    groups = candidates = 0
    wanted = list(dataset.tasks() if task_ids is None else task_ids)
    if cluster is not None and not _stored_only(extractor):
        with progress.step(f"features {extractor.name} on the cluster") as step:
            for group in _made_there(dataset, extractor, wanted, cluster):
                step.advance(note=group.task.workload)
    with progress.step(f"features {extractor.name}", total=len(wanted)) as step:
        for group, _, block in cached_blocks(dataset, extractor, wanted):
            groups += 1
            candidates += len(group)
            columns.update(block.columns)
            if group.task.task_id not in tasks:
                tasks.add(group.task.task_id)
                step.advance()
    return {
        "extractor": extractor.name,
        "version": extractor.version,
        "tasks": len(tasks),
        "groups": groups,
        "candidates": candidates,
        "columns": sorted(columns),
    }


def _made_there(
    dataset: Dataset, extractor: Extractor, task_ids: Iterable[str], cluster: Cluster
) -> Iterator[CandidateGroup]:
    """Compute and store features of groups without a file; give each group when it is done."""
    rows_of: dict[int, pl.DataFrame] = {}

    def missing() -> Iterator[CandidateGroup]:
        for group, rows in dataset.groups(task_ids):
            known = _read(_path(dataset, extractor, group), rows, partly=False)
            if known is None and extractor.supports(group.task):
                rows_of[id(group)] = rows
                yield group

    for group, block in cluster.results(_extract, extractor, missing()):
        write_block(dataset, extractor, group, rows_of.pop(id(group)), block)
        yield group


def _extract(extractor: Extractor, group: CandidateGroup) -> FeatureBlock:
    return extractor.extract(group)


def _stored_only(extractor: Extractor) -> bool:
    """Whether the extractor's features cannot be computed here."""
    return bool(getattr(extractor, "stored_only", False))


def _folder(dataset: Dataset, extractor: Extractor) -> Path:
    name = f"{extractor.name}-v{extractor.version}".replace(":", "-")
    return dataset.features_folder / name


def _path(dataset: Dataset, extractor: Extractor, group: CandidateGroup) -> Path:
    name = content_id(group.task.task_id, group.sketch.sketch_id)
    return _folder(dataset, extractor) / f"{name}.parquet"


def _read(path: Path, rows: pl.DataFrame, *, partly: bool) -> FeatureBlock | None:
    """Return a file's features; ``partly``: NaN for candidates that are not in it."""
    try:
        frame = pl.read_parquet(path)
    except (OSError, pl.exceptions.PolarsError):
        return None
    if _KEY not in frame.columns:
        return None
    if not frame[_KEY].equals(rows[_KEY]):
        if not partly:
            return None
        frame = rows.select(_KEY).join(frame, on=_KEY, how="left", maintain_order="left")
    columns = tuple(name for name in frame.columns if name != _KEY)
    values = frame.drop(_KEY).to_numpy().reshape(len(frame), len(columns))
    return FeatureBlock(columns, np.ascontiguousarray(values, dtype=np.float32))
