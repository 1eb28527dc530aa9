"""Hand-made records for replay tests: small, noisy, and complete or not."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import polars as pl

from toolkit.records import Knob, Sketch, Task, content_id
from toolkit.replay import RecordedTable
from toolkit.replay.statistics.metrics import Replayed
from toolkit.schema import RECORDS
from toolkit.testing.spaces import SKETCH, TILES

UNROLLS = (0, 16, 64)
SECOND = Sketch("s1", "autotvm", "toy-2", (Knob("tile_x", "tile", 0, 2),))


def toy_task(number: int = 0) -> Task:
    """One of several tasks of the same kind."""
    return Task(content_id("task", str(number)), "toy", f"toy{number}", [], "llvm", "llvm")


def latency(x: int, y: int, u: int, number: int = 0) -> float:
    """Seconds; lowest at tile_x = 4, tile_y = 8, unroll = 16, shifted a little by the task."""
    a, b, c = np.log2(x) - 2, np.log2(y) - 3, UNROLLS.index(u) - 1
    return float(1e-4 * (1 + number / 10) * (1 + 0.3 * a**2 + 0.2 * b**2 + 0.15 * c**2))


def row(
    task: Task,
    decisions: Sequence[int],
    seconds: float | None,
    order: int,
    *,
    sketch: Sketch = SKETCH,
    **other: Any,
) -> dict[str, Any]:
    """One record as the dataset keeps it."""
    free = [v for knob in sketch.knobs for v in decisions[knob.free]]
    times = [] if seconds is None else [seconds, seconds, seconds]
    return {
        "record_id": content_id(task.task_id, str(order)),
        "candidate_id": content_id(task.task_id, sketch.sketch_id, repr(free)),
        "task_id": task.task_id,
        "sketch_id": sketch.sketch_id,
        "source_id": "log",
        "line": order + 1,
        "order": order,
        "format": task.format,
        "format_version": "",
        "tvm_version": None,
        "schedule": "{}",
        "decisions": list(decisions),
        "state": "compile" if seconds is None else "ok",
        "error_number": None,
        "run_times_s": times,
        "latency_s": seconds,
        "elapsed_s": 1.0 if seconds is not None else 0.5,
        "timestamp": None,
        **other,
    }


def records(rows: Sequence[dict[str, Any]]) -> pl.DataFrame:
    """Rows as the dataset's frame."""
    return pl.DataFrame(list(rows), schema=RECORDS)


def toy_rows(number: int = 0, *, occasions: int = 1, noise: float = 0.0) -> list[dict[str, Any]]:
    """All 75 candidates in a scrambled order; those with tile_x = 16 fail."""
    task = toy_task(number)
    rng = np.random.default_rng(number)
    every = list(product(TILES, TILES, UNROLLS))
    rows = []
    for occasion in range(occasions):
        for i in rng.permutation(len(every)).tolist():
            x, y, u = every[i]
            factor = 1.0 if occasion == 0 else 1.0 + noise * float(rng.standard_normal())
            seconds = None if x == 16 else latency(x, y, u, number) * factor
            rows.append(row(task, (0, x, 0, y, u), seconds, len(rows)))
    return rows


def toy_table(
    number: int = 0, *, occasions: int = 1, noise: float = 0.0, enumerated: bool = True
) -> RecordedTable:
    """The toy space, recorded completely."""
    return RecordedTable.from_records(
        records(toy_rows(number, occasions=occasions, noise=noise)),
        toy_task(number),
        {"s0": SKETCH, "s1": SECOND},
        enumerated=enumerated,
    )


def replayed(
    table: RecordedTable,
    occasions: Sequence[int],
    clock_s: Sequence[float],
    *,
    missed_at: Sequence[int] = (),
    proposals: int,
    budget: int,
) -> Replayed:
    """A run that paid for these occasions of a table."""
    index = np.array(occasions)
    return Replayed(
        candidate=table.owner[index],
        state=table.state[index],
        latency_s=table.latency_s[index],
        value_s=table.occasion_value_s[index],
        clock_s=np.array(clock_s),
        missed_at=np.array(missed_at, dtype=np.int64),
        proposals=proposals,
        substituted=0,
        budget=budget,
        stopped="exhausted",
    )


class ToyDataset:
    """What ``simulate`` needs of a dataset, in memory."""

    def __init__(
        self, tasks: int = 2, *, occasions: int = 1, noise: float = 0.0, keep: float = 1.0
    ) -> None:
        self._rows: list[dict[str, Any]] = []
        self.networks: dict[str, str] = {}
        for number in range(tasks):
            rows = toy_rows(number, occasions=occasions, noise=noise)
            self._rows += rows[: int(keep * len(rows))]
        self._tasks = {toy_task(n).task_id: toy_task(n) for n in range(tasks)}
        self._complete = keep >= 1.0

    def records(self, columns: Sequence[str] | None = None) -> pl.LazyFrame:
        frame = records(self._rows).lazy()
        return frame if columns is None else frame.select(columns)

    def tasks(self) -> dict[str, Task]:
        return dict(self._tasks)

    def sketches(self) -> dict[str, Sketch]:
        return {"s0": SKETCH}

    def enumerated(self) -> dict[str, bool]:
        return dict.fromkeys(self._tasks, self._complete)

    def source_labels(self) -> dict[str, dict[str, str]]:
        """Labels of one source for each network of ``networks``."""
        return {source: {"network": network} for source, network in self.networks.items()}

    def fingerprint(self) -> str:
        return content_id(repr(self._rows))
