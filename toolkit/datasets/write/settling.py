"""Whose a record is that several lines hold: the first line's, of the first source by path.

The other lines are its duplicates. They are kept apart, so that the record stays when the source
that it was read from is rewritten. What a dataset holds then depends on what its sources hold,
not on the order in which they came and changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from toolkit.datasets.manifest import Manifest, Part, Source

LINE = ["source_id", "line"]
"""What tells one line of a dataset from all others."""


def place(source: Source) -> tuple[list[str], str]:
    """What sources are ordered by: as folders are walked."""
    return source.path.split("/"), source.source_id


def exchange(folder: Path, manifest: Manifest) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Find the lines that have changed places since the dataset was last settled.

    First those whose duplicate becomes the record, then those whose record becomes a duplicate;
    columns record_id, source_id and line.
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
    """Ids of tasks or sketches that some line of the dataset has."""
    parts = [*manifest.records, *manifest.duplicates]
    if not parts:
        return set()
    return set(_scan(folder, parts).select(pl.col(column).unique()).collect()[column])


def _scan(folder: Path, parts: Sequence[Part]) -> pl.LazyFrame:
    return pl.scan_parquet([folder / part.file for part in parts])
