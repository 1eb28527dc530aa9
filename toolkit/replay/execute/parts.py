"""Finished pieces of a simulation on disk: one file a task and strategy, whole or absent.

A simulation that was killed finds its pieces again and computes only what is missing; the final
files are put together from the pieces in a fixed order, so that they are the same bytes whether
it was interrupted or not, and whatever the number of workers.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from toolkit.atomic import replacing, sweep, write_atomically
from toolkit.records import content_id
from toolkit.replay.execute.task_run import SeedRun
from toolkit.replay.record.table import STATES, RecordedTable
from toolkit.replay.scenario import Scenario

_METRICS = b"toolkit.metrics"


class Parts:
    """The pieces of one simulation.

    Parameters
    ----------
    folder
        Where the results go; pieces lie in ``parts/<key>``.
    key
        Hash of everything that the numbers depend on; pieces of another key are never mixed in.
    """

    def __init__(self, folder: Path, key: str) -> None:
        self.folder = folder / "parts" / key
        self.folder.mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> Parts:
        return self

    def __exit__(self, *_: object) -> None:
        # A failure ends the other processes in the middle of their pieces.
        sweep(self.folder)

    def path(self, task_id: str, label: str) -> Path:
        """File of one piece."""
        return self.folder / f"{content_id(task_id, label)}.parquet"

    def has(self, task_id: str, label: str) -> bool:
        """Whether a piece is finished."""
        return self.path(task_id, label).is_file()

    def write(self, task_id: str, label: str, table: pa.Table, metrics: list[Any]) -> None:
        """Keep one piece; it is there as a whole or not at all."""
        path = self.path(task_id, label)
        table = table.replace_schema_metadata({_METRICS: orjson.dumps(metrics)})
        with replacing(path) as temporary:
            pq.write_table(table, temporary, compression="zstd")

    def metrics(self, task_id: str, label: str) -> list[dict[str, Any]]:
        """Metrics of a finished piece, one entry a seed."""
        schema = pq.read_schema(self.path(task_id, label))
        found: list[dict[str, Any]] = orjson.loads(schema.metadata[_METRICS])
        return found

    def keep(self, name: Sequence[str], content: Any) -> None:
        """Keep a piece that is no table of runs, under any name of several words."""
        write_atomically(self._json(name), orjson.dumps(content))

    def kept(self, name: Sequence[str]) -> Any:
        """Return what ``keep`` was given, ``None`` where nothing was."""
        path = self._json(name)
        return orjson.loads(path.read_bytes()) if path.is_file() else None

    def _json(self, name: Sequence[str]) -> Path:
        return self.folder / f"{content_id('json', *name)}.json"

    def assemble(self, keys: Sequence[tuple[str, str]], target: Path) -> int:
        """Write all pieces into one file, in this order; return the number of rows."""
        rows = 0
        schema = pq.read_schema(self.path(*keys[0])).remove_metadata()
        with (
            replacing(target) as temporary,
            pq.ParquetWriter(temporary, schema, compression="zstd") as writer,
        ):
            for task_id, label in keys:
                piece = pq.read_table(self.path(task_id, label)).replace_schema_metadata(None)
                writer.write_table(piece)
                rows += piece.num_rows
        return rows

    def remove(self) -> None:
        """Drop the pieces (the simulation is complete), and any of older settings."""
        shutil.rmtree(self.folder.parent, ignore_errors=True)


def runs_table(
    table: RecordedTable, scenario: str, label: str, runs: Sequence[SeedRun]
) -> pa.Table:
    """One row an evaluation: what was measured, what it cost, and the best so far."""
    lengths = [len(r.replayed.candidate) for r in runs]
    total = sum(lengths)
    candidate = np.concatenate([r.replayed.candidate for r in runs]).astype(np.int32)
    latency = np.concatenate([r.replayed.latency_s for r in runs])
    value = np.concatenate([r.replayed.value_s for r in runs])
    best = np.concatenate([r.replayed.best_s() for r in runs])
    missed = np.concatenate(
        [
            np.searchsorted(r.replayed.missed_at, np.arange(n), side="right")
            for r, n in zip(runs, lengths, strict=True)
        ]
    )
    states = np.concatenate([r.replayed.state for r in runs]).astype(np.int32)

    def constant(text: str) -> pa.Array:
        return pa.DictionaryArray.from_arrays(pa.array(np.zeros(total, np.int32)), pa.array([text]))

    return pa.table(
        {
            "scenario": constant(scenario),
            "strategy": constant(label),
            "task_id": constant(table.task.task_id),
            "seed": np.repeat([r.seed for r in runs], lengths).astype(np.int32),
            "evaluation": np.concatenate([np.arange(1, n + 1) for n in lengths]).astype(np.int32),
            "clock_s": np.concatenate([r.replayed.clock_s for r in runs]),
            "candidate_id": pa.DictionaryArray.from_arrays(
                pa.array(candidate), pa.array(list(table.candidate_ids))
            ),
            "state": pa.DictionaryArray.from_arrays(
                pa.array(states), pa.array([state.value for state in STATES])
            ),
            "latency_s": pa.array(latency, from_pandas=True),
            "value_s": pa.array(value, from_pandas=True),
            "best_s": pa.array(best, from_pandas=True),
            "missed": missed.astype(np.int32),
        }
    )


def write_results(
    rows: Mapping[tuple[str, str], Sequence[Mapping[str, Any]]], scenario: Scenario, target: Path
) -> None:
    """Write one row a run with all its metrics."""
    flat = [
        {"scenario": scenario.name, "strategy": label, "task_id": task_id}
        | {k: v for k, v in row.items() if not k.startswith("curve_") and k != "steps"}
        for (task_id, label), runs in rows.items()
        for row in runs
    ]
    names = list(dict.fromkeys(name for row in flat for name in row))
    frame = pl.DataFrame({name: [row.get(name) for row in flat] for name in names}, strict=False)
    with replacing(target) as temporary:
        frame.write_parquet(temporary, compression="zstd")
