"""The way back: records of a dataset as logs that the programs they come from read."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson
import polars as pl

from toolkit.atomic import write_together
from toolkit.datasets.read.open import Dataset
from toolkit.datasets.read.outputs import check_targets
from toolkit.datasets.read.select import select_records
from toolkit.errors import DatasetError, did_you_mean
from toolkit.logs.formats import writers
from toolkit.records import Sketch, Task, canonical_json

SOURCES = {
    "autotvm": frozenset({"autotvm"}),
    "ansor": frozenset({"ansor"}),
    "metaschedule": frozenset({"metaschedule"}),
    "t4": frozenset({"autotvm", "ansor", "metaschedule", "t4", "kernel-tuner"}),
    "kernel-tuner": frozenset({"autotvm", "ansor", "metaschedule", "t4", "kernel-tuner"}),
}
"""Which records can be written in which format."""

_Writer = Callable[[Dataset, pl.DataFrame, Path], dict[Path, bytes]]
"""Gives the files of an export with their content."""


def export(
    dataset: Dataset,
    out: str | Path,
    format: str | None = None,
    *,
    task_ids: Sequence[str] | None = None,
    top: int | None = None,
    where: str | None = None,
    force: bool = False,
) -> dict[str, Any]:
    """Write a selection of records (see ``select_records``).

    Parameters
    ----------
    out
        A file for ``autotvm`` (0.2) and ``ansor`` (v0.6); a folder for ``metaschedule`` (a
        database), ``t4`` and ``kernel-tuner`` (a file a task and sketch).
    format
        A name of ``SOURCES``; by default the one that the selected records have. Records of
        other formats are counted and left out.
    force
        Whether files that exist are written over (see ``check_targets``).

    Returns
    -------
    dict
        ``format``, ``files``, ``records``, ``tasks``, ``left_out``.

    Raises
    ------
    DatasetError
        When the format is unknown, no selected record can be written in it, none was named
        and the records have several, or a file must not or cannot be written.
    """
    if format is not None and format not in SOURCES:
        raise DatasetError(
            f"no export format is called {format!r}", cure=did_you_mean(format, SOURCES)
        )
    rows = select_records(dataset, task_ids=task_ids, top=top, where=where)
    format = _only_format(rows) if format is None else format
    fitting = rows.filter(pl.col("format").is_in(list(SOURCES[format])))
    if fitting.is_empty():
        found = ", ".join(sorted(set(rows["format"])))
        raise DatasetError(
            f"no selected record can be written as {format}: they are {found}",
            cure=f"export them as {found.split(',')[0]}, or as t4",
        )
    files = _WRITERS[format](dataset, fitting, Path(out))
    check_targets(files, dataset, force=force)
    try:
        for folder in {path.parent for path in files}:
            folder.mkdir(parents=True, exist_ok=True)
        write_together(files)
    except OSError as error:
        raise DatasetError(
            f"cannot be written: {error.strerror or error}",
            where=error.filename or out,
            cure="make room, or name another place",
        ) from None
    return {
        "format": format,
        "files": list(map(str, files)),
        "records": fitting.height,
        "tasks": fitting["task_id"].n_unique(),
        "left_out": rows.height - fitting.height,
    }


def _only_format(rows: pl.DataFrame) -> str:
    found = sorted(set(rows["format"]))
    if len(found) > 1:
        raise DatasetError(
            f"the selected records are of several formats: {', '.join(found)}",
            cure="name one, or t4 or kernel-tuner, which hold records of every format",
        )
    return str(found[0])


def _lines(
    line: Callable[[writers.Row, Task], bytes],
) -> _Writer:
    def write(dataset: Dataset, rows: pl.DataFrame, out: Path) -> dict[Path, bytes]:
        tasks = dataset.tasks()
        text = [line(row, tasks[row["task_id"]]) + b"\n" for row in rows.iter_rows(named=True)]
        return {out: b"".join(text)}

    return write


def _database(dataset: Dataset, rows: pl.DataFrame, out: Path) -> dict[Path, bytes]:
    """A MetaSchedule database, with the collector's sidecar where it has something to say."""
    tasks = dataset.tasks()
    workloads: dict[str, int] = {}
    about: dict[int, dict[str, Any]] = {}
    records: list[bytes] = []
    machines: set[str | None] = set()
    sizes = dataset.manifest.space_sizes
    for row in rows.iter_rows(named=True):
        task = tasks[row["task_id"]]
        index = workloads.setdefault(task.blob or "", len(workloads))
        about[index] = {
            "workload_index": index,
            "name": task.workload,
            "space_size": sizes.get(task.task_id),
        }
        machines.add(task.machine)
        records.append(writers.metaschedule_line(row, task, index) + b"\n")
    written = {
        out / "database_workload.json": "".join(f"{w}\n" for w in workloads).encode(),
        out / "database_tuning_record.json": b"".join(records),
    }
    if rows["elapsed_s"].is_not_null().any() or rows["timestamp"].is_not_null().any():
        trials = [writers.trial_line(row) + b"\n" for row in rows.iter_rows(named=True)]
        written[out / "database_trials.jsonl"] = b"".join(trials)
    if machines != {None} and len(machines) == 1:
        collection: dict[str, Any] = {
            "machine": machines.pop(),
            "protocol": {},
            "tasks": list(about.values()),
        }
        written[out / "collection.json"] = orjson.dumps(collection)
    return written


def _spaces(dataset: Dataset, rows: pl.DataFrame) -> Iterator[tuple[str, Task, pl.DataFrame]]:
    """Rows of one task and sketch at a time, with a file name."""
    tasks = dataset.tasks()
    groups = rows.partition_by(["task_id", "sketch_id"], maintain_order=True, as_dict=True)
    for (task_id, sketch_id), part in groups.items():
        task = tasks[str(task_id)]
        word = re.sub(r"[^A-Za-z0-9_-]+", "-", task.workload).strip("-")[:60] or "task"
        yield f"{word}-{task.task_id[:8]}-{str(sketch_id)[:4]}.json", task, part


def _t4(dataset: Dataset, rows: pl.DataFrame, out: Path) -> dict[Path, bytes]:
    sketches = dataset.sketches()
    written = {}
    for name, task, part in _spaces(dataset, rows):
        sketch = sketches[part["sketch_id"][0]]
        metadata = {
            "timeunit": "seconds",
            "workload": task.workload,
            "arguments": task.arguments,
            "target": task.target,
            "target_kind": task.target_kind,
            "machine": task.machine,
        }
        results = [writers.t4_result(row, sketch) for row in part.iter_rows(named=True)]
        document = {"schema_version": "1.0.0", "metadata": metadata, "results": results}
        written[out / name] = orjson.dumps(document)
    return written


def _kernel_tuner(dataset: Dataset, rows: pl.DataFrame, out: Path) -> dict[Path, bytes]:
    sketches = dataset.sketches()
    written = {}
    for name, task, part in _spaces(dataset, rows):
        sketch = sketches[part["sketch_id"][0]]
        entries: dict[str, dict[str, Any]] = {}
        values = _choices(sketch)
        for row in part.iter_rows(named=True):
            configuration = writers.configuration(row, sketch)
            key = ",".join(str(value) for value in configuration.values())
            # A cache has one entry a configuration: the last measurement that went well.
            if row["state"] == "ok" or key not in entries:
                entries[key] = writers.cache_entry(row, sketch)
            for parameter, value in configuration.items():
                values.setdefault(parameter, {}).setdefault(canonical_json(value), value)
        document = {
            "schema_version": "1.0.0",
            "device_name": task.machine or task.target,
            "kernel_name": task.workload,
            "problem_size": _problem_size(task),
            "tune_params_keys": list(values),
            "tune_params": {name: list(known.values()) for name, known in values.items()},
            "objective": "time",
            "cache": entries,
        }
        written[out / name] = orjson.dumps(document, option=orjson.OPT_INDENT_2)
    return written


def _choices(sketch: Sketch) -> dict[str, dict[bytes, Any]]:
    """Values of each parameter by their JSON, where the cache that was read listed them."""
    if sketch.format != "kernel-tuner":
        return {}
    return {
        name: {canonical_json(value): value for value in known or []}
        for name, known in orjson.loads(sketch.skeleton)[1:]
    }


def _problem_size(task: Task) -> Any:
    """The workload's size in what a cache may hold: an integer, a word, or a list of integers."""
    size = task.arguments
    if type(size) in (int, str):
        return size
    if isinstance(size, list) and size and all(type(part) is int for part in size):
        return size
    return list(task.extents) or [1]


_WRITERS: dict[str, _Writer] = {
    "autotvm": _lines(writers.autotvm_line),
    "ansor": _lines(writers.ansor_line),
    "metaschedule": _database,
    "t4": _t4,
    "kernel-tuner": _kernel_tuner,
}
