"""Merge datasets into one, as if one ingest had read all of their logs.

Each source is added with its own lines, in the order in which folders are walked. A record that
several datasets hold becomes a duplicate, and the counts of all sources are as after an ingest.
Only the rows of one source, or of several small ones, are in memory at a time.
"""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from toolkit.datasets import manifest as manifests
from toolkit.datasets.manifest import Kind, Manifest, Source
from toolkit.datasets.read.integrity import missing, verify, verify_on_opening
from toolkit.datasets.read.open import open_dataset
from toolkit.datasets.tables import batches
from toolkit.datasets.urls import folder_at, is_remote, local_copy, store_errors, upload
from toolkit.datasets.write import parts
from toolkit.datasets.write.report import COUNTS, IngestReport, SourceReport
from toolkit.datasets.write.store import Store, writing_store
from toolkit.errors import DatasetError
from toolkit.logs.rows.columns import nullable_strings, numbers, numeric
from toolkit.logs.rows.results import BlockResult, Rejected
from toolkit.progress import SILENT, Progress
from toolkit.records import Sketch, Task, content_id

PIECE_ROWS = 100_000
"""Number of lines that are added at a time."""


@dataclass(eq=False)
class _Input:
    """One of the datasets to merge."""

    folder: Path
    manifest: Manifest
    tasks: dict[str, Task]
    sketches: dict[str, Sketch]

    @classmethod
    def open(cls, folder: Path) -> _Input:
        found = open_dataset(folder)
        manifest = found.manifest
        verify_on_opening(folder, manifest.parts())
        return cls(folder, manifest, found.tasks(), found.sketches())

    def rows(self, kind: Kind, source_ids: Sequence[str]) -> Any:
        """Rows of some sources, in stored order."""
        wanted = nullable_strings(source_ids)
        schema = parts.REJECTED if kind == "rejected" else parts.RECORDS
        found = [schema.empty_table()]
        for part in self.manifest.of(kind):
            if set(source_ids) & set(part.sources):
                for group in parts.row_groups(verify(self.folder, part, content=False)):
                    found.append(group.filter(pc.is_in(group["source_id"], value_set=wanted)))
        return pa.concat_tables(found)


def merge(
    datasets: Sequence[str | Path], out: str | Path, *, progress: Progress = SILENT
) -> IngestReport:
    """Merge datasets into the dataset in ``out``; create it if needed.

    Each dataset may be on an object store (``urls.folder_at``); ``out`` may be too, if no dataset
    is there yet. A log that several datasets have read is added once. Two logs with the same path
    but different bytes (of two machines) are both added.

    Raises
    ------
    DatasetError
        When a folder holds no dataset, a dataset is damaged or changes during the merge, or
        ``out`` is one of the datasets or cannot be written.
    """
    begun = time.perf_counter()
    folder = folder_at(out)
    if is_remote(folder):
        return _merged_there(datasets, folder, progress)
    told: list[SourceReport] = []
    with ExitStack() as stack:
        given = [folder_at(each) for each in datasets]
        for each in filter(is_remote, given):
            manifests.load(each)  # fails for a missing dataset before anything is downloaded
        folders = [stack.enter_context(local_copy(each)) for each in given]
        if folder.resolve() in {each.resolve() for each in folders}:
            raise DatasetError(
                "is one of the datasets to merge, so it cannot be the result",
                where=folder,
                cure="choose another folder with --out",
            )
        inputs = [_Input.open(each) for each in folders]
        entries = sorted(
            ((each, source) for each in inputs for source in each.manifest.sources),
            # The part of a source that a killed ingest left comes after the finished one.
            key=lambda entry: (parts.place(entry[1]), not entry[1].sha256),
        )
        store = stack.enter_context(writing_store(folder))
        step = stack.enter_context(progress.step("merging", float(len(entries))))
        # Several small sources are read together, or a large one.
        for batch in batches(entries, lambda entry: entry[1].lines, PIECE_ROWS):
            for entry in _taken(store, batch):
                told.append(entry)
                step.advance(note=Path(entry.path).name)
        # The result is a dataset even if the shards have no logs.
        store.changed |= not store.manifest.generation
    return IngestReport.of(told, store, begun)


def _merged_there(datasets: Sequence[str | Path], out: Path, progress: Progress) -> IngestReport:
    """Merge into a local folder, then copy it to a URL, the manifest last."""
    try:
        with store_errors(out):
            taken = (out / manifests.FILE).exists()
        if taken:
            raise DatasetError(
                "there is a dataset already", where=out, cure="choose another URL with --out"
            )
        with tempfile.TemporaryDirectory(prefix="toolkit-") as made:
            report = merge(datasets, Path(made) / "merged", progress=progress)
            upload(Path(made) / "merged", out, manifests.FILE)
    except OSError as error:
        raise manifests.cannot_write(out, error, "run the same command again") from None
    return replace(report, dataset=str(out))


_Entry = tuple[_Input, Source]

_READ_TO = (
    *("sha256", "size", "context", "consumed", "consumed_sha256"),
    *("finished", "unfinished", "open_end", "seen"),
)
"""Fields of a source's entry that say how far it was read, so that an ingest can continue there."""


def _taken(store: Store, batch: Sequence[_Entry]) -> Iterator[SourceReport]:
    own: dict[_Input, list[str]] = {}
    for each, source in batch:
        own.setdefault(each, []).append(source.source_id)
    lines, refused = {}, {}
    for each, ids in own.items():
        try:
            read = pa.concat_tables([each.rows("records", ids), each.rows("duplicates", ids)])
            lines[each] = _by_source(read, ids, "order")
            refused[each] = _by_source(each.rows("rejected", ids), ids, "line")
        except FileNotFoundError as error:
            raise missing(each.folder, error) from None
    for each, source in batch:
        key = source.source_id
        yield _add(store, each, source, lines[each][key], refused[each][key])


def _by_source(table: Any, source_ids: Sequence[str], column: str) -> dict[str, Any]:
    """Rows by source, each sorted by a column."""
    number = pc.index_in(table["source_id"], value_set=nullable_strings(source_ids))
    numbered = numbers(number)
    order = np.lexsort((numbers(table[column]), numbered))
    if not np.array_equal(order, np.arange(len(order))):
        table = table.take(numeric(pa.int64(), order))
    ends = np.searchsorted(numbered[order], np.arange(len(source_ids) + 1))
    return {
        source_id: table.slice(ends[n], ends[n + 1] - ends[n])
        for n, source_id in enumerate(source_ids)
    }


def _add(store: Store, each: _Input, known: Source, rows: Any, refused: Any) -> SourceReport:
    """Add a source with its lines to the store, unless the store has it."""
    source = store.source(known.source_id, known.path)
    told = SourceReport(path=known.path, format=known.format, outcome="unchanged", message=None)
    if source.sha256 and source.sha256 != known.sha256:
        if not known.sha256 and store.holds(rows["record_id"]):
            return told  # the beginning of the same file, whose ingest was killed
        # A file of another machine with the same path.
        source_id = content_id("source", known.source_id, known.sha256)
        source = store.source(source_id, known.path)
    if source.sha256:
        return told
    # A killed merge may have added a part of it.
    store.forget(source)
    source.format, source.machine, source.labels = known.format, known.machine, known.labels
    waiting = rejected = [
        Rejected(*row.values()) for row in refused.drop_columns(["source_id", "path"]).to_pylist()
    ]
    rows = rows.drop_columns(["source_id", "order"])
    for begin in range(0, max(len(rows), 1), PIECE_ROWS):
        piece = rows.slice(begin, PIECE_ROWS)
        tasks = [each.tasks[key] for key in pc.unique(piece["task_id"]).to_pylist()]
        sketches = [each.sketches[key] for key in pc.unique(piece["sketch_id"]).to_pylist()]
        told_rejected = waiting
        if begin + PIECE_ROWS < len(rows):
            # Only the rejected lines up to the last of these rows: parts end at the same line
            # (``open_parts``).
            behind = piece["line"][-1].as_py()
            told_rejected = [line for line in waiting if line.line <= behind]
        waiting = waiting[len(told_rejected) :]
        store.add(
            source,
            BlockResult(
                rows=piece,
                lines=len(piece) + len(told_rejected),
                counted=0,
                rejected=told_rejected,
                tasks=tasks,
                sketches=sketches,
            ),
        )
        sizes = each.manifest.space_sizes
        store.manifest.space_sizes.update(
            (task.task_id, sizes[task.task_id]) for task in tasks if task.task_id in sizes
        )
        store.commit_full()
    # Only now the whole source is stored.
    for name in _READ_TO:
        setattr(source, name, getattr(known, name))
    store.changed = True
    counts = {name: getattr(source, name) for name in COUNTS}
    reasons = Counter(line.reason for line in rejected)
    return replace(told, outcome="read", **counts, reasons=dict(sorted(reasons.items())))
