"""Whose a record is that several lines hold: the first line's, of the first source by path.

The other lines are its duplicates. They are kept apart, so that the record stays when the source
that it was read from is rewritten. What a dataset holds then depends on what its sources hold,
not on the order in which they came and changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from toolkit.datasets.manifest import Manifest, Part, Source

LINE = ["source_id", "line"]
"""What tells one line of a dataset from all others."""


class Exchange(NamedTuple):
    """Lines whose duplicate becomes the record, and lines whose record becomes a duplicate.

    Both have the columns record_id, source_id and line.
    """

    promoted: pl.DataFrame
    demoted: pl.DataFrame


def place(source: Source) -> tuple[list[str], str]:
    """What sources are ordered by: as folders are walked."""
    return source.path.split("/"), source.source_id


def exchange(folder: Path, manifest: Manifest) -> Exchange:
    """Find the lines that have changed places since the dataset was last settled."""
    columns = ["record_id", *LINE]
    claims = _scan(folder, manifest.duplicates).select(columns).collect()
    owned = (
        _scan(folder, manifest.records)
        .select(columns)
        .join(claims.lazy(), on="record_id", how="semi")
        .collect()
        if manifest.records
        else claims.clear()
    )
    order = {s.source_id: n for n, s in enumerate(sorted(manifest.sources, key=place))}
    first = (
        pl.concat([claims.with_columns(owns=False), owned.with_columns(owns=True)])
        .sort(pl.col("source_id").replace_strict(order), "line")
        .unique("record_id", keep="first", maintain_order=True)
    )
    promoted = first.filter(~pl.col("owns")).drop("owns")
    return Exchange(promoted, owned.join(promoted, on="record_id", how="semi"))


def among(lines: pl.DataFrame, chosen: pl.DataFrame) -> NDArray[np.bool_]:
    """Which lines are among the chosen ones."""
    marks = chosen.select(*LINE, found=pl.lit(True))
    joined = lines.join(marks, on=LINE, how="left", maintain_order="left")
    return joined["found"].is_not_null().to_numpy()


def in_use(folder: Path, manifest: Manifest, column: str) -> set[str]:
    """Ids of tasks or sketches that some line of the dataset has."""
    parts = [*manifest.records, *manifest.duplicates]
    if not parts:
        return set()
    return set(_scan(folder, parts).select(pl.col(column).unique()).collect()[column])


def _scan(folder: Path, parts: Sequence[Part]) -> pl.LazyFrame:
    return pl.scan_parquet([folder / part.file for part in parts])
