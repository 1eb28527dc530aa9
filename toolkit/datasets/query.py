"""SQL on a dataset, by polars' SQL context."""

from __future__ import annotations

import polars as pl

from toolkit.datasets.open import Dataset
from toolkit.datasets.tables import sketches_frame, tasks_frame
from toolkit.errors import DatasetError

TABLES = ("records", "candidates", "tasks", "sketches", "sources", "rejected")


def query(dataset: Dataset, sql: str) -> pl.DataFrame:
    """Run one SELECT over the tables of a dataset.

    Tables: ``records``, ``tasks``, ``sketches``, ``rejected`` (see ``toolkit.schema``),
    ``sources``, and ``candidates`` (see ``Dataset.candidates``).

    Raises
    ------
    DatasetError
        When the query cannot be understood or names what is not there.
    """
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
    except pl.exceptions.PolarsError as error:
        raise DatasetError(
            f"the query failed: {str(error).splitlines()[0]}",
            cure="the tables are " + ", ".join(TABLES),
        ) from None
