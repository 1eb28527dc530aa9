"""Read the lines of a MetaSchedule database without rebuilding anything.

TVM's own ``JSONDatabase`` applies each record's trace when it opens (11 ms a record on a Zen 3).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from toolkit.errors import LiveError

FAILED_S = 1e8
"""Longer run times mean a failure: TVM writes 1e10."""


@dataclass(frozen=True)
class StoredRecord:
    """A line of ``database_tuning_record.json``, counted from 1.

    ``workload`` is the index of its line in ``database_workload.json``, from 0. ``seconds`` is its
    mean run time (infinite: it failed). ``content`` is ``[trace, run times, target, arguments]``.
    """

    line: int
    workload: int
    seconds: float
    content: list[Any]

    @property
    def trace(self) -> Any:
        """Instructions and decisions."""
        return self.content[0]

    @property
    def target(self) -> str:
        """The target that it was measured for, in the form that TVM reads."""
        told = self.content[2]
        return told if isinstance(told, str) else orjson.dumps(told).decode()


def read_database(folder: Path) -> tuple[list[str], list[StoredRecord]]:
    """Return the workload lines, and all records except lines that a kill cut off.

    Raises ``LiveError`` when the folder holds no database.
    """
    paths = [folder / f"database_{name}.json" for name in ("workload", "tuning_record")]
    if not all(path.is_file() for path in paths):
        raise LiveError(
            "the folder holds no MetaSchedule database",
            where=folder,
            cure="name a folder that 'toolkit tune', 'toolkit collect' or TVM's tune_tir wrote",
        )
    workloads, lines = (path.read_text("utf-8", errors="replace").split("\n") for path in paths)
    records = []
    for number, line in enumerate(lines, start=1):
        try:
            index, content = orjson.loads(line)
            (_, _), seconds, _, _ = content
            mean_s = float(sum(seconds) / len(seconds))
            workload = int(index)
        except (ValueError, TypeError, ZeroDivisionError):
            continue  # 'toolkit ingest' reports such lines
        failed = not 0 < mean_s < FAILED_S
        if workload >= 0:
            records.append(StoredRecord(number, workload, math.inf if failed else mean_s, content))
    return [line for line in workloads if line], records
