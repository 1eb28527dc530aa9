"""Reading a dataset: records, tasks, sketches, candidates."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import orjson
import polars as pl
from numpy.typing import NDArray

from toolkit.datasets.read import snapshot
from toolkit.datasets.read.enumeration import enumerated_tasks
from toolkit.datasets.tables import read_sketches, read_tasks
from toolkit.errors import DatasetError
from toolkit.features.base import CandidateGroup
from toolkit.records import Sketch, Task, content_id


def open_dataset(folder: str | Path) -> Dataset:
    """Open the dataset in a folder.

    Raises
    ------
    DatasetError
        When there is none, it is damaged, or it has another schema version.
    """
    return Dataset(Path(folder))


class Dataset:
    """A snapshot of a dataset: what was committed when it was opened."""

    def __init__(self, folder: Path) -> None:
        self.path = folder
        self._snapshot = snapshot.take(folder)
        self.manifest = self._snapshot.manifest

    def records(self, columns: Sequence[str] | None = None) -> pl.LazyFrame:
        """All records (``schema.RECORDS``), in the order in which they were ingested."""
        frame = self._snapshot.records
        return frame if columns is None else frame.select(columns)

    @cached_property
    def _tasks(self) -> dict[str, Task]:
        return read_tasks(self._snapshot.tasks)

    @cached_property
    def _sketches(self) -> dict[str, Sketch]:
        return read_sketches(self._snapshot.sketches)

    def tasks(self) -> dict[str, Task]:
        """Tasks by id."""
        return dict(self._tasks)

    def sketches(self) -> dict[str, Sketch]:
        """Sketches by id."""
        return dict(self._sketches)

    def task(self, task_id: str) -> Task:
        """Return a task by its id or the beginning of it.

        Raises
        ------
        DatasetError
            When no task, or more than one, is meant.
        """
        found = [key for key in self._tasks if key.startswith(task_id)]
        if task_id in self._tasks:
            return self._tasks[task_id]
        if len(found) != 1:
            what = "no task has" if not found else f"{len(found)} tasks have"
            raise DatasetError(
                f"{what} the id {task_id!r}",
                where=self.path,
                cure="list them with: toolkit describe",
            )
        return self._tasks[found[0]]

    def sources(self) -> pl.DataFrame:
        """One row an ingested file, with its counts."""
        rows = [
            {
                "source_id": s.source_id,
                "path": s.path,
                "sha256": s.sha256,
                "format": s.format,
                "lines": s.lines,
                "records": s.records,
                "duplicates": s.duplicates,
                "rejected": s.rejected,
                "machine": s.machine,
                "labels": orjson.dumps(s.labels, option=orjson.OPT_SORT_KEYS).decode(),
            }
            for s in self.manifest.sources
        ]
        counts = ("lines", "records", "duplicates", "rejected")
        texts = ("source_id", "path", "sha256", "format", "machine", "labels")
        schema = {
            **dict.fromkeys(texts, pl.String()),
            **dict.fromkeys(counts, pl.Int64()),
        }
        order = [*texts[:4], *counts, *texts[4:]]
        return pl.DataFrame(rows, schema={name: schema[name] for name in order})

    def rejected(self) -> pl.DataFrame:
        """Every line that is no record, with its reason (``schema.REJECTED``)."""
        return self._snapshot.rejected.collect()

    def candidates(self, task_ids: Iterable[str] | None = None) -> pl.DataFrame:
        """One row a (task, candidate), in first-recorded order.

        Columns: task_id, candidate_id, sketch_id, decisions, schedule; ``state`` (``ok`` if any
        occasion was, else the first failure); ``latency_s`` (median over the ok occasions,
        seconds, lower is better); ``occasions`` (a list of {state, latency_s, elapsed_s} in
        recorded order); ``n_ok``.
        """
        return self.candidates_lazily(task_ids).collect()

    def candidates_lazily(self, task_ids: Iterable[str] | None = None) -> pl.LazyFrame:
        """``candidates``, not yet computed."""
        columns = ["task_id", "candidate_id", "sketch_id", "decisions", "schedule"]
        measured = ["state", "latency_s", "elapsed_s"]
        frame = self.records([*columns, *measured])
        if task_ids is not None:
            frame = frame.filter(pl.col("task_id").is_in(list(task_ids)))
        ok = pl.col("state") == "ok"
        return frame.group_by(["task_id", "candidate_id"], maintain_order=True).agg(
            pl.col("sketch_id", "decisions", "schedule").first(),
            state=pl.when(ok.any()).then(pl.lit("ok")).otherwise(pl.col("state").first()),
            latency_s=pl.col("latency_s").filter(ok).median(),
            occasions=pl.struct(measured),
            n_ok=ok.sum().cast(pl.Int64),
        )

    def groups(
        self, task_ids: Iterable[str] | None = None, ok_only: bool = False
    ) -> Iterator[tuple[CandidateGroup, pl.DataFrame]]:
        """Give the candidates of one task and sketch at a time, with their rows.

        Tasks come in the order asked for (or of the dataset), sketches as first recorded.
        """
        wanted = list(self._tasks) if task_ids is None else list(task_ids)
        for batch in self.task_batches(wanted):
            rows = self.candidates(batch)
            if ok_only:
                rows = rows.filter(pl.col("n_ok") > 0)
            parts = rows.partition_by(["task_id", "sketch_id"], maintain_order=True, as_dict=True)
            place = {task_id: n for n, task_id in enumerate(batch)}
            for (task_id, sketch_id), part in sorted(
                parts.items(), key=lambda item: place[str(item[0][0])]
            ):
                sketch = self._sketches[str(sketch_id)]
                yield (
                    CandidateGroup(
                        task=self._tasks[str(task_id)],
                        sketch=sketch,
                        decisions=decision_matrix(part["decisions"], sketch.width),
                        schedules=part["schedule"].to_list(),
                    ),
                    part,
                )

    def task_batches(
        self, task_ids: list[str] | None = None, records: int = 500_000
    ) -> Iterator[list[str]]:
        """Cut a list of tasks (all by default): a batch holds at most so many records, or one task.

        A task without records may be among them.
        """
        task_ids = list(self._tasks) if task_ids is None else task_ids
        counts = dict(self.records(["task_id"]).group_by("task_id").len().collect().iter_rows())
        batch: list[str] = []
        size = 0
        for task_id in task_ids:
            if batch and size + counts.get(task_id, 0) > records:
                yield batch
                batch, size = [], 0
            batch.append(task_id)
            size += counts.get(task_id, 0)
        if batch:
            yield batch

    def enumerated(self) -> dict[str, bool]:
        """Whether the whole space of a task was recorded, by task id."""
        return enumerated_tasks(self)

    def fingerprint(self) -> str:
        """Hash of the records (whatever their order, files and paths) and the schema version."""
        manifest = self.manifest
        rows = sum(part.rows for part in manifest.records)
        return content_id("dataset", f"{manifest.schema_version} {rows} {manifest.digest:016x}")


def decision_matrix(decisions: pl.Series, width: int) -> NDArray[np.int64]:
    """Turn a list column into an int64 matrix with one row a candidate."""
    if width == 0:
        return np.zeros((len(decisions), 0), dtype=np.int64)
    flat = decisions.explode().to_numpy()
    return np.ascontiguousarray(flat, dtype=np.int64).reshape(len(decisions), width)
