"""Select records from a dataset, and run SQL on it with polars' SQL context.

Only one SELECT of limited length on the dataset's tables is allowed: polars' SQL has functions that
read files and statements other than SELECT, and thousands of operators in a row crash the process
(its parser recurses without a limit).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

import polars as pl

from toolkit.datasets.read.open import Dataset
from toolkit.datasets.tables import sketches_frame, tasks_frame
from toolkit.errors import DatasetError, first_line

TABLES = ("records", "candidates", "tasks", "sketches", "sources", "labels", "rejected")

MAX_OPERATORS = 200
"""Polars crashes from about 700 on."""

_NAMES = "the tables are " + ", ".join(TABLES)
_FAILURES = (pl.exceptions.PolarsError, pl.exceptions.PanicException, UnicodeError)

_TOKEN = re.compile(
    r"""(?P<text>'(?:[^']|'')*')
      | (?P<quoted>"(?:[^"]|"")*"|`[^`]*`)
      | (?P<comment>--[^\r\n]*|/\*.*?\*/)
      | (?P<word>[^\W\d]\w*)
      | (?P<number>\d\w*)
      | (?P<mark>[(),.;\[\]])
      | (?P<operator>[^\s\w(),.;\[\]'"`]+?)""",
    re.VERBOSE | re.DOTALL,
)
_NESTING = {"and", "or", "union", "intersect", "except", "join", "when", "select", *TABLES}
"""Words that make the plan as much deeper as an operator does."""


def query(dataset: Dataset, sql: str) -> pl.DataFrame:
    """Run one SELECT over the tables of a dataset.

    Tables: ``records``, ``candidates``, ``tasks``, ``sketches``, ``sources``, ``labels`` and
    ``rejected``; ``toolkit.schema`` has their columns.

    Raises
    ------
    DatasetError
        When the query is not valid, uses an unknown name, or is no SELECT on the tables (see
        ``check_sql``).
    """
    check_sql(sql)
    frames = {
        "records": dataset.records(),
        "candidates": dataset.candidates_lazily(),
        "tasks": tasks_frame(dataset.tasks().values()).lazy(),
        "sketches": sketches_frame(dataset.sketches().values()).lazy(),
        "sources": dataset.sources().lazy(),
        "labels": dataset.labels().lazy(),
        "rejected": dataset.rejected().lazy(),
    }
    try:
        with pl.SQLContext(frames=frames) as context:
            return context.execute(sql).collect()
    except _FAILURES as error:
        raise DatasetError(f"the query failed: {first_line(error)}", cure=_NAMES) from None


def check_sql(sql: str, *, condition: bool = False) -> None:
    """Refuse SQL that is not one SELECT (or one condition) on the dataset's tables.

    Raises
    ------
    DatasetError
        For another statement, a function that reads files, or too many operators.
    """
    tokens = [(str(m.lastgroup), m[0]) for m in _TOKEN.finditer(sql) if m.lastgroup != "comment"]
    words = [text.lower() for kind, text in tokens if kind == "word"]
    operators = [text for kind, text in tokens if kind == "operator"]
    if not condition and (not words or words[0] not in ("select", "with")):
        raise DatasetError("only a SELECT is allowed", cure="begin with SELECT; " + _NAMES)
    for (kind, text), (_, behind) in pairwise(tokens):
        name = text.strip('"`').lower()
        if kind in ("word", "quoted") and behind == "(" and name.startswith(("read_", "scan_")):
            raise DatasetError(f"{name} is not allowed: it reads files", cure=_NAMES)
    # With these characters polars may see the end of a text elsewhere, and so code not seen here.
    if "$" in operators or re.search(r"\\['\"]", sql):
        raise DatasetError(
            "'$' and a backslash before a quote are not allowed in SQL",
            cure="write a quote inside a text as two quotes",
        )
    depth = len(operators) + sum(word in _NESTING for word in words)
    if depth > MAX_OPERATORS:
        raise DatasetError(
            f"the SQL has {depth:,} operators, more than {MAX_OPERATORS}",
            cure="use IN (...) for many values, or write all rows with --out and filter the file",
        )


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
        Only the k best candidates of each task, by their median latency over good records, as in
        ``describe``; for each the record nearest to its median. Failures are left out.
    where
        An SQL condition on the columns of ``records``, such as ``state = 'ok'``.

    Raises
    ------
    DatasetError
        When a task is unknown, the condition is not valid, or no record is left.
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
                f"the condition {where!r} is not understood: {first_line(error)}",
                cure="write it like: state = 'ok' AND latency_s < 0.001",
            ) from None
    try:
        rows = frame.collect()
    except _FAILURES as error:
        raise DatasetError(f"the condition failed: {first_line(error)}") from None
    if top is not None:
        rows = _top(rows, top)
    if rows.is_empty():
        raise DatasetError("no record matches this selection", where=dataset.path)
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
