"""Imported feature tables, kept with a dataset and used by recipes as ``stored:<name>``.

A table is Parquet, or ``.npz`` without pickled objects, with one row per record or candidate: a key
and one numeric column per feature. An ``.npz`` may hold one array per column, or ``features``
``(n, d)`` with their names in ``columns``.
"""

from __future__ import annotations

import re
import zipfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from toolkit.errors import DatasetError, first_line
from toolkit.features.base import CandidateGroup, FeatureBlock
from toolkit.features.cache import drop_block, write_block
from toolkit.progress import SILENT, Progress
from toolkit.records import Task

if TYPE_CHECKING:
    from toolkit.datasets import Dataset

PREFIX = "stored:"
KEYS = ("candidate_id", "record_id")
UNREADABLE = OSError, EOFError, RuntimeError, TypeError, ValueError, zipfile.BadZipFile, zlib.error
"""Errors of numpy for a file that is no ``.npz``, or a damaged one."""


class StoredExtractor:
    """Features that a dataset holds and that cannot be computed here."""

    version = 1
    stored_only = True

    def __init__(self, name: str) -> None:
        self.name = PREFIX + name

    def supports(self, task: Task) -> bool:
        """Any task; the dataset's files say which ones have features."""
        return True

    def extract(self, group: CandidateGroup) -> FeatureBlock:
        """Raise ``DatasetError``, which says how to import such features."""
        raise DatasetError(
            f"the features {self.name!r} cannot be computed here",
            cure="import them with: toolkit features --from FILE --name "
            + self.name.removeprefix(PREFIX),
        )


def import_features(
    dataset: Dataset, path: Path, name: str, *, progress: Progress = SILENT
) -> dict[str, Any]:
    """Store a table's columns for the candidates that it names; returns counts.

    Several rows of one candidate (its repeated records) are averaged. What was stored under the
    name before is replaced. ``unknown`` counts rows whose key the dataset does not hold,
    ``without`` the candidates without a row, in groups (task and sketch) that have some.

    Raises ``DatasetError`` for a name, file, key or column that cannot be used, or a table that
    names no candidate.
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", name):
        raise DatasetError(
            f"{name!r} is no valid name for features", cure="use letters, digits, '_', '.', '-'"
        )
    table, key, columns = _table(path)
    if key == "record_id":
        ids = dataset.records(["record_id", "candidate_id"]).collect()
        joined = ids.join(table, on="record_id", how="inner").drop("record_id")
    else:
        ids = dataset.records(["candidate_id"]).unique().collect()
        joined = table.join(ids, on="candidate_id", how="semi")
    if joined.is_empty():
        source = "records" if key == "record_id" else "candidates"
        raise DatasetError(
            f"none of the {table.height:,} rows has a {key} of the dataset",
            where=path,
            cure=f'list them with: toolkit query "SELECT {key} FROM {source}"',
        )
    mean = joined.group_by("candidate_id", maintain_order=True).agg(pl.col(columns).mean())
    extractor = StoredExtractor(name)
    tasks: set[str] = set()
    found = groups = without = 0
    with progress.step("storing features", total=mean.height) as step:
        for group, rows in dataset.groups():
            own = rows.select("candidate_id")
            known = own.join(mean, on="candidate_id", how="semi").height
            if not known:
                drop_block(dataset, extractor, group)
                continue
            own = own.join(mean, on="candidate_id", how="left", maintain_order="left")
            values = own.select(columns).to_numpy().astype(np.float32)
            values[~np.isfinite(values)] = np.nan
            write_block(dataset, extractor, group, rows, FeatureBlock(tuple(columns), values))
            groups += 1
            tasks.add(group.task.task_id)
            found += known
            without += len(rows) - known
            step.advance(known)
    return {
        "extractor": extractor.name,
        "version": extractor.version,
        "tasks": len(tasks),
        "groups": groups,
        "candidates": found,
        "without": without,
        "unknown": table.height - joined.height,
        "columns": columns,
    }


def _table(path: Path) -> tuple[pl.DataFrame, str, list[str]]:
    """Read a table; return it with its key and its numeric columns."""
    try:
        frame = _from_npz(path) if path.suffix == ".npz" else pl.read_parquet(path)
    except FileNotFoundError:
        raise DatasetError("there is no such file", where=path) from None
    except (*UNREADABLE, pl.exceptions.PolarsError) as error:
        raise DatasetError(
            f"cannot be read: {first_line(error)}",
            where=path,
            cure="give Parquet, or .npz without pickled objects",
        ) from None
    key = next((key for key in KEYS if key in frame.columns), None)
    if key is None:
        raise DatasetError(
            f"has no key column; its columns are {', '.join(frame.columns[:6])} ...",
            where=path,
            cure="add a column " + " or ".join(KEYS) + " ('toolkit query' lists them)",
        )
    types = {name: dtype for name, dtype in frame.schema.items() if name not in KEYS}
    for name, dtype in types.items():
        if not (dtype.is_numeric() or dtype == pl.Boolean):
            raise DatasetError(
                f"column {name!r} holds {dtype}, not numbers",
                where=path,
                cure="leave it out, or turn it into numbers",
            )
    if not types:
        raise DatasetError(f"has no feature column, only {key!r}", where=path)
    return frame.with_columns(pl.col(key).cast(pl.String())), key, list(types)


def _from_npz(path: Path) -> pl.DataFrame:
    with path.open("rb") as file:
        arrays = np.load(file, allow_pickle=False)
        if isinstance(arrays, np.ndarray):
            raise ValueError("the file holds one array without a name")
        found = {name: arrays[name] for name in arrays.files}
    matrix, names = found.pop("features", None), found.pop("columns", None)
    if matrix is not None:
        if matrix.ndim != 2 or (names is not None and names.shape != matrix.shape[1:]):
            raise ValueError("'features' must be a matrix with one column for each of 'columns'")
        given = range(matrix.shape[1]) if names is None else names.tolist()
        found.update({str(name): matrix[:, i] for i, name in enumerate(given)})
    return pl.DataFrame(found)
