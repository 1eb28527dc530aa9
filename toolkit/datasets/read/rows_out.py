"""Rows as a file that spreadsheets and notebooks read."""

from __future__ import annotations

from pathlib import Path

import orjson
import polars as pl

from toolkit.atomic import replacing
from toolkit.datasets.read.open import Dataset
from toolkit.datasets.read.outputs import check_targets
from toolkit.errors import ToolkitError

SUFFIXES = (".parquet", ".csv", ".json")


def check_rows_target(path: Path, dataset: Dataset, *, force: bool = False) -> None:
    """Refuse a file that rows must not be written to: before they are computed.

    Raises
    ------
    ToolkitError
        For a suffix that names no format, and as ``check_targets`` does.
    """
    _check_suffix(path)
    check_targets([path], dataset, force=force)


def write_rows(rows: pl.DataFrame, path: Path) -> None:
    """Write rows as Parquet, CSV or JSON (a list of objects), as the suffix says.

    Raises
    ------
    ToolkitError
        For a suffix that names no format, and where the file cannot be written.
    """
    _check_suffix(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary:
            if path.suffix == ".parquet":
                rows.write_parquet(temporary)
            elif path.suffix == ".csv":
                _flat(rows).write_csv(temporary)
            else:
                rows.write_json(temporary)
    except (OSError, pl.exceptions.PolarsError) as error:
        why = getattr(error, "strerror", None) or error
        raise ToolkitError(
            f"could not be written: {why}", where=path, cure="make room, or name another file"
        ) from None


def _check_suffix(path: Path) -> None:
    if path.suffix not in SUFFIXES:
        raise ToolkitError(
            f"the suffix {path.suffix!r} names no format",
            where=path,
            cure="one of " + ", ".join(SUFFIXES),
        )


def _flat(rows: pl.DataFrame) -> pl.DataFrame:
    """Turn lists and structs into JSON text, which is all that CSV can hold of them."""
    nested = [name for name, kind in rows.schema.items() if kind.is_nested()]
    as_text = [
        pl.Series(
            name,
            [
                None if value is None else orjson.dumps(value).decode()
                for value in rows[name].to_list()
            ],
            dtype=pl.String(),
        )
        for name in nested
    ]
    return rows.with_columns(as_text)
