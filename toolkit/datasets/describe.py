"""Summary of a dataset: sources, tasks, hardware, failures, best latencies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import polars as pl

from toolkit.datasets.analysis.analyse import analyse
from toolkit.datasets.analysis.result import Backtest, Noise, SketchKnob, Speeds, StateTime, Tuners
from toolkit.datasets.read.open import Dataset
from toolkit.datasets.tables import tasks_frame
from toolkit.records import Task
from toolkit.results import Result


@dataclass(frozen=True, repr=False)
class DatasetSummary(Result):
    """Summary of a dataset; unknown values are null.

    ``formats`` counts by format and version, ``states`` counts records by state, ``machines``
    counts by machine and kind of target. ``sources`` has one entry per file, ``tasks`` one per
    task, most records first, with the fields of ``TaskAnalysis``. All other fields are as in
    ``Analysis``.
    """

    dataset: str
    fingerprint: str
    schema_version: int
    lines: int
    records: int
    duplicates: int
    rejected: int
    candidates: int
    failed: int
    formats: list[dict[str, Any]]
    states: dict[str, int]
    machines: list[dict[str, Any]]
    rejected_reasons: dict[str, int]
    sources: list[dict[str, Any]]
    measuring_s: float | None  # known measuring time
    failures: tuple[StateTime, ...]
    verdicts: dict[str, int] | None
    backtest: Backtest | None
    timed_share: float | None
    noise: Noise | None
    speeds: Speeds | None
    knobs: tuple[SketchKnob, ...]
    tuners: Tuners | None
    tasks: list[dict[str, Any]]


def describe(dataset: Dataset, *, correct_speed: bool = False) -> DatasetSummary:
    """Summarise a dataset, or the part that some machines measured (``Dataset.of_machines``).

    ``correct_speed`` is passed to ``analyse``.
    """
    rows = (
        dataset.records(["task_id", "candidate_id", "sketch_id", "state", "latency_s"])
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
    enumerated = dataset.enumerated()
    found = analyse(dataset, enumerated, correct_speed=correct_speed)
    states = dataset.records(["state"]).group_by("state").len().sort("len", descending=True)
    formats = (
        dataset.records(["format", "format_version", "task_id"])
        .group_by(["format", "format_version"])
        .agg(records=pl.len(), tasks=pl.col("task_id").n_unique())
        .sort(["format", "format_version"])
    )
    sources = dataset.sources()
    reasons = dataset.rejected().group_by("reason").len().sort(["len", "reason"], descending=True)
    tasks = dataset.tasks()
    machines = (
        tasks_frame(tasks.values())
        .join(rows, on="task_id")
        .group_by("machine", "target_kind")
        .agg(pl.col("records").sum(), tasks=pl.len())
        .sort("machine", "target_kind", nulls_last=True)
        .sort("records", descending=True, maintain_order=True)
    )
    own = ("workload", "format", "target", "target_kind", "machine", "hardware")
    figures = ("verdicts", "backtest", "timed_share", "noise", "speeds", "tuners")
    return DatasetSummary(
        dataset=str(dataset.path),
        fingerprint=dataset.fingerprint(),
        schema_version=dataset.manifest.schema_version,
        lines=int(sources["lines"].sum()),
        records=int(rows["records"].sum()),
        duplicates=int(sources["duplicates"].sum()),
        rejected=int(sources["rejected"].sum()),
        candidates=int(rows["candidates"].sum()),
        failed=int(rows["failed"].sum()),
        formats=formats.collect().to_dicts(),
        states=dict(states.collect().iter_rows()),
        machines=machines.to_dicts(),
        rejected_reasons=dict(reasons.iter_rows()),
        sources=sources.to_dicts(),
        measuring_s=getattr(found, "seconds", None),
        failures=tuple(state for state in found.states if state.state != "ok") if found else (),
        knobs=found.knobs if found else (),
        **{name: getattr(found, name, None) for name in figures},
        tasks=[
            {
                "task_id": row["task_id"],
                "name": task_name(tasks[row["task_id"]]),
                **{name: getattr(tasks[row["task_id"]], name) for name in own},
                **row,
                "enumerated": enumerated[row["task_id"]],
                **(found.tasks[row["task_id"]].to_json() if found else {}),
            }
            for row in rows.iter_rows(named=True)
        ],
    )


def best_so_far(dataset: Dataset) -> list[dict[str, Any]]:
    """Return the best latency of each task, most recently recorded tasks first.

    Keys: ``task_id``, ``name``, ``records``, ``best_latency_s`` (null if every record failed).
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


def task_name(task: Task) -> str:
    """Return a short name for display: the workload and the numbers of its arguments.

    Without arguments, the extents of its loops (an Ansor task may have only a hash).
    """
    told = _brief(task.arguments) or ",".join(map(str, task.extents))
    return f"{task.workload}({told})"


def _brief(arguments: Any) -> str:
    if isinstance(arguments, (list, tuple)):
        if len(arguments) == 3 and arguments[0] == "TENSOR":
            shape = arguments[1] if isinstance(arguments[1], list) else arguments[2]
            return "x".join(map(str, shape)) if shape else "scalar"
        return ",".join(text for text in map(_brief, arguments) if text)
    if isinstance(arguments, bool) or arguments is None or isinstance(arguments, dict):
        return ""
    return str(arguments)
