"""The parts that are being written: one of each kind, cut at the same lines whatever reads them.

A part ends after ``PART_LINES`` lines of the dataset. Lines come in blocks of a file or in pieces
of another dataset, so a block mostly reaches beyond that end. A commit needs whole blocks: what
lies beyond is written as well, as a short part, and written again with what follows. So one
ingest, and shards that are merged, make the same files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from toolkit.datasets.manifest import Kind, Manifest, Part
from toolkit.datasets.read.integrity import verify
from toolkit.datasets.write import parts
from toolkit.datasets.write.parts import PartWriter
from toolkit.logs.rows.columns import flags, numbers

PART_LINES = 500_000
"""Lines that parts gather before they are committed."""


class OpenParts:
    """Rows on their way into parts; ``manifest`` learns of parts that are finished."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writers: dict[Kind, PartWriter] = {}
        self._numbers: Counter[tuple[str, int]] = Counter()
        self._lines = 0
        self.full = False

    def add(self, manifest: Manifest, source_id: str, tables: Mapping[Kind, Any]) -> None:
        """Append a source's rows of each kind; parts that get full on the way are finished."""
        lines = sum(map(len, tables.values()))
        if self._lines + lines < PART_LINES:
            pieces: Iterator[Mapping[Kind, Any]] = iter([tables])
        else:
            pieces = _cut(tables, PART_LINES - self._lines)
        for piece in pieces:
            for kind, table in piece.items():
                if len(table):
                    self.writer(manifest, kind).add(table, source_id)
                    self._lines += len(table)
            if self._lines >= PART_LINES:
                self.finish(manifest)
                self.full = True

    def writer(self, manifest: Manifest, kind: Kind) -> PartWriter:
        """The open part of a kind."""
        if kind not in self._writers:
            self._writers[kind] = self.new(manifest, kind)
        return self._writers[kind]

    def new(self, manifest: Manifest, kind: Kind, word: str = "part") -> PartWriter:
        """A part of its own."""
        generation = manifest.generation + 1
        self._numbers[kind, generation] += 1
        number = f"{generation:06d}-{self._numbers[kind, generation]}"
        schema = parts.REJECTED if kind == "rejected" else parts.RECORDS
        return PartWriter(self._folder, f"{kind}/{word}-{number}.parquet", schema)

    def finish(self, manifest: Manifest) -> dict[Kind, Part]:
        """Finish the open parts and return them."""
        finished = {kind: writer.finish() for kind, writer in self._writers.items()}
        for kind, part in finished.items():
            manifest.of(kind).append(part)
        self._writers, self._lines, self.full = {}, 0, False
        return finished

    def reopen(self, manifest: Manifest, short: Mapping[Kind, Part]) -> None:
        """Go on with parts that were committed: the next commit has them with what follows."""
        for kind, part in short.items():
            manifest.of(kind).remove(part)
            writer = self.writer(manifest, kind)
            for table in parts.row_groups(verify(self._folder, part)):
                writer.add(table, *parts.sources(table))
            self._lines += part.rows

    def discard(self) -> None:
        """Remove what was written and not finished."""
        for writer in self._writers.values():
            writer.discard()
        self._writers, self._lines, self.full = {}, 0, False


def _cut(tables: Mapping[Kind, Any], room: int) -> Iterator[Mapping[Kind, Any]]:
    """Cut rows of one source behind so many lines, and then behind every full part."""
    lines = {kind: numbers(table["line"]) for kind, table in tables.items()}
    ends = np.sort(np.concatenate(list(lines.values())))[room - 1 :: PART_LINES]
    piece = {kind: np.searchsorted(ends, values) for kind, values in lines.items()}
    for number in range(len(ends) + 1):
        yield {kind: table.filter(flags(piece[kind] == number)) for kind, table in tables.items()}
