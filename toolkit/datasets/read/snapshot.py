"""What a reader holds of a dataset: open files, which outlast whatever a writer does."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import polars as pl

from toolkit.datasets import manifest as manifests
from toolkit.datasets.manifest import Manifest, Part
from toolkit.datasets.read.integrity import missing, verify_on_opening
from toolkit.errors import DatasetError
from toolkit.schema import RECORDS, REJECTED, SKETCHES, TASKS

HELD_FILES = 200
"""Of datasets of more parts the names are kept, not the open files: systems limit those."""


@dataclass(frozen=True)
class Snapshot:
    """The tables of one commit; the frames hold their files open until they are read."""

    manifest: Manifest
    records: pl.LazyFrame
    rejected: pl.LazyFrame
    tasks: pl.LazyFrame
    sketches: pl.LazyFrame


def take(folder: Path) -> Snapshot:
    """Open all files of the last commit; of a newer one where a writer removes them meanwhile.

    Raises
    ------
    DatasetError
        When there is no dataset, or it is damaged.
    """
    manifest = manifests.load(folder)
    while True:
        try:
            return _opened(folder, manifest)
        except FileNotFoundError as error:
            newer = manifests.load(folder)
            if newer.generation == manifest.generation:
                raise missing(folder, error) from None
            manifest = newer
        except OSError as error:
            raise DatasetError(
                f"cannot be read: {error.strerror or error}", where=error.filename or folder
            ) from None


def _opened(folder: Path, manifest: Manifest) -> Snapshot:
    read = [part for part in manifest.parts() if part not in manifest.duplicates]
    verify_on_opening(folder, read)
    with ExitStack() as streams:

        def frame(parts: list[Part], schema: dict[str, pl.DataType]) -> pl.LazyFrame:
            if not parts:
                return pl.LazyFrame(schema=schema)
            paths = [folder / part.file for part in parts]
            if len(read) > HELD_FILES:
                return pl.scan_parquet(paths)
            held: list[IO[bytes]] = [streams.enter_context(path.open("rb")) for path in paths]
            return pl.scan_parquet(held)

        return Snapshot(
            manifest=manifest,
            records=frame(manifest.records, RECORDS),
            rejected=frame(manifest.rejected, REJECTED),
            tasks=frame([manifest.tasks] if manifest.tasks else [], TASKS),
            sketches=frame([manifest.sketches] if manifest.sketches else [], SKETCHES),
        )
