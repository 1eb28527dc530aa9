"""The Parquet files of a simulation: ``runs.parquet`` and ``results.parquet``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from toolkit.atomic import replacing
from toolkit.replay.record.table import STATES, RecordedTable
from toolkit.replay.statistics.metrics import Replayed
from toolkit.replay.statistics.summary import Rows


def runs_table(
    table: RecordedTable, scenario: str, label: str, runs: Mapping[int, Replayed]
) -> pa.Table:
    """One row an evaluation, by seed: what was measured, what it cost, and the best so far."""
    each = list(runs.values())
    lengths = [len(run.candidate) for run in each]
    first = np.zeros(sum(lengths), np.int32)
    join = np.concatenate

    def words(numbers: NDArray[Any], texts: Sequence[str]) -> pa.Array:
        return pa.DictionaryArray.from_arrays(
            pa.array(numbers.astype(np.int32)), pa.array(list(texts))
        )

    return pa.table(
        {
            "scenario": words(first, [scenario]),
            "strategy": words(first, [label]),
            "task_id": words(first, [table.task.task_id]),
            "seed": np.repeat(list(runs), lengths).astype(np.int32),
            "evaluation": join([np.arange(1, n + 1) for n in lengths]).astype(np.int32),
            "clock_s": join([run.clock_s for run in each]),
            "candidate_id": words(join([run.candidate for run in each]), table.candidate_ids),
            "state": words(join([run.state for run in each]), [s.value for s in STATES]),
            "latency_s": pa.array(join([run.latency_s for run in each]), from_pandas=True),
            "value_s": pa.array(join([run.value_s for run in each]), from_pandas=True),
            "best_s": pa.array(join([run.best_s() for run in each]), from_pandas=True),
            "missed": join(
                [
                    np.searchsorted(run.missed_at, np.arange(n), side="right")
                    for run, n in zip(each, lengths, strict=True)
                ]
            ).astype(np.int32),
        }
    )


def write_runs(tables: Sequence[Path], target: Path) -> None:
    """Put files of ``runs_table`` together, in this order."""
    with (
        replacing(target) as temporary,
        pq.ParquetWriter(temporary, pq.read_schema(tables[0]), compression="zstd") as writer,
    ):
        for path in tables:
            writer.write_table(pq.read_table(path))


def write_results(rows: Rows, scenario: str, target: Path) -> None:
    """Write one row a run with all its metrics."""
    flat = [
        {"scenario": scenario, "strategy": label, "task_id": task_id}
        | {k: v for k, v in row.items() if not k.startswith("curve_") and k != "steps"}
        for (task_id, label), runs in rows.items()
        for row in runs
    ]
    names = list(dict.fromkeys(name for row in flat for name in row))
    frame = pl.DataFrame({name: [row.get(name) for row in flat] for name in names}, strict=False)
    with replacing(target) as temporary:
        frame.write_parquet(temporary, compression="zstd")
