"""SQL on a dataset, by polars' SQL context."""

from __future__ import annotations

import polars as pl

from toolkit.datasets.read.open import Dataset
from toolkit.datasets.read.sql import TABLES, check_sql
from toolkit.datasets.tables import sketches_frame, tasks_frame
from toolkit.errors import DatasetError


def query(dataset: Dataset, sql: str) -> pl.DataFrame:
    """Run one SELECT over the tables of a dataset.

    Tables: ``records``, ``tasks``, ``sketches``, ``rejected`` (see ``toolkit.schema``),
    ``sources``, and ``candidates`` (see ``Dataset.candidates``).

    Raises
    ------
    DatasetError
        When the query cannot be understood, names what is not there, or is no SELECT on the
        tables (see ``check_sql``).
    """
    check_sql(sql)
    frames = {
        "records": dataset.records(),
        "candidates": dataset.candidates_lazily(),
        "tasks": tasks_frame(dataset.tasks().values()).lazy(),
        "sketches": sketches_frame(dataset.sketches().values()).lazy(),
        "sources": dataset.sources().lazy(),
        "rejected": dataset.rejected().lazy(),
    }
    try:
        with pl.SQLContext(frames=frames) as context:
            return context.execute(sql).collect()
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, UnicodeError) as error:
        raise DatasetError(
            f"the query failed: {str(error).partition(chr(10))[0]}",
            cure="the tables are " + ", ".join(TABLES),
        ) from None
