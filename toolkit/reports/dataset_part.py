"""The report's section on the dataset: what was recorded, and how hard each task is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from toolkit.datasets import Dataset, describe, open_dataset
from toolkit.reports.inputs import DATASET_FILE

SOURCES_LISTED = 200
LOGS_DRAWN = 8
CURVE_POINTS = 48
QUANTILES = {"q05": 0.05, "q25": 0.25, "q50": 0.5, "q75": 0.75, "q95": 0.95}
SHARES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0)
"""Shares of a task's candidates, fastest first, at which ``rarity`` is given."""

FloatArray = NDArray[np.float64]


def dataset_section(folder: Path | None) -> dict[str, Any]:
    """Summarise a dataset for the report.

    Beside what ``toolkit describe`` says, each task has ``best_s`` (lowest latency of a candidate,
    each the median over its good occasions: the definition that a replay uses), ``spread``
    (quantiles of the candidates' latencies over ``best_s``), ``rarity`` (the same at ``SHARES``)
    and ``convergence`` (best so far in recorded order, one curve a log).
    """
    if folder is None:
        return {"missing": "toolkit ingest LOGS"}
    dataset = open_dataset(folder)
    found = describe(dataset)
    spread = _spreads(dataset)
    curves = _convergence(dataset, {key: s["best_s"] for key, s in spread.items()})
    tasks = []
    for task in found["tasks"]:
        own = spread.get(task["task_id"], _NOTHING)
        tasks.append({**task, **own, "convergence": curves.get(task["task_id"], [])})
    elapsed = [task["measuring_s"] for task in tasks if task["measuring_s"]]
    return {
        "missing": None,
        "path": str(folder / DATASET_FILE),
        "fingerprint": found["fingerprint"],
        "schema_version": found["schema_version"],
        **{key: found[key] for key in ("lines", "records", "duplicates", "rejected")},
        **{key: found[key] for key in ("candidates", "failed", "formats", "states", "machines")},
        "rejected_reasons": found["rejected_reasons"],
        "sources_total": len(found["sources"]),
        "sources": found["sources"][:SOURCES_LISTED],
        "measuring_s": float(sum(elapsed)) if elapsed else None,
        "failing_s": float(sum(task["failing_s"] or 0.0 for task in tasks)) if elapsed else None,
        "rarity_shares": list(SHARES),
        "enumerated_tasks": sum(task["enumerated"] for task in tasks),
        "repeated_tasks": sum((task["occasions"] or 0) > 1 for task in tasks),
        "unknown_machine_tasks": sum(task["machine"] is None for task in tasks),
        "tasks": tasks,
    }


_NOTHING: dict[str, Any] = {"best_s": None, "spread": None, "rarity": None, "occasions": None}


def _spreads(dataset: Dataset) -> dict[str, dict[str, Any]]:
    """Best latency and quantiles of latency over it, by task; ``occasions`` is the most a
    candidate has."""
    ok = dataset.records(["task_id", "candidate_id", "latency_s"]).drop_nulls("latency_s")
    candidates = ok.group_by("task_id", "candidate_id").agg(
        value=pl.col("latency_s").median(), occasions=pl.len()
    )
    relative = pl.col("value") / pl.col("value").min()
    quantiles = {name: relative.quantile(q, "linear") for name, q in QUANTILES.items()}
    shares = {f"s{i}": relative.quantile(share, "linear") for i, share in enumerate(SHARES)}
    rows = (
        candidates.group_by("task_id")
        .agg(
            best_s=pl.col("value").min(), occasions=pl.col("occasions").max(), **quantiles, **shares
        )
        .collect()
    )
    return {
        row["task_id"]: {
            "best_s": row["best_s"],
            "occasions": row["occasions"],
            "spread": {name: row[name] for name in QUANTILES},
            "rarity": [row[name] for name in shares],
        }
        for row in rows.iter_rows(named=True)
    }


def _convergence(dataset: Dataset, best: dict[str, float]) -> dict[str, list[dict[str, Any]]]:
    """Best so far over the task's best, in each log's own order, thinned for drawing."""
    columns = ["task_id", "source_id", "order", "latency_s"]
    frame = dataset.records(columns).sort("task_id", "source_id", "order").collect()
    labels = dict(dataset.sources().select("source_id", "path").iter_rows())
    curves: dict[str, list[dict[str, Any]]] = {}
    for (task_id, source_id), part in frame.partition_by(
        "task_id", "source_id", as_dict=True, maintain_order=True
    ).items():
        reference = best.get(str(task_id))
        if reference is None:
            continue
        latency = part["latency_s"].cast(pl.Float64).to_numpy()
        reached = np.fmin.accumulate(np.where(np.isfinite(latency), latency, np.nan))
        # A single lucky repeat can lie below the median-based best: cut at 1.
        relative = np.minimum(1.0, np.nan_to_num(reference / reached, nan=0.0))
        at = _thin(relative)
        curves.setdefault(str(task_id), []).append(
            {
                "log": _log_name(labels.get(str(source_id), str(source_id))),
                "records": len(relative),
                "at": (at + 1).tolist(),
                "relative": [round(float(v), 4) for v in relative[at]],
            }
        )
    return {
        task_id: sorted(logs, key=lambda log: -log["records"])[:LOGS_DRAWN]
        for task_id, logs in curves.items()
    }


def _log_name(path: str) -> str:
    """Last parts of a path: file names alone are often the same."""
    return "/".join(Path(path).parts[-3:])


def _thin(curve: FloatArray) -> NDArray[np.int64]:
    """Indices that keep a curve's shape: where it changes, else evenly in the logarithm."""
    n = len(curve)
    if n <= CURVE_POINTS:
        return np.arange(n)
    changes = np.flatnonzero(np.diff(curve, prepend=-1.0) != 0)
    if len(changes) > CURVE_POINTS:
        picks = np.unique(np.geomspace(1, len(changes), CURVE_POINTS).astype(np.int64)) - 1
        changes = changes[picks]
    return np.unique(np.r_[0, changes, n - 1])
