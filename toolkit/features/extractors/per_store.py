"""Extractor ``per-store``: TVM's own 164 features of every buffer store, folded to one row.

TVM (``meta_schedule/feature_extractor/per_store_feature.cc``) extracts one row for each store.
A candidate's row here holds, for each of the 164 columns, the maximum over its stores and the value
of its busiest store (the one with the most arithmetic), and the number of stores: 329 columns,
``ps_max_<i>``, ``ps_main_<i>`` and ``ps_stores``.

TVM runs in a process of its own, one candidate at a time: a candidate that crashes it has an empty
row, the process is started again, and the rest goes on. Only databases that the installed TVM can
load are supported (TVM 0.27: not those of 0.18 or 0.23), and only candidates whose schedules are at
hand.
"""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from toolkit import children
from toolkit.compiler import require_tvm
from toolkit.errors import DatasetError
from toolkit.features.base import CandidateGroup, FeatureBlock
from toolkit.features.extractors.worker_process import WorkerProcess
from toolkit.records import Task

STORE_COLUMNS = 164
ARITHMETIC = 16
"""The first so many columns count arithmetic by kind, log-scaled (group 1 of TVM's features)."""

COLUMNS = (
    *(f"ps_max_{i}" for i in range(STORE_COLUMNS)),
    *(f"ps_main_{i}" for i in range(STORE_COLUMNS)),
    "ps_stores",
)

TIMEOUT_S = 60.0

STARTS = 3
"""How often a process is started for a workload before it counts as one that TVM cannot load."""


class PerStoreExtractor:
    """TVM's per-store features, from worker processes.

    Parameters
    ----------
    command
        What runs a worker; another interpreter may be named.
    timeout_s
        Longest time for one candidate, in seconds; what takes longer counts as a crash.
    """

    name = "per-store"
    version = 1

    def __init__(self, command: list[str] | None = None, timeout_s: float = TIMEOUT_S) -> None:
        self._command = command or children.python("toolkit.features.extractors.per_store_worker")
        self._timeout_s = timeout_s
        self.crashes = 0

    def supports(self, task: Task) -> bool:
        """MetaSchedule tasks whose workload is written as TVM 0.23 and later do."""
        if task.format != "metaschedule" or not task.blob:
            return False
        try:
            return b'"root_index"' in base64.b64decode(orjson.loads(task.blob)[1])
        except (orjson.JSONDecodeError, ValueError, IndexError, TypeError):
            return False

    def extract(self, group: CandidateGroup) -> FeatureBlock:
        """Extract every candidate of a group.

        Raises
        ------
        DatasetError
            When the group comes without schedules.
        """
        if group.schedules is None:
            raise DatasetError(
                "per-store features need the candidates' schedules",
                cure="use the extractor 'primitives' for candidates that are not recorded",
            )
        require_tvm()
        values = np.full((len(group), len(COLUMNS)), np.nan, dtype=np.float32)
        header = {
            "workload": group.task.blob,
            "target": group.task.target,
            "arguments": group.task.arguments,
        }
        with _Worker(self._command, header, self._timeout_s) as worker:
            for row, schedule in enumerate(group.schedules):
                stores = worker.ask(schedule)
                if stores is not None and len(stores):
                    values[row] = fold(stores)
            self.crashes += worker.crashes
        return FeatureBlock(COLUMNS, values)


def fold(stores: NDArray[np.float64]) -> NDArray[np.float32]:
    """Fold a ``(stores, 164)`` matrix to one row of ``COLUMNS``."""
    busiest = int(stores[:, :ARITHMETIC].sum(axis=1).argmax())
    parts = [stores.max(axis=0), stores[busiest], [float(len(stores))]]
    return np.concatenate(parts).astype(np.float32)


class _Worker:
    """One worker process at a time; a dead one is replaced before the next question."""

    def __init__(self, command: list[str], header: dict[str, Any], timeout_s: float) -> None:
        self._command, self._header, self._timeout_s = command, header, timeout_s
        self._process: WorkerProcess | None = None
        self.crashes = 0

    def __enter__(self) -> _Worker:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.close()

    def _started(self) -> WorkerProcess:
        if self._process is not None and self._process.alive:
            return self._process
        for _ in range(STARTS):
            self._process = WorkerProcess(
                self._command, timeout_s=self._timeout_s, environment={"TVM_NUM_THREADS": "1"}
            )
            ready = self._process.ask(self._header)
            if ready is not None and ready.get("ready"):
                return self._process
            self._process.close()
        raise DatasetError(
            "TVM does not load this workload",
            cure="use the extractor 'primitives', which needs no TVM",
        )

    def ask(self, schedule: str) -> NDArray[np.float64] | None:
        """Stores of one candidate, ``None`` where TVM fails on it or dies."""
        reply = self._started().ask({"schedule": schedule})
        if reply is None:
            self.crashes += 1
            return None
        stores = reply.get("stores")
        return None if stores is None else np.array(stores, dtype=np.float64)
