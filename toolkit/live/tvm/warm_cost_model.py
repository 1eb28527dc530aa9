"""A trained throughput model as MetaSchedule's cost model, which keeps learning.

Source of the contract: TVM 0.27 ``s_tir/meta_schedule/cost_model/cost_model.py``. Scores are
predicted relative throughput, 1 for the task's best, as in TVM's own model.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray
from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms

from toolkit.errors import ModelError
from toolkit.live.space.database import plain_target, workload_line
from toolkit.live.space.programs import entry_arguments, trace_json
from toolkit.logs.formats.metaschedule.reader import Database, MetaScheduleReader
from toolkit.logs.formats.metaschedule.workload import read_workload
from toolkit.records import Candidate, Sketch, Task, candidate_id
from toolkit.training.members.crossfit import ALL
from toolkit.training.table.cores import core_warnings, target_task
from toolkit.training.tasks.adaptation import Adapted
from toolkit.training.tasks.throughput import ThroughputModel
from toolkit.training.trained.scorer import candidate_features

FAILED = 1.0
"""A failure counts as this much slower than the task's slowest program, in log throughput."""

Matrix = NDArray[np.float32]


@dataclass
class Observed:
    """Measurements so far: rows of features, log throughput (NaN: failed), task number."""

    task_ids: list[str]
    features: Matrix
    log_throughput: NDArray[np.float64]
    task: NDArray[np.int64]

    def add(self, task_id: str, features: Matrix, log_throughput: NDArray[np.float64]) -> None:
        """Append measurements of one task."""
        if task_id not in self.task_ids:
            self.task_ids.append(task_id)
        new = np.full(len(features), self.task_ids.index(task_id), dtype=np.int64)
        self.features = np.concatenate([self.features, features])
        self.log_throughput = np.concatenate([self.log_throughput, log_throughput])
        self.task = np.concatenate([self.task, new])

    def rows(self) -> tuple[Matrix, NDArray[np.float64], NDArray[np.int64]]:
        """Return the rows of all tasks with a success; failures rank below the slowest."""
        value = self.log_throughput.copy()
        for number in range(len(self.task_ids)):
            own = self.task == number
            ran = own & np.isfinite(self.log_throughput)
            if ran.any():
                value[own & ~ran] = self.log_throughput[ran].min() - FAILED
        known = np.isfinite(value)
        return self.features[known], value[known], self.task[known]


@derived_object
class WarmCostModel(ms.cost_model.PyCostModel):  # type: ignore[misc]
    """Scores MetaSchedule's candidates and learns from their measurements (``live.cost_model``).

    With ``seen`` it uses the member that saw every task. Otherwise a task of the training data is
    scored by the member that left it out, as in ``toolkit predict``.
    """

    def __init__(self, model: ThroughputModel, seen: bool, machine: str | None) -> None:
        super().__init__()
        self.model, self.seen, self.machine = model, seen, machine
        nothing = np.zeros((0, len(model.columns)), dtype=np.float32)
        self.observed = Observed([], nothing, np.zeros(0), np.zeros(0, dtype=np.int64))
        self.readers: dict[tuple[str, str], tuple[MetaScheduleReader, Any, Any]] = {}
        self.adapted: dict[str, Adapted] = {}

    def predict(self, context: Any, candidates: Sequence[Any]) -> NDArray[np.float64]:
        """Return predicted relative throughput for each candidate; higher is faster."""
        if not len(candidates):
            return np.zeros(0)
        task, features = self.features(context, candidates)
        if task.task_id not in self.adapted:
            model = self.model
            member = model.members[ALL] if self.seen else model.choose_member(task)[0]
            self.adapted[task.task_id] = Adapted(member.ensemble, *self.observed.rows())
        return np.exp(self.adapted[task.task_id].predict(features))

    def update(self, context: Any, candidates: Sequence[Any], results: Sequence[Any]) -> None:
        """Add measurements; failures count as slow."""
        if not len(candidates):
            return
        task, features = self.features(context, candidates)
        value = np.array([_log_throughput(result) for result in results])
        self.observed.add(task.task_id, features, value)
        self.adapted.clear()

    def features(self, context: Any, candidates: Sequence[Any]) -> tuple[Task, Matrix]:
        """Return the task and the model's features ``(n, d)`` of candidates of a tune context.

        Raises ``ModelError`` if the model's extractor cannot read MetaSchedule candidates.
        """
        reader, target, arguments = self._reader(context)
        sketches: dict[str, Sketch] = {}
        read: list[Candidate] = []
        task: Task | None = None
        for candidate in candidates:
            entry = [0, [trace_json(candidate.sch.trace), [1.0], target, arguments]]
            reading = reader.interpret(orjson.loads(orjson.dumps(entry)), 0)
            task = reading.task
            sketches.setdefault(reading.sketch.sketch_id, reading.sketch)
            identity = candidate_id(task.task_id, reading.sketch, reading.decisions)
            read.append(Candidate(identity, reading.sketch.sketch_id, tuple(reading.decisions)))
        assert task is not None
        extractor = self.model.extractor(task)
        if not extractor.supports(task):
            raise ModelError(
                f"the model's features come from extractor {extractor.name!r}, which cannot read "
                "MetaSchedule candidates",
                cure="train a model with extractor = 'auto'",
            )
        return task, candidate_features(
            task, tuple(sketches.values()), read, extractor, self.model.columns
        )

    def _reader(self, context: Any) -> tuple[MetaScheduleReader, Any, Any]:
        line, target = workload_line(context.mod), plain_target(context.target)
        key = (line, str(target))
        if key not in self.readers:
            database = Database(workloads=(read_workload(line.encode()),), machine=self.machine)
            arguments = entry_arguments(context.mod, as_timed=False)
            for warning in core_warnings((self.model,), [target_task(str(context.target))]):
                warnings.warn(warning, UserWarning, stacklevel=2)
            self.readers[key] = (MetaScheduleReader(database), target, arguments)
        return self.readers[key]

    def save(self, path: str) -> None:
        """Write the measurements (``.npz``); the offline model is not changed."""
        observed = self.observed
        with Path(path).open("wb") as stream:
            np.savez(
                stream,
                columns=np.array(self.model.columns),
                task_ids=np.array(observed.task_ids, dtype=np.str_),
                features=observed.features,
                log_throughput=observed.log_throughput,
                task=observed.task,
            )

    def load(self, path: str) -> None:
        """Read a file that ``save`` wrote; it replaces all measurements so far.

        Raises ``ModelError`` if the file is not from ``save``, or is of a model with other columns.
        """
        try:
            with np.load(path, allow_pickle=False) as kept:
                columns = kept["columns"].tolist()
                rows = (kept[name] for name in ("features", "log_throughput", "task"))
                observed = Observed(kept["task_ids"].tolist(), *rows)
        except Exception as error:  # NumPy's errors have no type in common
            raise ModelError(
                f"the file holds no measurements of a cost model: {error}", where=path
            ) from None
        if columns != list(self.model.columns):
            raise ModelError(
                "the measurements were saved by a cost model with other feature columns",
                where=path,
                cure="load them into a cost model of the same trained model",
            )
        self.observed = observed
        self.adapted.clear()


def _log_throughput(result: Any) -> float:
    """Return the log of 1 / mean run time in seconds; NaN for a failure."""
    times = None if result.run_secs is None else [float(t) for t in result.run_secs]
    if not times or result.error_msg is not None:
        return float("nan")
    return -float(np.log(np.mean(times)))
