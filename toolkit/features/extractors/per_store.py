"""Extractors ``per-store`` and ``per-statement``: TVM's own 164 features of every buffer store.

TVM (``meta_schedule/feature_extractor/per_store_feature.cc``) extracts one row for each store.
A row of ``per-store`` holds, for each of the 164 columns, the maximum over its stores and the value
of its busiest store (the one with the most arithmetic), and the number of stores: 329 columns,
``ps_max_<i>``, ``ps_main_<i>`` and ``ps_stores``.

TVM runs in a process of its own (``store_worker.py``): a candidate that crashes it has an empty
row, the process is started again, and the rest goes on. Only databases that the installed TVM can
load are supported (TVM 0.27: not those of 0.18 or 0.23), and only candidates with recorded
schedules.
"""

from __future__ import annotations

import base64
import contextlib
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from toolkit import children
from toolkit.compiler import require_tvm
from toolkit.errors import DatasetError
from toolkit.features.base import CandidateGroup, FeatureBlock, Floats
from toolkit.records import Task

STORE_COLUMNS = 164

ARITHMETIC = 16
"""Number of first columns, which count arithmetic by kind, log-scaled (TVM's group 1)."""

MOST_STATEMENTS = 8
"""Stores that are kept; of a longer program those with the least arithmetic are left out."""

WORKER = Path(__file__).with_name("store_worker.py")


class StoreExtractor:
    """Base of the extractors that get the stores' features from a TVM in another process.

    ``batch`` records are sent at a time. If one kills the process, or takes longer than
    ``timeout_s`` seconds, each of them gets a second try by itself; those that fail again are
    counted in ``crashes``. A process that dies at once is started up to ``starts`` times;
    ``header`` is the first message to it.
    """

    name = ""
    version = 1
    prefix = ""
    batch = 1
    starts = 1

    def __init__(self, command: Sequence[str], timeout_s: float) -> None:
        self._command, self._timeout_s = command, timeout_s
        self._process: subprocess.Popen[bytes] | None = None
        self._killed = False
        self.header: dict[str, Any] = {}
        self.crashes = 0
        self.tvm_version: str | None = None

    @property
    def running(self) -> bool:
        """Whether the process is running."""
        return self._process is not None and self._process.poll() is None

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            children.end(self._process)
            self._process = None

    def refusal(self, why: str) -> DatasetError:
        """Return the error for a process that does not get ready."""
        raise NotImplementedError

    def ask(self, message: Mapping[str, Any]) -> dict[str, Any] | None:
        """Ask the process (started if there is none); ``None`` if it dies or hangs.

        A process that was killed from outside is asked once more: that is no record's fault.
        """
        for _ in range(2):
            if not self.running:
                self._start()
            reply = self._exchange(message)
            if reply is not None or not self._killed:
                break
        return reply

    def _start(self) -> None:
        ready = None
        for _ in range(self.starts):
            self.close()
            try:
                self._process = children.start(
                    self._command,
                    environment={"TVM_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"},
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                )
            except OSError as error:
                raise DatasetError(
                    f"the interpreter cannot be run: {error.strerror}",
                    where=self._command[0],
                    cure="--tvm-python takes the path of a Python interpreter",
                ) from None
            self._lines = children.Lines(self._process)
            ready = self._exchange(self.header)
            if ready is not None:
                break
        if ready is None or not ready.get("ready"):
            self.close()
            raise self.refusal("it did not answer" if ready is None else str(ready.get("error")))
        self.tvm_version = str(ready.get("tvm"))

    def _exchange(self, message: Mapping[str, Any]) -> dict[str, Any] | None:
        """Send a message and return the answer; if none comes, end the process."""
        assert self._process is not None
        reply: dict[str, Any] | None = None
        self._killed = False
        try:
            with contextlib.suppress(OSError, ValueError, TypeError):
                self._lines.send(message)
                found = self._lines.receive(self._timeout_s)
                reply = None if found is None else dict(found)
            if reply is None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(timeout=1)  # one that ended may need a moment to be gone
                self._killed = children.killed_from_outside(self._process)
        finally:
            # Interrupted, too: a late answer would be taken as the answer to the next message.
            if reply is None:
                self.close()
        return reply

    def columns(self) -> tuple[str, ...]:
        """Names of a row's columns."""
        words = [f"{word}_{i}" for word in ("max", "main") for i in range(STORE_COLUMNS)]
        return tuple(f"{self.prefix}_{word}" for word in (*words, "stores"))

    def row(self, stores: Floats) -> NDArray[np.float32]:
        """Make a candidate's row from its ``(stores, 164)`` matrix."""
        busiest = int(stores[:, :ARITHMETIC].sum(axis=1).argmax())
        parts = [stores.max(axis=0), stores[busiest], [float(len(stores))]]
        return np.concatenate(parts).astype(np.float32)

    def schedules_of(self, group: CandidateGroup) -> Sequence[str]:
        """Return the schedules of a group; raise ``DatasetError`` if it has none."""
        if group.schedules is None:
            raise DatasetError(
                f"{self.name} features need the candidates' schedules",
                cure="use the extractor 'primitives' for candidates that are not recorded",
            )
        return group.schedules

    def rows_of(self, records: Sequence[str]) -> FeatureBlock:
        """Ask for the stores of some records; NaN where TVM cannot lower one."""
        columns = self.columns()
        values = np.full((len(records), len(columns)), np.nan, dtype=np.float32)
        for start in range(0, len(records), self.batch):
            batch = records[start : start + self.batch]
            found = self._stores(batch)
            if found is None:
                # One of them kills the process: asked one by one, only that one is lost.
                single = [self._stores([r]) for r in batch] if len(batch) > 1 else [None]
                self.crashes += sum(stores is None for stores in single)
                found = [np.zeros((0, 1)) if stores is None else stores[0] for stores in single]
            for row, stores in enumerate(found, start):
                if len(stores):
                    values[row] = self.row(stores)
        return FeatureBlock(columns, values)

    def _stores(self, records: Sequence[str]) -> list[Floats] | None:
        reply = self.ask({"records": records})
        if reply is None or "counts" not in reply:
            return None
        values = np.frombuffer(base64.b64decode(reply["values"]), dtype=reply["dtype"])
        stores = values.reshape(-1, STORE_COLUMNS).astype(np.float64)
        return list(np.split(stores, np.cumsum(reply["counts"])[:-1]))


class PerStoreExtractor(StoreExtractor):
    """TVM's per-store features, one candidate at a time.

    ``command`` runs the worker, also in another interpreter. A candidate that takes longer than
    ``timeout_s`` seconds counts as a crash.
    """

    name = "per-store"
    prefix = "ps"
    starts = 3

    def __init__(self, command: Sequence[str] | None = None, timeout_s: float = 60.0) -> None:
        super().__init__(command or children.python(str(WORKER)), timeout_s)

    def supports(self, task: Task) -> bool:
        """MetaSchedule tasks whose workload has the format of TVM 0.23 and later."""
        if task.format != "metaschedule" or not task.blob:
            return False
        try:
            return b'"root_index"' in base64.b64decode(orjson.loads(task.blob)[1])
        except (ValueError, IndexError, TypeError):
            return False

    def extract(self, group: CandidateGroup) -> FeatureBlock:
        """Extract every candidate of a group.

        Raises ``DatasetError`` when it has no schedules, or TVM cannot load its workload.
        """
        schedules, task = self.schedules_of(group), group.task
        require_tvm()
        header = {"workload": task.blob, "target": task.target, "arguments": task.arguments}
        before, self.header = self.header, header
        # TVM takes a second to load: one process serves all tasks.
        if before != header and self.running and not (self.ask(header) or {}).get("known"):
            self.close()  # Started again, it reports the reason.
        return self.rows_of(schedules)

    def __del__(self) -> None:
        # Callers do not know that a process computes the features, and do not close it.
        with contextlib.suppress(Exception):
            self.close()

    def refusal(self, why: str) -> DatasetError:
        """Return the error for a workload that TVM cannot load."""
        return DatasetError(
            f"TVM cannot load this workload: {why}",
            cure="use the extractor 'primitives', which needs no TVM",
        )


class PerStatementExtractor(PerStoreExtractor):
    """Extractor ``per-statement``: TVM's features of every store, kept apart.

    A model that adds up a score of each statement (Zheng et al. 2020, section 5.2) needs the stores
    themselves, which ``per-store`` folds. A candidate's row holds them side by side as
    ``ps_<k>_<i>``: column ``i`` of the store with the ``k``-th most arithmetic, from 0 on; stores
    that do as much stay in the program's order. Places beyond a program's stores are NaN.
    """

    name = "per-statement"

    def columns(self) -> tuple[str, ...]:
        """Names of a row's columns, store after store."""
        stores, own = range(MOST_STATEMENTS), range(STORE_COLUMNS)
        return tuple(f"{self.prefix}_{k}_{i}" for k in stores for i in own)

    def row(self, stores: Floats) -> NDArray[np.float32]:
        """Lay a ``(stores, 164)`` matrix out as one row, the busiest store first."""
        arithmetic = stores[:, :ARITHMETIC].sum(axis=1)
        kept = stores[np.argsort(-arithmetic, kind="stable")[:MOST_STATEMENTS]]
        result = np.full((MOST_STATEMENTS, STORE_COLUMNS), np.nan, dtype=np.float32)
        result[: len(kept)] = kept
        return result.reshape(-1)
