"""The parts that are being written, one of each kind. They end at the same lines in every run.

A part ends after ``PART_LINES`` lines of the dataset. Lines arrive in blocks of a file, or in
pieces of another dataset, so a block usually goes beyond that end. A commit needs whole blocks: the
rest of the block is written as a short part, and again in the next commit with the lines that
follow. So one ingest makes the same files as a merge of shards.
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
"""Number of lines in the parts of one commit."""


class OpenParts:
    """Adds rows to open parts, and finished parts to ``manifest``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writers: dict[Kind, PartWriter] = {}
        self._numbers: Counter[tuple[str, int]] = Counter()
        self._lines = 0
        self.full = False

    def add(self, manifest: Manifest, source_id: str, tables: Mapping[Kind, Any]) -> None:
        """Append a source's rows of each kind; finish parts that are full."""
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
        """Return the open part of a kind."""
        if kind not in self._writers:
            self._writers[kind] = self.new(manifest, kind)
        return self._writers[kind]

    def new(self, manifest: Manifest, kind: Kind, word: str = "part") -> PartWriter:
        """Return a new part."""
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
        """Continue committed short parts: the next commit has their rows and the following ones."""
        for kind, part in short.items():
            manifest.of(kind).remove(part)
            writer = self.writer(manifest, kind)
            for table in parts.row_groups(verify(self._folder, part)):
                writer.add(table, *parts.sources(table))
            self._lines += part.rows

    def discard(self) -> None:
        """Remove parts that are not finished."""
        for writer in self._writers.values():
            writer.discard()
        self._writers, self._lines, self.full = {}, 0, False


def _cut(tables: Mapping[Kind, Any], room: int) -> Iterator[Mapping[Kind, Any]]:
    """Split rows of one source after ``room`` lines, and then after every full part."""
    lines = {kind: numbers(table["line"]) for kind, table in tables.items()}
    ends = np.sort(np.concatenate(list(lines.values())))[room - 1 :: PART_LINES]
    piece = {kind: np.searchsorted(ends, values) for kind, values in lines.items()}
    for number in range(len(ends) + 1):
        yield {kind: table.filter(flags(piece[kind] == number)) for kind, table in tables.items()}
