"""Writing a dataset: rows are gathered into parts, and commits make parts count."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from toolkit.datasets import manifest as manifests
from toolkit.datasets.manifest import Manifest, Part, Source
from toolkit.datasets.parts import RECORDS, REJECTED, PartWriter, write_frame
from toolkit.datasets.record_index import RecordIndex
from toolkit.datasets.tables import read_sketches, read_tasks, sketches_frame, tasks_frame
from toolkit.logs.block_reader import BlockResult
from toolkit.logs.columns import numeric, repeated
from toolkit.logs.identity import merge_sketches, merge_tasks
from toolkit.logs.ids import id_numbers
from toolkit.records import Sketch, Task

PART_ROWS = 500_000
"""Rows a part gathers before it is committed."""

SMALL_ROWS, MANY_SMALL = 25_000, 16
"""So many parts below so many rows, side by side, are merged into one."""

Kind = Literal["records", "rejected"]
_SCHEMAS: dict[str, Any] = {"records": RECORDS, "rejected": REJECTED}


class Store:
    """A dataset opened for writing by one process (see ``locked``)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in _SCHEMAS:
            (folder / name).mkdir(parents=True, exist_ok=True)
        if (folder / manifests.FILE).exists():
            self.manifest = manifests.load(folder)
        else:
            self.manifest = Manifest()
        self._sweep()
        self.tasks = read_tasks(folder, self.manifest.tasks)
        self.sketches = read_sketches(folder, self.manifest.sketches)
        self._sources = {source.source_id: source for source in self.manifest.sources}
        self._known = RecordIndex()
        for part in self.manifest.records:
            for ids in _column(folder / part.file, "record_id"):
                self._known.add(id_numbers(ids))
        self._writers: dict[Kind, PartWriter] = {}
        self._tables_changed = self._dirty = False

    def _sweep(self) -> None:
        """Remove what a killed run left behind: files that no commit names."""
        named = self.manifest.files()
        for folder in (*_SCHEMAS, "."):
            for path in (self.folder / folder).glob("*"):
                name = path.relative_to(self.folder).as_posix()
                ours = path.suffix in (".parquet", ".tmp")
                if path.is_file() and ours and name not in named:
                    path.unlink()

    def source(self, source_id: str, path: str) -> Source:
        """The entry of a source, made where there is none."""
        found = self._sources.get(source_id)
        if found is None:
            found = Source(source_id, path, sha256="", format="", size=0)
            self._sources[source_id] = found
            self.manifest.sources.append(found)
            self._dirty = True
        return found

    def _learn_task(self, task: Task) -> None:
        known = self.tasks.get(task.task_id)
        new = task if known is None else merge_tasks(known, task)
        if new is not known:
            self.tasks[task.task_id] = new
            self._tables_changed = True

    def _learn_sketch(self, sketch: Sketch) -> None:
        old = self.sketches.get(sketch.sketch_id)
        new = sketch if old is None else merge_sketches(old, sketch)
        if new is not old:
            self.sketches[sketch.sketch_id] = new
            self._tables_changed = True

    def add(self, source: Source, result: BlockResult) -> None:
        """Take in what a stretch of a source's lines gave; its counts move with it."""
        for task in result.tasks:
            self._learn_task(task)
        for sketch in result.sketches:
            self._learn_sketch(sketch)
        rows = result.rows
        numbers = id_numbers(rows["record_id"])
        fresh = self._known.fresh(numbers)
        if not fresh.all():
            rows, numbers = rows.filter(pa.array(fresh)), numbers[fresh]
        self._known.add(numbers)
        self._count(numbers, 1)
        if len(rows):
            self._writer("records").add(_placed(rows, source), source.source_id)
        if result.rejected:
            self._writer("rejected").add(_rejected(result, source), source.source_id)
        source.lines += result.lines
        source.records += len(rows)
        source.duplicates += len(fresh) - len(rows)
        source.rejected += len(result.rejected)
        self._dirty = True

    def _count(self, numbers: NDArray[np.uint64], sign: int) -> None:
        total = int(numbers.sum(dtype=np.uint64))
        self.manifest.digest = (self.manifest.digest + sign * total) % 2**64

    def _writer(self, kind: Kind) -> PartWriter:
        if kind not in self._writers:
            name = f"{kind}/part-{self.manifest.generation + 1:06d}.parquet"
            self._writers[kind] = PartWriter(self.folder, name, _SCHEMAS[kind])
        return self._writers[kind]

    @property
    def full(self) -> bool:
        """Whether enough rows wait for a commit."""
        return sum(writer.rows for writer in self._writers.values()) >= PART_ROWS

    def changed(self) -> None:
        """Note that the manifest was changed from outside, so that it is committed."""
        self._dirty = True

    def commit(self) -> None:
        """Finish the open parts and make them count; nothing happens when nothing changed."""
        if not self._dirty and not self._tables_changed:
            return
        manifest = self.manifest
        for kind, writer in self._writers.items():
            parts: list[Part] = getattr(manifest, kind)
            parts.append(writer.finish())
        self._writers = {}
        manifest.generation += 1
        if self._tables_changed:
            manifest.tasks = f"tasks-{manifest.generation:06d}.parquet"
            write_frame(self.folder, manifest.tasks, tasks_frame(self.tasks.values()))
            manifest.sketches = f"sketches-{manifest.generation:06d}.parquet"
            write_frame(self.folder, manifest.sketches, sketches_frame(self.sketches.values()))
        manifests.save(self.folder, manifest)
        self._tables_changed = self._dirty = False

    def close(self) -> None:
        """Commit, merge small parts, and remove files that no longer belong."""
        self.commit()
        for kind in ("records", "rejected"):
            self._merge_small(kind)
        self.commit()
        self._sweep()

    def _merge_small(self, kind: Kind) -> None:
        """Merge runs of small neighbouring parts; rows keep their order."""
        parts: list[Part] = getattr(self.manifest, kind)
        kept: list[Part] = []
        run: list[Part] = []
        for part in [*parts, None]:
            if part is not None and part.rows < SMALL_ROWS:
                run.append(part)
                continue
            kept.extend([self._merged(kind, run)] if len(run) >= MANY_SMALL else run)
            run = []
            if part is not None:
                kept.append(part)
        if len(kept) < len(parts):
            setattr(self.manifest, kind, kept)
            self._dirty = True

    def _merged(self, kind: Kind, run: list[Part]) -> Part:
        name = f"{kind}/merged-{self.manifest.generation + 1:06d}-{len(run)}.parquet"
        writer = PartWriter(self.folder, name, _SCHEMAS[kind])
        sources: dict[str, None] = {}
        for part in run:
            writer.add(pq.read_table(self.folder / part.file), part.sources[0])
            sources.update(dict.fromkeys(part.sources))
        done = writer.finish()
        return Part(done.file, done.rows, list(sources))

    def withdraw_unfinished(self, source: Source) -> None:
        """Take back the rejection of a last line that may have been finished since."""
        if source.unfinished:
            self._drop("rejected", source, source.lines)
            source.lines -= 1
            source.rejected -= 1
            source.unfinished = 0
            self._dirty = True

    def forget(self, source: Source) -> None:
        """Take a source's rows out: it changed and is read anew. Committed with what follows."""
        if not source.lines:
            return
        self.commit()
        self._drop("records", source)
        self._drop("rejected", source)
        source.lines = source.records = source.duplicates = source.rejected = 0
        source.consumed = source.seen = source.unfinished = 0
        source.consumed_sha256, source.finished, source.open_end = "", False, False
        self._dirty = True

    def _drop(self, kind: Kind, source: Source, line: int | None = None) -> None:
        """Rewrite the parts that hold a source's rows (or one line's) without them."""
        parts: list[Part] = getattr(self.manifest, kind)
        kept: list[Part] = []
        for number, part in enumerate(parts):
            if source.source_id not in part.sources:
                kept.append(part)
                continue
            name = f"{kind}/part-{self.manifest.generation + 1:06d}-{number}.parquet"
            writer = PartWriter(self.folder, name, _SCHEMAS[kind])
            for table in _tables(self.folder / part.file):
                gone = pc.equal(table["source_id"], source.source_id)
                if line is not None:
                    gone = pc.and_(gone, pc.equal(table["line"], line))
                if kind == "records":
                    numbers = id_numbers(table["record_id"].filter(gone))
                    self._known.remove(numbers)
                    self._count(numbers, -1)
                rest = table.filter(pc.invert(gone))
                if len(rest):
                    for source_id in pc.unique(rest["source_id"]).to_pylist():
                        writer.add(rest.filter(pc.equal(rest["source_id"], source_id)), source_id)
            if writer.rows:
                kept.append(writer.finish())
        setattr(self.manifest, kind, kept)


def _placed(rows: Any, source: Source) -> Any:
    """Rows of a source with their place in the dataset."""
    count = len(rows)
    order = np.arange(source.records, source.records + count, dtype=np.int64)
    rows = rows.append_column("source_id", repeated(source.source_id, count))
    rows = rows.append_column("order", numeric(pa.int64(), order))
    return rows.select(RECORDS.names)


def _rejected(result: BlockResult, source: Source) -> Any:
    lines, offsets, reasons, contents = zip(*result.rejected, strict=True)
    count = len(lines)
    columns = [
        pa.repeat(pa.scalar(source.source_id), count),
        pa.repeat(pa.scalar(source.path), count),
        pa.array(lines, pa.int64()),
        pa.array(offsets, pa.int64()),
        pa.array(reasons, pa.string()),
        pa.array(contents, pa.binary()),
    ]
    return pa.table(columns, schema=REJECTED)


def _tables(path: Path) -> Iterator[Any]:
    """The row groups of a part."""
    with pq.ParquetFile(path) as file:
        for group in range(file.num_row_groups):
            yield file.read_row_group(group)


def _column(path: Path, name: str) -> Iterator[Any]:
    with pq.ParquetFile(path) as file:
        for group in range(file.num_row_groups):
            yield file.read_row_group(group, columns=[name])[name]


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
