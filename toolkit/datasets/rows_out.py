"""Rows as a file that spreadsheets and notebooks read."""

from __future__ import annotations

from pathlib import Path

import orjson
import polars as pl

from toolkit.errors import ToolkitError

SUFFIXES = (".parquet", ".csv", ".json")


def write_rows(rows: pl.DataFrame, path: Path) -> None:
    """Write rows as Parquet, CSV or JSON (a list of objects), as the suffix says.

    Raises
    ------
    ToolkitError
        For another suffix, or where the file cannot be written.
    """
    if path.suffix not in SUFFIXES:
        raise ToolkitError(
            f"the suffix {path.suffix!r} names no format",
            where=path,
            cure="one of " + ", ".join(SUFFIXES),
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".parquet":
            rows.write_parquet(path)
        elif path.suffix == ".csv":
            _flat(rows).write_csv(path)
        else:
            rows.write_json(path)
    except OSError as error:
        raise ToolkitError(f"could not be written: {error.strerror or error}", where=path) from None


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
