"""Tasks and sketches to and from tables; decisions as a matrix; batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import numpy as np
import orjson
import polars as pl
from numpy.typing import NDArray

from toolkit.logs.rows.identity import sketch_of, task_of
from toolkit.records import Sketch, Task
from toolkit.schema import SKETCHES, TASKS

Item = TypeVar("Item")


def tasks_frame(tasks: Iterable[Task]) -> pl.DataFrame:
    """Tasks as a table (``schema.TASKS``)."""
    return _frame(tasks, TASKS, ("arguments", "hardware"))


def sketches_frame(sketches: Iterable[Sketch]) -> pl.DataFrame:
    """Sketches as a table (``schema.SKETCHES``)."""
    return _frame(sketches, SKETCHES, ("knobs",))


def _frame(
    objects: Iterable[Any], schema: dict[str, pl.DataType], as_json: tuple[str, ...]
) -> pl.DataFrame:
    columns: dict[str, list[Any]] = {name: [] for name in schema}
    for each in objects:
        for name, column in columns.items():
            value = getattr(each, name)
            column.append(orjson.dumps(value).decode() if name in as_json else value)
    return pl.DataFrame(columns, schema=schema)


def read_tasks(frame: pl.LazyFrame) -> dict[str, Task]:
    """Tasks of a table (``schema.TASKS``) by id."""
    found = {}
    for row in frame.collect().iter_rows(named=True):
        row |= {name: orjson.loads(row[name]) for name in ("arguments", "hardware")}
        found[row["task_id"]] = task_of(row)
    return found


def read_sketches(frame: pl.LazyFrame) -> dict[str, Sketch]:
    """Sketches of a table (``schema.SKETCHES``) by id."""
    return {
        row["sketch_id"]: sketch_of(row | {"knobs": orjson.loads(row["knobs"])})
        for row in frame.collect().iter_rows(named=True)
    }


def decision_matrix(decisions: pl.Series, width: int) -> NDArray[np.int64]:
    """Turn a list column into an int64 matrix with one row per candidate."""
    if width == 0:
        return np.zeros((len(decisions), 0), dtype=np.int64)
    flat = decisions.explode().to_numpy()
    return np.ascontiguousarray(flat, dtype=np.int64).reshape(len(decisions), width)


def batches(items: Iterable[Item], size: Callable[[Item], int], most: int) -> Iterator[list[Item]]:
    """Split items into lists, in order: the sizes in a list sum to at most ``most``.

    A single item that is larger has a list of its own.
    """
    batch: list[Item] = []
    total = 0
    for item in items:
        if batch and total + size(item) > most:
            yield batch
            batch, total = [], 0
        batch.append(item)
        total += size(item)
    if batch:
        yield batch
