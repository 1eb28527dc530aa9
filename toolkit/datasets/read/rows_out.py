"""Check where results may be written, and write rows as Parquet, CSV or JSON.

Datasets and logs are never overwritten, other files only with ``force``.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Any

import orjson
import polars as pl

from toolkit.atomic import replacing
from toolkit.datasets import manifest as manifests
from toolkit.datasets.read.open import Dataset
from toolkit.errors import DatasetError, ToolkitError
from toolkit.logs.files.places import Place
from toolkit.records import content_id

SUFFIXES = (".parquet", ".csv", ".json")


def check_targets(targets: Iterable[Path], dataset: Dataset, *, force: bool = False) -> None:
    """Refuse targets where writing would lose data: inside a dataset's folder, a log that
    ``dataset`` was read from, or (without ``force``) an existing file.
    """
    sources = {source.source_id for source in dataset.manifest.sources}
    paths = [source.path.partition("::") for source in dataset.manifest.sources]
    archives = {Path(archive).resolve() for archive, inside, _ in paths if inside}
    members = [member for _, inside, member in paths if inside]

    def was_read(target: Path) -> bool:
        if target.resolve() in archives:
            return True
        # Compare identities, too: paths may have been given in another working directory.
        known = Place(target).identity
        identities = chain([known], (f"{known}::{member}" for member in members))
        return any(content_id("source", identity) in sources for identity in identities)

    for target in targets:
        whole = target.resolve()
        home = manifests.dataset_around(target)
        if home is not None:
            why, cure = f"is inside the dataset {home}", "write to a file somewhere else"
        elif was_read(target):
            why, cure = "is a log that the dataset was read from", "write to another file"
        elif whole.exists() and not whole.is_file():
            why, cure = "is no plain file", "write to a file"
        elif whole.exists() and not force:
            why, cure = "exists already", "write to another file, or overwrite it with --force"
        else:
            continue
        raise DatasetError(why, where=target, cure=cure)


def check_rows_target(path: Path, dataset: Dataset, *, force: bool = False) -> None:
    """Refuse a file that rows must not be written to; called before they are computed."""
    _check_suffix(path)
    check_targets([path], dataset, force=force)


def write_rows(rows: pl.DataFrame, path: Path) -> None:
    """Write rows as Parquet, CSV or JSON (a list of objects), as the suffix says.

    In CSV and JSON, bytes (the lines of ``rejected``) are text.

    Raises
    ------
    ToolkitError
        When the suffix is unknown or the file cannot be written.
    """
    _check_suffix(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary:
            if path.suffix == ".parquet":
                rows.write_parquet(temporary)
            elif path.suffix == ".csv":
                _flat(with_text(rows)).write_csv(temporary)
            else:
                with_text(rows).write_json(temporary)
    except (OSError, pl.exceptions.PolarsError) as error:
        why = getattr(error, "strerror", None) or error
        raise ToolkitError(
            f"could not be written: {why}",
            where=path,
            cure="make room on the disk, or write to another file",
        ) from None


def _check_suffix(path: Path) -> None:
    if path.suffix not in SUFFIXES:
        what = f"the suffix {path.suffix!r} names no format"
        raise ToolkitError(what, where=path, cure="use one of " + ", ".join(SUFFIXES))


def with_text(rows: pl.DataFrame) -> pl.DataFrame:
    """Turn bytes into text at any depth; bytes that are not UTF-8 become escapes."""

    def text(value: Any) -> Any:
        if isinstance(value, bytes):
            return value.decode(errors="backslashreplace")
        if isinstance(value, dict):
            return {name: text(inner) for name, inner in value.items()}
        return [text(inner) for inner in value] if isinstance(value, list) else value

    return rows.with_columns(
        pl.Series(
            name,
            [text(value) for value in rows[name].to_list()],
            dtype=None if kind.is_nested() else pl.String(),
        )
        for name, kind in rows.schema.items()
        if "Binary" in str(kind)
    )


def _flat(rows: pl.DataFrame) -> pl.DataFrame:
    """Turn lists and structs into JSON text, since CSV cannot hold them."""

    def text(value: object) -> str | None:
        return None if value is None else orjson.dumps(value).decode()

    return rows.with_columns(
        pl.Series(name, list(map(text, rows[name].to_list())), dtype=pl.String())
        for name, kind in rows.schema.items()
        if kind.is_nested()
    )
