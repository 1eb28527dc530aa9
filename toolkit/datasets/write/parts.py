"""Parquet parts, written row group by row group; which source owns a record.

If several lines hold the same record, it belongs to the first line of the first source by path. The
other lines are its duplicates. Duplicates are stored separately, so that the record stays when its
source is rewritten. The content of a dataset then depends only on the content of its sources, not
on the order in which they were added or changed.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from toolkit import schema
from toolkit.atomic import sync_folder
from toolkit.datasets.manifest import Manifest, Part, Source, cannot_write
from toolkit.datasets.read.integrity import file_sha256
from toolkit.logs.rows.columns import Texts, nullable_strings, numbers, numeric, repeated
from toolkit.logs.rows.results import BlockResult

ROW_GROUP_BYTES = 24 * 2**20
"""A row group ends with the row that brings it to this size in memory, in whatever blocks rows
arrive."""

_ARROW = {
    pl.String(): pa.string(),
    pl.Binary(): pa.binary(),
    pl.Int32(): pa.int32(),
    pl.Int64(): pa.int64(),
    pl.Float64(): pa.float64(),
    pl.List(pl.Int64()): pa.list_(pa.int64()),
    pl.List(pl.Float64()): pa.list_(pa.float64()),
}
RECORDS = pa.schema([(name, _ARROW[kind]) for name, kind in schema.RECORDS.items()])
REJECTED = pa.schema([(name, _ARROW[kind]) for name, kind in schema.REJECTED.items()])

_IDS = ("task_id", "sketch_id", "source_id")
_WORDS = ("format", "format_version", "tvm_version", "state", "reason", "path")
_REPEATING = (*_IDS, *_WORDS, "decisions.list.element")
"""Columns with few different values, by their paths in the file."""


class PartWriter:
    """Writes one part. No manifest names the file before ``finish``."""

    def __init__(self, folder: Path, name: str, schema: Any) -> None:
        self._path, self._name, self._schema = folder / name, name, schema
        self._waiting: list[Any] = []
        self._bytes = 0
        self._sources: dict[str, None] = {}
        self.rows = 0
        self._stream: Any = None
        self._writer: Any = None

    def add(self, table: Any, *source_ids: str) -> None:
        """Append rows of these sources."""
        self._sources.update(dict.fromkeys(source_ids))
        self.rows += len(table)
        self._waiting.append(table)
        self._bytes += int(_row_bytes(table).sum())
        while self._bytes >= ROW_GROUP_BYTES:
            # The row group ends within the last table: the tables before it were too small.
            last = self._waiting.pop()
            sizes = np.cumsum(_row_bytes(last))
            before = self._bytes - int(sizes[-1])
            end = int(np.searchsorted(sizes, ROW_GROUP_BYTES - before)) + 1
            self._waiting.append(last.slice(0, end))
            self._write()
            self._waiting = [last.slice(end)] if end < len(last) else []
            self._bytes = int(sizes[-1] - sizes[end - 1])

    def _write(self) -> None:
        # Pages end where chunks end. One chunk makes the file independent of how rows arrived.
        table = pa.concat_tables(self._waiting).combine_chunks()
        self._waiting, self._bytes = [], 0
        with self._guard():
            if self._writer is None:
                self._stream = self._path.open("wb")
                self._writer = pq.ParquetWriter(
                    self._stream,
                    self._schema,
                    compression="zstd",
                    compression_level=1,
                    use_dictionary=[n for n in _REPEATING if n.split(".")[0] in self._schema.names],
                )
            self._writer.write_table(table, row_group_size=max(len(table), 1))

    def finish(self) -> Part:
        """Sync the part to disk and return its entry for the manifest."""
        if self._waiting:
            self._write()
        with self._guard():
            self._writer.close()
            self._stream.flush()
            os.fsync(self._stream.fileno())
            self._stream.close()
            sync_folder(self._path.parent)
            size, sha256 = self._path.stat().st_size, file_sha256(self._path)
        return Part(self._name, self.rows, list(self._sources), size, sha256)

    def discard(self) -> None:
        """Close and remove what was written."""
        if self._writer is not None:
            with contextlib.suppress(OSError, pa.ArrowException):
                self._writer.close()
        if self._stream is not None:
            with contextlib.suppress(OSError):
                self._stream.close()
            with contextlib.suppress(OSError):
                self._path.unlink()

    @contextlib.contextmanager
    def _guard(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.discard()
            raise cannot_write(self._path, error) from None


def write_frame(folder: Path, name: str, frame: pl.DataFrame) -> Part:
    """Write a small table and sync it to disk."""
    table = frame.to_arrow()
    writer = PartWriter(folder, name, table.schema)
    writer.add(table)
    return writer.finish()


def placed(rows: Any, source: Source) -> Any:
    """Add source id and order to rows of a source."""
    count, before = len(rows), source.records + source.duplicates
    order = np.arange(before, before + count, dtype=np.int64)
    rows = rows.append_column("source_id", repeated(source.source_id, count))
    rows = rows.append_column("order", numeric(pa.int64(), order))
    return rows.select(RECORDS.names)


def rejected(result: BlockResult, source: Source) -> Any:
    """Return the table of a source's rejected lines."""
    count = len(result.rejected)
    lines, offsets, reasons, contents = zip(*result.rejected, strict=True)
    columns = [
        repeated(source.source_id, count),
        repeated(source.path, count),
        numeric(pa.int64(), np.array(lines, dtype=np.int64)),
        numeric(pa.int64(), np.array(offsets, dtype=np.int64)),
        nullable_strings(reasons),
        Texts.of(contents).column(pa.binary()),
    ]
    return pa.Table.from_arrays(columns, schema=REJECTED)


def _row_bytes(table: Any) -> NDArray[np.int64]:
    """Approximate memory of each row, in bytes."""
    sizes = np.full(len(table), 8 * table.num_columns, dtype=np.int64)
    for column in table.columns:
        if pa.types.is_nested(column.type):
            sizes += 8 * numbers(pc.list_value_length(column))
        elif not pa.types.is_primitive(column.type):
            sizes += numbers(pc.binary_length(column))
    return sizes


def sources(table: Any) -> list[str]:
    """Ids of the sources of these rows."""
    found: list[str] = pc.unique(table["source_id"]).to_pylist()
    return found


def row_groups(path: Path, columns: list[str] | None = None) -> Iterator[Any]:
    """Yield the row groups of a part, or some of their columns."""
    with pq.ParquetFile(path) as file:
        for group in range(file.num_row_groups):
            yield file.read_row_group(group, columns=columns)


LINE = ["source_id", "line"]
"""Columns that identify a line of a dataset."""


def place(source: Source) -> tuple[list[str], str]:
    """Sort key of sources: the order in which folders are walked."""
    return source.path.split("/"), source.source_id


def exchange(folder: Path, manifest: Manifest) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Find the lines that must move between records and duplicates.

    Returns the duplicates that become records, then the records that become duplicates; columns
    record_id, source_id and line.
    """
    columns = ["record_id", *LINE]
    claims = _scan(folder, manifest.duplicates).select(columns).collect()
    owned = claims.clear()
    if manifest.records:
        records = _scan(folder, manifest.records).select(columns)
        owned = records.join(claims.lazy(), on="record_id", how="semi").collect()
    order = {s.source_id: n for n, s in enumerate(sorted(manifest.sources, key=place))}
    first = (
        pl.concat([claims.with_columns(owns=False), owned.with_columns(owns=True)])
        .sort(pl.col("source_id").replace_strict(order), "line")
        .unique("record_id", keep="first", maintain_order=True)
    )
    promoted = first.filter(~pl.col("owns")).drop("owns")
    return promoted, owned.join(promoted, on="record_id", how="semi")


def in_use(folder: Path, manifest: Manifest, column: str) -> set[str]:
    """Ids of the tasks or sketches (``column``) that lines of the dataset have."""
    parts = [*manifest.records, *manifest.duplicates]
    if not parts:
        return set()
    return set(_scan(folder, parts).select(pl.col(column).unique()).collect()[column])


def _scan(folder: Path, parts: Sequence[Part]) -> pl.LazyFrame:
    return pl.scan_parquet([folder / part.file for part in parts])
