"""Writing a dataset: rows are collected into parts, and a commit makes parts valid."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from toolkit.datasets import manifest as manifests
from toolkit.datasets.manifest import KINDS, Kind, Manifest, Part, Source
from toolkit.datasets.read.integrity import missing, verify, verify_on_opening
from toolkit.datasets.tables import read_sketches, read_tasks, sketches_frame, tasks_frame
from toolkit.datasets.write import parts
from toolkit.datasets.write.open_parts import OpenParts
from toolkit.datasets.write.parts import LINE, place
from toolkit.datasets.write.record_index import RecordIndex
from toolkit.errors import DatasetError
from toolkit.locks import writing
from toolkit.logs.rows.columns import flags, id_numbers
from toolkit.logs.rows.identity import merge_sketches, merge_tasks
from toolkit.logs.rows.results import BlockResult

SMALL_ROWS, MANY_SMALL = 25_000, 16
"""``MANY_SMALL`` or more neighbouring parts of fewer than ``SMALL_ROWS`` rows become one part."""

T = TypeVar("T")


@contextmanager
def writing_store(folder: Path) -> Iterator[Store]:
    """Open a dataset for writing by this process only; a second writer waits for the first.

    At the end everything is committed. After an error everything uncommitted is removed. Raises
    ``DatasetError`` if the folder holds other files, is damaged, or cannot be written.
    """
    with ExitStack() as stack:
        try:
            manifests.refuse_foreign(folder)
            stack.enter_context(writing(folder, wait=True))
        except OSError as error:
            raise manifests.cannot_write(folder, error) from None
        store = Store(folder)
        try:
            yield store
            store.close()
        except BaseException:
            store.abandon()
            raise


class Store:
    """A dataset opened for writing (see ``writing_store``).

    ``changed``: the manifest differs from the last committed one.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.manifest = _committed(folder)
        manifest = self.manifest
        try:
            verify_on_opening(folder, manifest.parts())
            for name in KINDS:
                (folder / name).mkdir(exist_ok=True)
            self._sweep()
        except FileNotFoundError as error:
            raise missing(folder, error) from None
        except OSError as error:
            raise manifests.cannot_write(folder, error) from None
        tasks, sketches = manifest.tasks, manifest.sketches
        self.tasks = read_tasks(pl.scan_parquet(folder / tasks.file)) if tasks else {}
        self.sketches = read_sketches(pl.scan_parquet(folder / sketches.file)) if sketches else {}
        self._sources = {source.source_id: source for source in manifest.sources}
        self._furthest = max((place(s) for s in manifest.sources if s.records), default=([], ""))
        self._known = RecordIndex()
        for ids in self._record_ids("records"):
            self._known.add(ids)
        self._open = OpenParts(folder)
        self._tables_changed = self.changed = False

    def _record_ids(self, kind: Kind) -> Iterator[NDArray[np.uint64]]:
        for part in self.manifest.of(kind):
            for group in parts.row_groups(self.folder / part.file, ["record_id"]):
                yield id_numbers(group["record_id"])

    def _sweep(self) -> None:
        """Remove leftovers of a killed run: the toolkit's files that no commit names."""
        named = {part.file for part in self.manifest.parts()}
        for folder in (*KINDS, "."):
            for path in (self.folder / folder).glob("*"):
                name = path.relative_to(self.folder).as_posix()
                if manifests.is_ours(name) and name not in named and path.is_file():
                    path.unlink()

    def source(self, source_id: str, path: str) -> Source:
        """Return the entry of a source; create it if needed."""
        found = self._sources.get(source_id)
        if found is None:
            found = Source(source_id, path, sha256="", format="", size=0)
            self._sources[source_id] = found
            self.manifest.sources.append(found)
            self.changed = True
        return found

    def _learn(
        self, known: dict[str, T], told: dict[str, T], column: Any, merge: Callable[[T, T], T]
    ) -> None:
        # In the order of the rows: the order of a reader depends on what it has read before.
        places = {key: place for place, key in enumerate(pc.unique(column).to_pylist())}
        for key in sorted(told, key=lambda key: places.get(key, len(places))):
            old = known.get(key)
            new = told[key] if old is None else merge(old, told[key])
            if new is not old:
                known[key] = new
                self._tables_changed = True

    def add(self, source: Source, result: BlockResult) -> None:
        """Add the result of some lines of a source, and update the source's counts."""
        tasks = {task.task_id: task for task in result.tasks}
        self._learn(self.tasks, tasks, result.rows["task_id"], merge_tasks)
        sketches = {sketch.sketch_id: sketch for sketch in result.sketches}
        self._learn(self.sketches, sketches, result.rows["sketch_id"], merge_sketches)
        numbers = id_numbers(result.rows["record_id"])
        fresh = self._known.fresh(numbers)
        rows, repeats = parts.placed(result.rows, source), None
        if not fresh.all():
            rows, repeats = rows.filter(flags(fresh)), rows.filter(flags(~fresh))
            numbers = numbers[fresh]
        self._learn_ids(numbers)
        tables: dict[Kind, Any] = {"records": rows}
        if len(rows):
            self._furthest = max(self._furthest, place(source))
        if repeats is not None:
            tables["duplicates"] = repeats
            source.duplicates += len(repeats)
            # The record may belong to a source that comes after this one.
            self.manifest.settled &= place(source) >= self._furthest
        if result.rejected:
            tables["rejected"] = parts.rejected(result, source)
        self._open.add(self.manifest, source.source_id, tables)
        source.lines += result.lines
        source.records += len(rows)
        source.rejected += len(result.rejected)
        self.changed = True

    def holds(self, record_ids: Any) -> bool:
        """Whether the dataset has all of these records."""
        return not self._known.fresh(id_numbers(record_ids)).any()

    def _learn_ids(self, numbers: NDArray[np.uint64]) -> None:
        self._known.add(numbers)
        self.manifest.digest = (self.manifest.digest + int(numbers.sum(dtype=np.uint64))) % 2**64

    def commit_full(self) -> None:
        """Commit if a part is full; later lines are written again with the next part."""
        if self._open.full and (short := self.commit()):
            self._open.reopen(self.manifest, short)
            self.changed = True

    def commit(self) -> dict[Kind, Part]:
        """Finish the open parts, commit and return them; do nothing if nothing changed."""
        if not self.changed and not self._tables_changed:
            return {}
        manifest = self.manifest
        finished = self._open.finish(manifest)
        manifest.generation += 1
        if self._tables_changed:
            number = f"{manifest.generation:06d}.parquet"
            tasks = tasks_frame(self.tasks.values())
            sketches = sketches_frame(self.sketches.values())
            manifest.tasks = parts.write_frame(self.folder, f"tasks-{number}", tasks)
            manifest.sketches = parts.write_frame(self.folder, f"sketches-{number}", sketches)
        manifests.save(self.folder, manifest)
        self._tables_changed = self.changed = False
        return finished

    def close(self) -> None:
        """Commit, settle, merge small parts, and remove files that no longer belong."""
        self.commit()
        self._settle()
        for kind in KINDS:
            self._merge_small(kind)
        self.commit()
        self._sweep()

    def abandon(self) -> None:
        """Remove everything that was written but not committed."""
        self._open.discard()
        with suppress(OSError, DatasetError):
            self.manifest = _committed(self.folder)
            self._sweep()

    def _settle(self) -> None:
        """Assign records to their sources (``parts``); remove tasks and sketches without lines."""
        if self.manifest.settled:
            return
        self._exchange()
        self.commit()
        for name, known in (("task_id", self.tasks), ("sketch_id", self.sketches)):
            for gone in known.keys() - parts.in_use(self.folder, self.manifest, name):
                del known[gone]
                self.manifest.space_sizes.pop(gone, None)
                self._tables_changed = True
        self.manifest.settled = self.changed = True

    def _exchange(self) -> None:
        if not self.manifest.duplicates:
            return
        promoted, demoted = parts.exchange(self.folder, self.manifest)
        fresh = promoted.join(demoted, on="record_id", how="anti")["record_id"]
        self._learn_ids(id_numbers(fresh.to_arrow().cast(pa.string())))
        self._move("records", "duplicates", demoted)
        self._move("duplicates", "records", promoted)

    def _move(self, origin: Kind, target: Kind, lines: pl.DataFrame) -> None:
        """Move lines from parts of one kind to parts of another kind."""
        if lines.is_empty():
            return
        marks = lines.select(*LINE, found=pl.lit(True))

        def mine(table: Any) -> Any:
            own = pl.DataFrame(table.select(LINE))
            found = own.join(marks, on=LINE, how="left", maintain_order="left")["found"]
            return flags(found.is_not_null().to_numpy())

        for table in self._without(origin, set(lines["source_id"]), mine):
            writer = self._open.writer(self.manifest, target)
            writer.add(table, *parts.sources(table))
        for source_id, moved in lines["source_id"].value_counts().iter_rows():
            source = self._sources[source_id]
            setattr(source, origin, getattr(source, origin) - moved)
            setattr(source, target, getattr(source, target) + moved)

    def _merge_small(self, kind: Kind) -> None:
        """Merge small neighbouring parts; rows keep their order."""
        old, kept = self.manifest.of(kind), []
        for small, run in groupby(old, key=lambda part: part.rows < SMALL_ROWS):
            found = list(run)
            kept += [self._merged(kind, found)] if small and len(found) >= MANY_SMALL else found
        if len(kept) < len(old):
            setattr(self.manifest, kind, kept)
            self.changed = True

    def _merged(self, kind: Kind, run: list[Part]) -> Part:
        writer = self._open.new(self.manifest, kind, "merged")
        for part in run:
            writer.add(pq.read_table(verify(self.folder, part)), *part.sources)
        return writer.finish()

    def withdraw_unfinished(self, source: Source) -> None:
        """Remove the rejection of an incomplete last line: it may be complete now."""
        if source.unfinished:
            self._drop("rejected", source, source.lines)
            source.lines -= 1
            source.rejected -= 1
            source.unfinished = 0
            self.changed = True

    def forget(self, source: Source) -> None:
        """Remove a source's rows before it is read again; the next commit makes this valid.

        Records that other sources hold, too, stay and become theirs.
        """
        if not source.lines:
            return
        self.commit()
        gone = self._drop("records", source)
        self._known.remove(gone)
        self.manifest.digest = (self.manifest.digest - int(gone.sum(dtype=np.uint64))) % 2**64
        self._drop("duplicates", source)
        self._drop("rejected", source)
        source.lines = source.records = source.duplicates = source.rejected = 0
        source.consumed = source.seen = source.unfinished = 0
        source.consumed_sha256, source.finished, source.open_end = "", False, False
        self.manifest.settled, self.changed = False, True
        if any(np.isin(ids, gone).any() for ids in self._record_ids("duplicates")):
            self._exchange()

    def _drop(self, kind: Kind, source: Source, line: int | None = None) -> NDArray[np.uint64]:
        """Remove a source's rows (or one line); for records, return their record ids."""

        def mine(table: Any) -> Any:
            own = pc.equal(table["source_id"], source.source_id)
            return own if line is None else pc.and_(own, pc.equal(table["line"], line))

        gone = [np.zeros(0, dtype=np.uint64)]
        for table in self._without(kind, {source.source_id}, mine):
            if kind == "records":
                gone.append(id_numbers(table["record_id"]))
        return np.concatenate(gone)

    def _without(
        self, kind: Kind, sources: Collection[str], going: Callable[[Any], Any]
    ) -> Iterator[Any]:
        """Rewrite the parts of some sources without the rows in ``going``; yield these rows."""
        kept: list[Part] = []
        for part in self.manifest.of(kind):
            if not set(sources) & set(part.sources):
                kept.append(part)
                continue
            writer = self._open.new(self.manifest, kind)
            for table in parts.row_groups(verify(self.folder, part)):
                gone = going(table)
                yield table.filter(gone)
                rest = table.filter(pc.invert(gone))
                if len(rest):
                    writer.add(rest, *parts.sources(rest))
            if writer.rows == part.rows:
                writer.discard()
                kept.append(part)
            elif writer.rows:
                kept.append(writer.finish())
        setattr(self.manifest, kind, kept)
        self.changed = True


def _committed(folder: Path) -> Manifest:
    """Return the last committed manifest, or an empty one for a new folder."""
    return manifests.load(folder) if (folder / manifests.FILE).exists() else Manifest()
