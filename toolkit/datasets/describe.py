"""What a dataset holds: sources, tasks, hardware, failures, best latencies."""

from __future__ import annotations

from typing import Any

import polars as pl

from toolkit.datasets.analysis import Analysis, analyse
from toolkit.datasets.analysis.result import plain
from toolkit.datasets.read.open import Dataset
from toolkit.records import Task


def describe(dataset: Dataset) -> dict[str, Any]:
    """Summarise a dataset as plain values with stable keys.

    Keys: ``dataset``, ``fingerprint``, ``schema_version``; counts ``records``, ``candidates``,
    ``failed``, ``lines``, ``duplicates``, ``rejected``; ``formats`` (counts by format and
    version), ``states`` (records by state), ``machines``, ``sources`` (one entry a file),
    ``rejected_reasons``; of the analysis ``measuring_s`` (known measuring time), ``timed_share``,
    ``failures`` (by state), ``verdicts``, ``backtest``, ``noise``, ``knobs``, ``tuners``; and
    ``tasks`` (one entry a task, most records first, with the fields of ``TaskAnalysis``).
    What is unknown is null.
    """
    rows = _count_tasks(dataset)
    enumerated = dataset.enumerated()
    found = analyse(dataset, enumerated)
    states = dataset.records(["state"]).group_by("state").len().sort("len", descending=True)
    formats = (
        dataset.records(["format", "format_version", "task_id"])
        .group_by(["format", "format_version"])
        .agg(records=pl.len(), tasks=pl.col("task_id").n_unique())
        .sort(["format", "format_version"])
        .collect()
    )
    sources = dataset.sources()
    reasons = dataset.rejected().group_by("reason").len().sort(["len", "reason"], descending=True)
    tasks = dataset.tasks()
    return {
        "dataset": str(dataset.path),
        "fingerprint": dataset.fingerprint(),
        "schema_version": dataset.manifest.schema_version,
        "lines": int(sources["lines"].sum()),
        "records": int(rows["records"].sum()),
        "duplicates": int(sources["duplicates"].sum()),
        "rejected": int(sources["rejected"].sum()),
        "candidates": int(rows["candidates"].sum()),
        "failed": int(rows["failed"].sum()),
        "formats": formats.to_dicts(),
        "states": dict(states.collect().iter_rows()),
        "machines": _machines(rows, tasks),
        "rejected_reasons": dict(reasons.iter_rows()),
        "sources": sources.to_dicts(),
        **_analysis(found),
        "tasks": [
            {
                **_task_summary(tasks[row["task_id"]]),
                **row,
                "enumerated": enumerated[row["task_id"]],
                **({} if found is None else plain(found.tasks[row["task_id"]])),
            }
            for row in rows.iter_rows(named=True)
        ],
    }


def _count_tasks(dataset: Dataset) -> pl.DataFrame:
    """Counts of each task, most records first."""
    columns = ["task_id", "candidate_id", "sketch_id", "state", "latency_s"]
    return (
        dataset.records(columns)
        .group_by("task_id")
        .agg(
            records=pl.len(),
            candidates=pl.col("candidate_id").n_unique(),
            sketches=pl.col("sketch_id").n_unique(),
            failed=(pl.col("state") != "ok").sum(),
            best_latency_s=pl.col("latency_s").min(),
        )
        .sort(["records", "task_id"], descending=[True, False])
        .collect()
    )


def _analysis(found: Analysis | None) -> dict[str, Any]:
    """Keys of the analysis; of an empty dataset all is unknown."""
    if found is None:
        names = ("measuring_s", "timed_share", "verdicts", "backtest", "noise", "tuners")
        return {**dict.fromkeys(names), "failures": [], "knobs": []}
    values = found.to_dict()
    failures = [state for state in values.pop("states") if state["state"] != "ok"]
    return {"measuring_s": values.pop("seconds"), "failures": failures, **values}


def best_so_far(dataset: Dataset) -> list[dict[str, Any]]:
    """Best latency of each task, the task recorded last first.

    Keys: ``task_id``, ``name``, ``records``, ``best_latency_s`` (null where nothing went well).
    """
    tasks = dataset.tasks()
    rows = (
        dataset.records(["task_id", "latency_s"])
        .with_row_index("place")
        .group_by("task_id")
        .agg(records=pl.len(), best_latency_s=pl.col("latency_s").min(), last=pl.col("place").max())
        .sort("last", descending=True)
        .drop("last")
        .collect()
    )
    return [{"name": task_name(tasks[row["task_id"]]), **row} for row in rows.iter_rows(named=True)]


def _machines(rows: pl.DataFrame, tasks: dict[str, Task]) -> list[dict[str, Any]]:
    """Records and tasks by machine; the machine is null where nobody named it."""
    counts: dict[tuple[str | None, str], list[int]] = {}
    for task_id, records in rows.select("task_id", "records").iter_rows():
        task = tasks[task_id]
        entry = counts.setdefault((task.machine, task.target_kind), [0, 0])
        entry[0] += records
        entry[1] += 1
    ordered = sorted(counts.items(), key=lambda item: (-item[1][0], str(item[0])))
    return [
        {"machine": machine, "target_kind": kind, "records": records, "tasks": number}
        for (machine, kind), (records, number) in ordered
    ]


def _task_summary(task: Task) -> dict[str, Any]:
    return {
        "task_id": task.task_id,
        "name": task_name(task),
        "workload": task.workload,
        "format": task.format,
        "target": task.target,
        "target_kind": task.target_kind,
        "machine": task.machine,
        "hardware": task.hardware,
    }


def task_name(task: Task) -> str:
    """Short name for people: the workload and the numbers of its arguments."""
    return f"{task.workload}({_brief(task.arguments)})"


def _brief(arguments: Any) -> str:
    if isinstance(arguments, (list, tuple)):
        if len(arguments) == 3 and arguments[0] == "TENSOR":
            shape = arguments[1] if isinstance(arguments[1], list) else arguments[2]
            return "x".join(map(str, shape)) if shape else "scalar"
        return ",".join(text for text in map(_brief, arguments) if text)
    if isinstance(arguments, bool) or arguments is None or isinstance(arguments, dict):
        return ""
    return str(arguments)
