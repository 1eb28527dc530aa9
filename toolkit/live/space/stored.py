"""Reads a MetaSchedule database as it lies there; nothing is rebuilt.

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
"""From here on run times stand for a failure: TVM writes 1e10."""


@dataclass(frozen=True)
class StoredRecord:
    """A line of ``database_tuning_record.json``, counted from 1.

    ``workload`` is its line of ``database_workload.json``, from 0, ``seconds`` its mean run time
    (infinite: it failed); ``content`` is ``[trace, run times, target, arguments]``.
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
        """What it was measured for, as TVM reads it."""
        told = self.content[2]
        return told if isinstance(told, str) else orjson.dumps(told).decode()


def read_database(folder: Path) -> tuple[list[str], list[StoredRecord]]:
    """Lines of the workloads, and all records; a line that a kill cut off is left out.

    Raises ``LiveError`` when the folder holds no database.
    """
    paths = [folder / f"database_{name}.json" for name in ("workload", "tuning_record")]
    if not all(path.is_file() for path in paths):
        raise LiveError(
            "it holds no MetaSchedule database",
            where=folder,
            cure="name a folder of 'toolkit tune', 'toolkit collect' or TVM's tune_tir",
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
            continue  # 'toolkit ingest' accounts for each line
        failed = not 0 < mean_s < FAILED_S
        if workload >= 0:
            records.append(StoredRecord(number, workload, math.inf if failed else mean_s, content))
    return [line for line in workloads if line], records
