"""Extractor ``ansor-per-store``: Ansor's own features of an Ansor log, by an older TVM.

TVM (``auto_scheduler/feature.cc``, up to 0.19) extracts 164 columns of every buffer store; they are
folded as ``per-store`` does for MetaSchedule: ``as_max_<i>``, ``as_main_<i>`` and ``as_stores``.

That TVM runs in another Python interpreter. It can only lower programs whose workloads it can
rebuild: a Python file registers them. Tasks that it cannot rebuild are left out. Without an
interpreter only the features that the dataset already holds are used (``stored_only``).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import orjson

from toolkit import children
from toolkit.errors import DatasetError
from toolkit.features.base import CandidateGroup, FeatureBlock
from toolkit.features.extractors.per_store import WORKER, StoreExtractor
from toolkit.logs.formats.ansor.format import ansor_line
from toolkit.records import Task

# A made-up measurement for records: the features do not depend on it.
_ROW = {"run_times_s": [1.0], "error_number": 0, "state": "ok", "elapsed_s": 1.0, "timestamp": 0.0}


class AnsorStoreExtractor(StoreExtractor):
    """Ansor's per-store features, from a worker process of another interpreter.

    ``python`` is the interpreter with the older TVM; ``None`` uses only what the dataset holds.
    ``workloads`` are Python files that register them (``auto_scheduler.register_workload``). An
    answer (a batch) that takes longer than two minutes counts as a crash.
    """

    name = "ansor-per-store"
    prefix = "as"
    batch = 64

    def __init__(
        self, python: Path | str | None = None, workloads: Sequence[Path | str] = ()
    ) -> None:
        super().__init__(children.python(str(WORKER), interpreter=str(python)), timeout_s=120.0)
        self.stored_only = python is None
        self._python = str(python)
        self._known: dict[str, str | None] = {}
        for path in map(Path, workloads):
            if not path.is_file():
                raise DatasetError("the file of workloads does not exist", where=path)
        self.header = {"workloads": [str(Path(path).resolve()) for path in workloads]}

    def __enter__(self) -> AnsorStoreExtractor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

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
            reply = self.ask({"workload": key}) or {"error": "TVM crashed on it"}
            self._known[key] = None if reply.get("known") else str(reply.get("error", "unknown"))
        return self._known[key] is None

    def extract(self, group: CandidateGroup) -> FeatureBlock:
        """Extract every candidate of a group; NaN where TVM cannot lower one.

        Raises ``DatasetError`` without an interpreter, or when the group comes without schedules.
        """
        if self.stored_only:
            raise DatasetError(
                "Ansor's features need a TVM that has Ansor",
                cure="run: toolkit features --extractor ansor-per-store --tvm-python PATH",
            )
        rows = ({"schedule": schedule, **_ROW} for schedule in self.schedules_of(group))
        return self.rows_of([ansor_line(row, group.task).decode() for row in rows])

    def refusal(self, why: str) -> DatasetError:
        """Return the error for an interpreter without a usable TVM."""
        return DatasetError(
            f"the interpreter has no usable TVM with Ansor: {why}",
            where=self._python,
            cure="it must be able to import tvm.auto_scheduler (TVM 0.8 to 0.19) and the workloads",
        )
