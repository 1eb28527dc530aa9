"""Reading a dataset: records, tasks, sketches, candidates."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import polars as pl

from toolkit.datasets.read.integrity import open_tables
from toolkit.datasets.tables import batches, decision_matrix, read_sketches, read_tasks
from toolkit.datasets.urls import folder_at, is_remote
from toolkit.errors import DatasetError, did_you_mean
from toolkit.features.base import CandidateGroup
from toolkit.logs.formats import format_named
from toolkit.logs.rows.format import LogFormat
from toolkit.records import EMULATOR, Sketch, Task, canonical_json, content_id
from toolkit.schema import LABELS, SOURCES
from toolkit.workspace import Workspace


def open_dataset(folder: str | Path) -> Dataset:
    """Open the dataset in a folder, or at a URL of an object store (``urls.folder_at``).

    Raises
    ------
    DatasetError
        When there is no dataset, it is damaged, or it has another schema version.
    """
    return Dataset(folder_at(folder))


class Dataset:
    """A dataset as it was committed when it was opened."""

    def __init__(self, folder: Path) -> None:
        self.path = folder
        self.manifest, self._tables = open_tables(folder)

    @property
    def features_folder(self) -> Path:
        """Folder of the computed features: in the dataset, or in the workspace for a URL."""
        if is_remote(self.path):
            return Workspace().root / "features" / self.fingerprint()
        return self.path / "features"

    def records(self, columns: Sequence[str] | None = None) -> pl.LazyFrame:
        """All records (``schema.RECORDS``), in the order in which they were ingested."""
        frame = self._tables["records"]
        return frame if columns is None else frame.select(columns)

    @cached_property
    def _tasks(self) -> dict[str, Task]:
        return read_tasks(self._tables["tasks"])

    @cached_property
    def _sketches(self) -> dict[str, Sketch]:
        return read_sketches(self._tables["sketches"])

    def tasks(self) -> dict[str, Task]:
        """Tasks by id."""
        return dict(self._tasks)

    def sketches(self) -> dict[str, Sketch]:
        """Sketches by id."""
        return dict(self._sketches)

    def task(self, task_id: str) -> Task:
        """Return a task by its id or the beginning of its id.

        Raises
        ------
        DatasetError
            When no task, or more than one, has such an id.
        """
        if task_id in self._tasks:
            return self._tasks[task_id]
        found = [task for key, task in self._tasks.items() if key.startswith(task_id)]
        if len(found) != 1:
            what = "no task has" if not found else f"{len(found)} tasks have"
            raise DatasetError(
                f"{what} an id that begins with {task_id!r}",
                where=self.path,
                cure="list the ids with: toolkit describe",
            )
        return found[0]

    def sources(self) -> pl.DataFrame:
        """One row per ingested file, with its counts (``schema.SOURCES``)."""
        rows = [
            {name: getattr(source, name) for name in SOURCES}
            | {"labels": canonical_json(source.labels).decode()}
            for source in self.manifest.sources
        ]
        return pl.DataFrame(rows, schema=SOURCES)

    def labels(self) -> pl.DataFrame:
        """One row per label of a file (``schema.LABELS``)."""
        rows = [
            (source.source_id, name, str(value))
            for source in self.manifest.sources
            for name, value in source.labels.items()
        ]
        return pl.DataFrame(rows, schema=LABELS, orient="row")

    def source_labels(self) -> dict[str, dict[str, str]]:
        """Labels of each file, by source id."""
        return {
            source.source_id: {name: str(value) for name, value in source.labels.items()}
            for source in self.manifest.sources
        }

    def of_machines(self, machines: Iterable[str]) -> Dataset:
        """Return the part that these machines measured, with the files that hold it.

        The files' counts and the fingerprint are those of the whole dataset.

        Raises
        ------
        DatasetError
            When no task is of one of these machines.
        """
        known = {task.machine for task in self._tasks.values() if task.machine}
        wanted = set(machines)
        for name in sorted(wanted):
            if name not in known:
                cure = did_you_mean(name, known)
                raise DatasetError(f"no task is of a machine {name!r}", where=self.path, cure=cure)
        tasks = {key: task for key, task in self._tasks.items() if task.machine in wanted}
        records = self._tables["records"].filter(pl.col("task_id").is_in(list(tasks)))
        held = set(records.select(pl.col("source_id").unique()).collect()["source_id"])
        rejected = self._tables["rejected"].filter(pl.col("source_id").is_in(list(held)))
        part = copy(self)
        part.manifest = replace(
            self.manifest, sources=[s for s in self.manifest.sources if s.source_id in held]
        )
        part._tables = {**self._tables, "records": records, "rejected": rejected}
        part.__dict__["_tasks"] = tasks
        return part

    def emulated_tasks(self) -> set[str]:
        """Ids of the tasks whose records an emulator measured (``records.EMULATOR``)."""
        held = [source.source_id for source in self.manifest.sources if EMULATOR in source.labels]
        if not held:
            return set()
        records = self.records(["task_id", "source_id"])
        found = records.filter(pl.col("source_id").is_in(held)).select(pl.col("task_id").unique())
        return set(found.collect()["task_id"])

    def rejected(self) -> pl.DataFrame:
        """Every rejected line, with the reason (``schema.REJECTED``)."""
        return self._tables["rejected"].collect()

    def candidates(self, task_ids: Iterable[str] | None = None) -> pl.DataFrame:
        """One row per task and candidate, in first-recorded order (``schema.CANDIDATES``)."""
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
        self, task_ids: Iterable[str] | None = None
    ) -> Iterator[tuple[CandidateGroup, pl.DataFrame]]:
        """Yield the candidates of one task and sketch at a time, with their rows.

        Tasks come in the given order (default: of the dataset), sketches in first-recorded order.
        """
        for batch in self.task_batches(task_ids):
            rows = self.candidates(batch)
            parts = rows.partition_by(["task_id", "sketch_id"], maintain_order=True)
            place = {task_id: n for n, task_id in enumerate(batch)}
            for part in sorted(parts, key=lambda part: place[part["task_id"][0]]):
                sketch = self._sketches[part["sketch_id"][0]]
                group = CandidateGroup(
                    task=self._tasks[part["task_id"][0]],
                    sketch=sketch,
                    decisions=decision_matrix(part["decisions"], sketch.width),
                    schedules=part["schedule"].to_list(),
                )
                yield group, part

    def task_batches(
        self, task_ids: Iterable[str] | None = None, records: int = 500_000
    ) -> Iterator[list[str]]:
        """Split tasks (default: all) into batches of at most ``records`` records, or of one task.

        Tasks without records are included.
        """
        counts = dict(self.records(["task_id"]).group_by("task_id").len().collect().iter_rows())
        tasks = self._tasks if task_ids is None else task_ids
        return batches(tasks, lambda task_id: counts.get(task_id, 0), records)

    def enumerated(self) -> dict[str, bool]:
        """Whether all candidates of a task's space were recorded, by task id.

        If a collector stated the size of the space, the number of candidates must equal it.
        Otherwise the format decides (``LogFormat.is_whole_space``). Ansor's spaces cannot be
        enumerated.
        """
        result = dict.fromkeys(self._tasks, False)
        sizes = self.manifest.space_sizes
        if sizes:
            records = self.records(["task_id", "candidate_id"])
            counts = records.filter(pl.col("task_id").is_in(list(sizes))).group_by("task_id")
            for task_id, n in counts.agg(pl.col("candidate_id").n_unique()).collect().iter_rows():
                result[task_id] = n == sizes[task_id]
        for name in sorted({sketch.format for sketch in self._sketches.values()}):
            log_format = format_named(name)
            if type(log_format).is_whole_space is LogFormat.is_whole_space:
                continue
            pattern = log_format.number_in_space
            number = pl.col("schedule").str.extract(pattern) if pattern else pl.lit(None)
            candidates = (
                self.records()
                .filter(pl.col("format") == name)
                .group_by(["task_id", "sketch_id", "candidate_id"], maintain_order=True)
                .agg(pl.col("decisions").first(), number=number.cast(pl.Int64).first())
                .collect()
            )
            for rows in candidates.partition_by("task_id"):
                sketch = self._sketches[rows["sketch_id"][0]]
                result[rows["task_id"][0]] = rows["sketch_id"].n_unique() == 1 and (
                    log_format.is_whole_space(
                        sketch,
                        decision_matrix(rows["decisions"], sketch.width),
                        rows["number"].fill_null(-1).to_numpy(),
                    )
                )
        return result

    def fingerprint(self) -> str:
        """Hash of the records and the schema version, independent of order, files and paths."""
        manifest = self.manifest
        rows = sum(part.rows for part in manifest.records)
        return content_id("dataset", f"{manifest.schema_version} {rows} {manifest.digest:016x}")
