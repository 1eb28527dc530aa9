"""The small tables of a dataset: tasks and sketches ↔ Parquet."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson
import polars as pl

from toolkit.records import Knob, Sketch, Task
from toolkit.schema import SKETCHES, TASKS


def tasks_frame(tasks: Iterable[Task]) -> pl.DataFrame:
    """Tasks as a table (``schema.TASKS``)."""
    rows = [
        {
            "task_id": task.task_id,
            "format": task.format,
            "workload": task.workload,
            "arguments": orjson.dumps(task.arguments).decode(),
            "target": task.target,
            "target_kind": task.target_kind,
            "hardware": orjson.dumps(task.hardware).decode(),
            "machine": task.machine,
            "extents": list(task.extents),
            "blob": task.blob,
        }
        for task in tasks
    ]
    return pl.DataFrame(rows, schema=TASKS)


def read_tasks(frame: pl.LazyFrame) -> dict[str, Task]:
    """Tasks of a table (``schema.TASKS``) by id."""
    return {
        row["task_id"]: Task(
            task_id=row["task_id"],
            format=row["format"],
            workload=row["workload"],
            arguments=orjson.loads(row["arguments"]),
            target=row["target"],
            target_kind=row["target_kind"],
            hardware=orjson.loads(row["hardware"]),
            machine=row["machine"],
            extents=tuple(row["extents"]),
            blob=row["blob"],
        )
        for row in frame.collect().iter_rows(named=True)
    }


def sketches_frame(sketches: Iterable[Sketch]) -> pl.DataFrame:
    """Sketches as a table (``schema.SKETCHES``)."""
    rows = [
        {
            "sketch_id": sketch.sketch_id,
            "format": sketch.format,
            "skeleton": sketch.skeleton,
            "knobs": orjson.dumps([_knob_object(knob) for knob in sketch.knobs]).decode(),
        }
        for sketch in sketches
    ]
    return pl.DataFrame(rows, schema=SKETCHES)


def read_sketches(frame: pl.LazyFrame) -> dict[str, Sketch]:
    """Sketches of a table (``schema.SKETCHES``) by id."""
    return {
        row["sketch_id"]: Sketch(
            sketch_id=row["sketch_id"],
            format=row["format"],
            skeleton=row["skeleton"],
            knobs=tuple(_knob(entry) for entry in orjson.loads(row["knobs"])),
        )
        for row in frame.collect().iter_rows(named=True)
    }


def _knob_object(knob: Knob) -> dict[str, Any]:
    return {
        "name": knob.name,
        "kind": knob.kind,
        "offset": knob.offset,
        "width": knob.width,
        "choices": None if knob.choices is None else list(knob.choices),
        "labels": [list(label) for label in knob.labels],
    }


def _knob(entry: dict[str, Any]) -> Knob:
    choices = entry["choices"]
    return Knob(
        name=entry["name"],
        kind=entry["kind"],
        offset=entry["offset"],
        width=entry["width"],
        choices=None if choices is None else tuple(choices),
        labels=tuple((code, word) for code, word in entry["labels"]),
    )
