"""Records picked from a dataset: the best of each task, the top k, a filter."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from toolkit.datasets.read.open import Dataset
from toolkit.datasets.read.sql import check_sql
from toolkit.errors import DatasetError

_FAILURES = (pl.exceptions.PolarsError, pl.exceptions.PanicException, UnicodeError)


def select_records(
    dataset: Dataset,
    *,
    task_ids: Sequence[str] | None = None,
    top: int | None = None,
    where: str | None = None,
) -> pl.DataFrame:
    """Return records (``schema.RECORDS``) in the order in which they were ingested.

    Parameters
    ----------
    task_ids
        Tasks to take (ids or their beginnings); all by default.
    top
        Of each task only the k best candidates by their median latency over good occasions, as
        in ``describe``; of each the record that is nearest to its median. Failures are left out.
    where
        An SQL condition on the columns of ``records``, such as ``state = 'ok'``.

    Raises
    ------
    DatasetError
        When a task is unknown, the condition cannot be understood, or nothing is left.
    """
    frame = dataset.records()
    if task_ids is not None:
        wanted = [dataset.task(task_id).task_id for task_id in task_ids]
        frame = frame.filter(pl.col("task_id").is_in(wanted))
    if where is not None:
        check_sql(where, condition=True)
        try:
            frame = frame.filter(pl.sql_expr(where))
            frame.collect_schema()
        except _FAILURES as error:
            raise DatasetError(
                f"the condition {where!r} is not understood: {str(error).partition(chr(10))[0]}",
                cure="write it like: state = 'ok' AND latency_s < 0.001",
            ) from None
    try:
        rows = frame.collect()
    except _FAILURES as error:
        raise DatasetError(f"the condition failed: {str(error).partition(chr(10))[0]}") from None
    if top is not None:
        rows = _top(rows, top)
    if rows.is_empty():
        raise DatasetError("no record is left by this selection", where=dataset.path)
    return rows


def _top(rows: pl.DataFrame, k: int) -> pl.DataFrame:
    """Keep one record of each of a task's k best candidates: the one nearest to its median."""
    latency = pl.col("latency_s")
    median = latency.median().over("task_id", "candidate_id")
    ranked = rows.with_row_index("place").filter(latency.is_not_null())
    ranked = ranked.with_columns(median=median, off=(latency - median).abs())
    best = ranked.sort(["median", "off", "place"]).unique(
        ["task_id", "candidate_id"], keep="first", maintain_order=True
    )
    kept = best.group_by("task_id", maintain_order=True).head(k)
    return kept.sort("place").select(rows.columns)
