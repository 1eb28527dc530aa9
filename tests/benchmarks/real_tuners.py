"""Do simulated tuners agree with recorded runs of the real ones? Run by hand.

    python tests/benchmarks/real_tuners.py DATASET [--seeds 100]

DATASET is an ingested folder of AutoTVM logs whose sources are labelled ``network`` and ``tuner``::

    toolkit ingest LOGS --dataset DATASET \
        --path-rule '(?P<network>[^/]+)/(?P<tuner>[^/]+)/[^/]+$'

Every log of a tuner on a task whose space is completely recorded is one real run. It counts the
evaluations (repeats and failures included) until a candidate within 1 % of the task's best was
measured. The simulated tuner gets the real one's batch size, population and number of
measurements, another seed each time; the real figure should lie between the 5th and the 95th of a
hundred simulated ones. Not reaching it counts as infinity, on both sides.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import polars as pl

from toolkit.datasets import open_dataset
from toolkit.replay import RecordedSpace, RecordedTable, load_tables, parse_scenario
from toolkit.replay.execute.task_run import replay_once

# Versions from which tuners behave otherwise: the genetic tuner measures children again, and the
# droplet tuner is the one that was merged in place of the published one.
MERGED = (0, 11)


def as_run(tuner: str, tvm_version: str) -> dict[str, Any] | None:
    """Return the strategy that stands for a tuner of that TVM (population 50: TVM's tutorial)."""
    merged = tuple(int(part) for part in tvm_version.split(".")[:2]) >= MERGED
    known: dict[str, dict[str, Any]] = {
        "random": {"name": "random"},
        "gridsearch": {"name": "grid"},
        "ga": {"name": "genetic", "options": {"population": 50, "revisit": merged}},
        "droplet": {
            "name": "droplet-faithful",
            "options": {"version": "tvm" if merged else "2023"},
        },
        "xgb": {"name": "annealing"},
    }
    return known.get(tuner)


LOW, HIGH = 0.05, 0.95


def evaluations_to_1pct(table: RecordedTable, candidates: list[str]) -> float:
    """Number of the first measurement within 1 % of the best recorded; infinite for none."""
    assert table.best_s is not None
    value = dict(zip(table.candidate_ids, table.value_s.tolist(), strict=True))
    within = 1.01 * table.best_s
    return next((i for i, c in enumerate(candidates, 1) if value[c] <= within), float("inf"))


def simulated(space: RecordedSpace, choice: dict[str, Any], budget: int, seeds: int) -> list[float]:
    """Evaluations to within 1 % of so many simulated runs, ascending."""
    content = {"name": "x", "batch_size": 16, "budget": {"evaluations": budget}}
    scenario = parse_scenario({**content, "strategy": [choice]})
    found = []
    for seed in range(seeds):
        metrics = replay_once(space, scenario.strategies[0], scenario, seed).metrics
        at = metrics["evaluations_to_1pct"]
        found.append(float("inf") if at is None else float(at))
    return sorted(found)


def main() -> None:
    """Compare every recorded run and print one JSON object, disagreements last."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dataset", type=Path)
    parser.add_argument("--seeds", type=int, default=100)
    options = parser.parse_args()
    dataset = open_dataset(options.dataset)
    labels = {s["source_id"]: orjson.loads(s["labels"]) for s in dataset.sources().to_dicts()}
    columns = ["task_id", "source_id", "order", "candidate_id", "tvm_version"]
    records = dataset.records(columns).sort("source_id", "order").collect()
    tables = {t: table for t, table in load_tables(dataset).items() if table.enumerated}
    spaces = {task_id: RecordedSpace(table) for task_id, table in tables.items()}
    rows = []
    for (source_id,), part in records.partition_by(
        "source_id", as_dict=True, maintain_order=True
    ).items():
        tuner = labels[str(source_id)].get("tuner", "")
        choice = as_run(tuner, part["tvm_version"][0])
        if choice is None:
            continue
        for (task_id,), mine in part.partition_by("task_id", as_dict=True).items():
            if task_id not in tables:
                continue
            space, order = spaces[str(task_id)], mine["candidate_id"].to_list()
            real = evaluations_to_1pct(space.table, order)
            runs = simulated(space, choice, len(order), options.seeds)
            low, high = runs[int(LOW * len(runs))], runs[int(np.ceil(HIGH * len(runs))) - 1]
            row = {"tuner": tuner, "network": labels[str(source_id)].get("network")}
            row |= {"workload": space.task.workload, "candidates": len(space.table)}
            row |= {
                "task_id": task_id,
                "measurements": len(order),
                "simulated": choice,
            }
            row |= {"real": real, "low": low, "median": float(np.median(runs)), "high": high}
            rows.append(row | {"agrees": low <= real <= high})
    frame = pl.DataFrame([{k: r[k] for k in ("tuner", "agrees")} for r in rows])
    counts = frame.group_by("tuner").agg(pl.col("agrees").sum(), pl.len().alias("runs"))
    outside = [row for row in rows if not row["agrees"]]
    print(json.dumps({"tuners": counts.sort("tuner").to_dicts(), "outside": outside}, indent=2))


if __name__ == "__main__":
    main()
