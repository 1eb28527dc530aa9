"""Extractor ``ansor-per-store``: Ansor's own features of an Ansor log, by an older TVM.

TVM (``auto_scheduler/feature.cc``, up to 0.19) extracts 164 columns of every buffer store; a
candidate's row here is folded from its stores as ``per-store`` does for MetaSchedule:
``as_max_<i>``, ``as_main_<i>`` and ``as_stores``.

That TVM has an interpreter of its own. It can only lower programs whose workloads it can rebuild: a
Python file registers them. Tasks that it cannot rebuild are left out. Without an interpreter the
features are those that the dataset holds already (``stored_only``).
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from toolkit import children
from toolkit.errors import DatasetError
from toolkit.features.base import CandidateGroup, FeatureBlock
from toolkit.features.extractors.per_store import STORE_COLUMNS, fold
from toolkit.features.extractors.worker_process import WorkerProcess
from toolkit.logs.formats.ansor.format import ansor_line
from toolkit.records import Task

COLUMNS = (
    *(f"as_max_{i}" for i in range(STORE_COLUMNS)),
    *(f"as_main_{i}" for i in range(STORE_COLUMNS)),
    "as_stores",
)

BATCH = 64
"""Records a request: one that kills the process costs so many a second try, one by one."""

TIMEOUT_S = 120.0


class AnsorStoreExtractor:
    """Ansor's per-store features, from a worker process of another interpreter.

    Parameters
    ----------
    python
        The interpreter that has the older TVM; ``None`` takes what the dataset holds.
    workloads
        Python files that register workloads (``auto_scheduler.register_workload``).
    timeout_s
        Longest time for an answer (a batch), in seconds; what takes longer counts as a crash.
    """

    name = "ansor-per-store"
    version = 1

    def __init__(
        self,
        python: Path | str | None = None,
        workloads: Sequence[Path | str] = (),
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self.stored_only = python is None
        self._python = python
        self._workloads = [Path(path) for path in workloads]
        self._timeout_s = timeout_s
        self._worker: WorkerProcess | None = None
        self._known: dict[str, str | None] = {}
        self.crashes = 0
        self.tvm_version: str | None = None
        for path in self._workloads:
            if not path.is_file():
                raise DatasetError("there is no such file of workloads", where=path)

    def __enter__(self) -> AnsorStoreExtractor:
        return self

    def __exit__(self, *_: object) -> None:
        if self._worker is not None:
            self._worker.close()
            self._worker = None

    @property
    def refused(self) -> dict[str, str]:
        """Workload keys that could not be rebuilt, with what TVM said."""
        return {key: error for key, error in self._known.items() if error is not None}

    def supports(self, task: Task) -> bool:
        """Ansor tasks; with an interpreter those whose workload it can rebuild."""
        if task.format != "ansor" or not task.blob:
            return False
        if self.stored_only:
            return True
        key = str(orjson.loads(task.blob)[0])
        if key not in self._known:
            reply = self._started().ask({"workload": key}) or {"error": "TVM died of it"}
            known = bool(reply.get("known"))
            self._known[key] = None if known else str(reply.get("error", "unknown"))
        return self._known[key] is None

    def extract(self, group: CandidateGroup) -> FeatureBlock:
        """Extract every candidate of a group; NaN where TVM cannot lower one.

        Raises
        ------
        DatasetError
            Without an interpreter, or when the group comes without schedules.
        """
        if self.stored_only:
            raise DatasetError(
                "Ansor's features need a TVM that has Ansor",
                cure="run: toolkit features --extractor ansor-per-store --tvm-python PATH",
            )
        if group.schedules is None:
            raise DatasetError(
                "Ansor's features need the candidates' schedules",
                cure="use the extractor 'primitives' for candidates that are not recorded",
            )
        lines = [_line(schedule, group.task) for schedule in group.schedules]
        values = np.full((len(lines), len(COLUMNS)), np.nan, dtype=np.float32)
        for start in range(0, len(lines), BATCH):
            batch = lines[start : start + BATCH]
            found = self._ask(batch)
            if found is None:
                # One of them kills the process: each by itself costs only that one.
                found = [part for line in batch for part in (self._ask([line]) or [None])]
                self.crashes += sum(part is None for part in found)
            for row, stores in enumerate(found, start):
                if stores is not None and len(stores):
                    values[row] = fold(stores)
        return FeatureBlock(COLUMNS, values)

    def _started(self) -> WorkerProcess:
        if self._worker is not None and self._worker.alive:
            return self._worker
        script = Path(__file__).with_name("ansor_store_worker.py")
        command = children.python(str(script), interpreter=str(self._python))
        try:
            worker = WorkerProcess(
                command,
                timeout_s=self._timeout_s,
                environment={"TVM_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"},
            )
        except OSError as error:
            raise DatasetError(
                f"cannot be run: {error.strerror}",
                where=str(self._python),
                cure="--tvm-python takes the path of a Python interpreter",
            ) from None
        ready = worker.ask({"workloads": [str(path.resolve()) for path in self._workloads]})
        if ready is None or not ready.get("ready"):
            worker.close()
            why = "it did not answer" if ready is None else ready.get("error")
            raise DatasetError(
                f"has no TVM with Ansor that can be used: {why}",
                where=str(self._python),
                cure="it must import tvm.auto_scheduler (TVM 0.8 to 0.19) and the workloads",
            )
        if ready["columns"] != STORE_COLUMNS:
            worker.close()
            raise DatasetError(
                f"its TVM extracts {ready['columns']} columns, {STORE_COLUMNS} are known",
                where=str(self._python),
            )
        self.tvm_version = str(ready["tvm"])
        self._worker = worker
        return worker

    def _ask(self, lines: list[str]) -> list[NDArray[np.float64] | None] | None:
        """Stores of some records, ``None`` when the process died of them."""
        reply: dict[str, Any] | None = self._started().ask({"records": lines})
        if reply is None or "counts" not in reply:
            return None
        values = np.frombuffer(base64.b64decode(reply["values"]), dtype=np.float32)
        edges = np.cumsum(reply["counts"])[:-1]
        stores = values.reshape(-1, STORE_COLUMNS).astype(np.float64)
        return list(np.split(stores, edges))


def _line(schedule: str, task: Task) -> str:
    """A record with this schedule as TVM reads it; its result says nothing."""
    row = {
        "schedule": schedule,
        "run_times_s": [1.0],
        "error_number": 0,
        "state": "ok",
        "elapsed_s": 1.0,
        "timestamp": 0.0,
    }
    return ansor_line(row, task).decode()
