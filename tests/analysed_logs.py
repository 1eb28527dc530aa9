"""Small logs with known answers, and what the analysis says of them; for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import loglines

from toolkit.datasets import ingest, open_dataset
from toolkit.datasets.analysis import Analysis, TaskAnalysis, analyse

MS = 1e-3


def write(path: Path, costs: list[Any], **fields: Any) -> Path:
    """Write a log of one task, one candidate a line; a cost is milliseconds, or ("error", n).

    ``fields`` are arguments of ``loglines.autotvm``; a list has one entry a line.
    """
    lines = []
    for n, cost in enumerate(costs):
        own = {key: v[n] if isinstance(v, list) else v for key, v in fields.items()}
        own = {"index": n + 1, "tiles": (1, 1, n + 1), "timestamp": 1e9, **own}
        if isinstance(cost, tuple):
            lines.append(loglines.autotvm(costs=[1e9], error=cost[1], **own))
        else:
            lines.append(loglines.autotvm(costs=[cost * MS], **own))
    path.parent.mkdir(parents=True, exist_ok=True)
    return loglines.write(path, *lines)


def analysed(folder: Path, *logs: Path, **options: Any) -> Analysis:
    ingest(logs, folder / "ds", **options)
    found = analyse(open_dataset(folder / "ds"))
    assert found is not None
    return found


def only_task(found: Analysis) -> TaskAnalysis:
    (task,) = found.tasks.values()
    return task


def curve(n: int, *steps: tuple[int, float]) -> list[float]:
    """Costs of a run of n evaluations whose best so far steps down at the places named."""
    costs, at = [], dict(steps)
    for i in range(1, n + 1):
        costs.append(at.get(i, 50.0 + i / 1000))
    return costs


def two_tuners(folder: Path) -> list[Path]:
    """Two tuners on two tasks: ``quick`` finds 2 ms early, ``slow`` ends at 2.16 ms."""
    logs = []
    for task in "ab":
        target = f"llvm -mcpu={task}"
        paths = {name: folder / name / f"{task}.log" for name in ("quick", "slow")}
        logs.append(
            write(
                paths["quick"], [9.0, 2.18, 2.0, 5.0], elapsed=[1.0, 2.0, 3.0, 4.0], target=target
            )
        )
        tiles = [(2, 2, n + 1) for n in range(4)]
        costs: list[Any] = [("error", 4), 8.0, 7.0, 2.16]
        logs.append(write(paths["slow"], costs, elapsed=10.0, target=target, tiles=tiles))
    return logs
