"""Writing a dataset: rows are gathered into parts, and commits make parts count."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from toolkit.datasets import manifest as manifests
from toolkit.datasets.manifest import Manifest, Part, Source
from toolkit.datasets.tables import read_sketches, read_tasks, sketches_frame, tasks_frame
from toolkit.errors import DatasetError
from toolkit.logs.columns import Columns, Rejects
from toolkit.logs.identity import merge_sketches
from toolkit.records import Sketch, Task
from toolkit.schema import RECORDS, REJECTED

PART_ROWS = 250_000
"""Rows a part gathers before it is committed."""

COMPRESSION_LEVEL = 1


class Store:
    """A dataset opened for writing by one process (see ``locked``)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("records", "rejected"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        if (folder / manifests.FILE).exists():
            self.manifest = manifests.load(folder)
        else:
            self.manifest = Manifest()
        self._sweep()
        self.tasks = read_tasks(folder, self.manifest.tasks)
        self.sketches = read_sketches(folder, self.manifest.sketches)
        self._known = RecordIndex()
        for part in self.manifest.records:
            ids = pl.read_parquet(folder / part.file, columns=["record_id"])["record_id"]
            self._known.add(id_numbers(ids))
        self._sources = {source.source_id: source for source in self.manifest.sources}
        self._tables_changed = False
        self._rows: list[pl.DataFrame] = []
        self._rejected: list[pl.DataFrame] = []
        self._pending = 0
        self._dirty = False

    def _sweep(self) -> None:
        """Remove what a killed run left behind: files that no commit names."""
        named = self.manifest.files()
        for folder in ("records", "rejected", "."):
            for path in (self.folder / folder).glob("*"):
                name = path.relative_to(self.folder).as_posix()
                ours = path.suffix in (".parquet", ".tmp")
                if path.is_file() and ours and name not in named:
                    path.unlink()

    def _learn_task(self, task: Task) -> None:
        known = self.tasks.get(task.task_id)
        if known is None or (not known.extents and task.extents):
            self.tasks[task.task_id] = task
            self._tables_changed = True

    def _learn_sketch(self, sketch: Sketch) -> None:
        old = self.sketches.get(sketch.sketch_id)
        new = sketch if old is None else merge_sketches(old, sketch)
        if new is not old:
            self.sketches[sketch.sketch_id] = new
            self._tables_changed = True

    def source(self, source_id: str, path: str) -> Source:
        """The entry of a source, made where there is none."""
        found = self._sources.get(source_id)
        if found is None:
            found = Source(source_id, path, sha256="", format="", size=0)
            self._sources[source_id] = found
            self.manifest.sources.append(found)
        return found

    def add(self, source: Source, columns: Columns, rejects: Rejects, lines: int) -> None:
        """Take in what a stretch of a source's lines gave; its counts move with it."""
        for task in columns.tasks.values():
            self._learn_task(task)
        for sketch in columns.sketches.values():
            self._learn_sketch(sketch)
        rows, rejected = columns.frame(), rejects.frame()
        fresh = self._known.fresh(id_numbers(rows["record_id"]))
        kept = rows.filter(pl.Series(fresh))
        kept = kept.with_columns(
            order=pl.int_range(source.records, source.records + len(kept), dtype=pl.Int64)
        )
        numbers = id_numbers(kept["record_id"])
        self._known.add(numbers)
        total = int(numbers.sum(dtype=np.uint64))
        self.manifest.digest = (self.manifest.digest + total) % 2**64
        source.lines += lines
        source.records += len(kept)
        source.duplicates += len(rows) - len(kept)
        source.rejected += len(rejected)
        if len(kept):
            self._rows.append(kept.select(list(RECORDS)))
        if len(rejected):
            self._rejected.append(rejected.select(list(REJECTED)))
        self._pending += len(kept) + len(rejected)
        self._dirty = True

    @property
    def full(self) -> bool:
        """Whether enough rows wait for a commit."""
        return self._pending >= PART_ROWS

    def commit(self) -> None:
        """Write what waits and make it count; nothing happens when nothing waits."""
        if not self._dirty and not self._tables_changed:
            return
        self.manifest.generation += 1
        self.manifest.records.extend(self._write("records", self._rows))
        self.manifest.rejected.extend(self._write("rejected", self._rejected))
        if self._tables_changed:
            self.manifest.tasks = self._table("tasks", tasks_frame(self.tasks.values()))
            self.manifest.sketches = self._table("sketches", sketches_frame(self.sketches.values()))
        manifests.sync_folder(self.folder)
        manifests.save(self.folder, self.manifest)
        self._rows, self._rejected, self._pending = [], [], 0
        self._tables_changed = self._dirty = False
        self._sweep()

    def _write(self, folder: str, frames: list[pl.DataFrame]) -> list[Part]:
        if not frames:
            return []
        frame = pl.concat(frames)
        name = f"{folder}/part-{self.manifest.generation:06d}.parquet"
        self._durable(name, frame)
        return [Part(name, len(frame), frame["source_id"].unique(maintain_order=True).to_list())]

    def _table(self, name: str, frame: pl.DataFrame) -> str:
        file = f"{name}-{self.manifest.generation:06d}.parquet"
        self._durable(file, frame)
        return file

    def _durable(self, name: str, frame: pl.DataFrame) -> None:
        path = self.folder / name
        try:
            with path.open("wb") as stream:
                frame.write_parquet(stream, compression="zstd", compression_level=COMPRESSION_LEVEL)
                stream.flush()
                os.fsync(stream.fileno())
        except OSError as error:
            with contextlib.suppress(OSError):
                path.unlink()
            raise DatasetError(
                f"cannot be written: {error.strerror or error}",
                where=path,
                cure="what was committed before is kept; make room and ingest again",
            ) from None
        manifests.sync_folder(path.parent)

    def withdraw_unfinished(self, source: Source) -> None:
        """Take back the rejection of a last line that may have been finished since."""
        if source.unfinished:
            self._drop("rejected", source, pl.col("line") == source.lines)
            source.lines -= 1
            source.rejected -= 1
            source.unfinished = 0
            self._dirty = True

    def forget(self, source: Source) -> None:
        """Take a source's rows out: it changed and is read anew. Committed with what follows."""
        if not source.lines:
            return
        self.commit()
        for attribute in ("records", "rejected"):
            self._drop(attribute, source, pl.lit(True))
        source.lines = source.records = source.duplicates = source.rejected = 0
        source.consumed = source.seen = source.unfinished = 0
        source.consumed_sha256, source.finished, source.open_end = "", False, False
        self._dirty = True

    def _drop(self, attribute: str, source: Source, which: pl.Expr) -> None:
        parts: list[Part] = getattr(self.manifest, attribute)
        kept: list[Part] = []
        gone_rows = which & (pl.col("source_id") == source.source_id)
        for number, part in enumerate(parts):
            if source.source_id not in part.sources:
                kept.append(part)
                continue
            frame = pl.read_parquet(self.folder / part.file)
            rest = frame.filter(~gone_rows)
            if attribute == "records":
                gone = id_numbers(frame.filter(gone_rows)["record_id"])
                self._known.remove(gone)
                total = int(gone.sum(dtype=np.uint64))
                self.manifest.digest = (self.manifest.digest - total) % 2**64
            if len(rest) == len(frame):
                kept.append(part)
            elif len(rest):
                name = f"{attribute}/part-{self.manifest.generation + 1:06d}-{number}.parquet"
                self._durable(name, rest)
                kept.append(Part(name, len(rest), rest["source_id"].unique().to_list()))
        setattr(self.manifest, attribute, kept)


class RecordIndex:
    """The ids of all records, as sorted runs of 64-bit numbers: 8 bytes a record."""

    def __init__(self) -> None:
        self._runs: list[NDArray[np.uint64]] = []

    def fresh(self, ids: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Mark ids that are neither known nor earlier in the same array."""
        mask = np.zeros(len(ids), dtype=np.bool_)
        mask[np.unique(ids, return_index=True)[1]] = True
        for run in self._runs:
            place = np.searchsorted(run, ids)
            place[place == len(run)] = 0
            mask &= run[place] != ids
        return mask

    def add(self, ids: NDArray[np.uint64]) -> None:
        """Learn ids; runs are merged so that few remain."""
        if not len(ids):
            return
        run = np.sort(ids)
        while self._runs and len(self._runs[-1]) <= 2 * len(run):
            run = np.sort(np.concatenate([self._runs.pop(), run]), kind="stable")
        self._runs.append(run)

    def remove(self, ids: NDArray[np.uint64]) -> None:
        """Forget ids."""
        runs = [run[~np.isin(run, ids)] for run in self._runs]
        self._runs = [run for run in runs if len(run)]


def id_numbers(ids: pl.Series) -> NDArray[np.uint64]:
    """Record ids (16 hexadecimal digits) as 64-bit numbers."""
    numbers = np.frombuffer(bytes.fromhex("".join(ids.to_list())), dtype=">u8")
    return numbers.astype(np.uint64)


@contextmanager
def locked(folder: Path, waiting: Callable[[], None] | None = None) -> Iterator[None]:
    """Hold a dataset's write lock; a second writer waits for the first."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        import fcntl
    except ImportError:  # no advisory locks on this system: one writer is the user's care
        yield
        return
    with (folder / ".lock").open("wb") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if waiting is not None:
                waiting()
            fcntl.flock(stream, fcntl.LOCK_EX)
        yield
