"""The record of one task in arrays: candidates, their decisions, and every occasion."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
import orjson
import polars as pl
from pydantic import Field

from toolkit.datasets.analysis.runs import LONGEST_GAP_S, dated_seconds, timed_seconds
from toolkit.errors import DatasetError
from toolkit.records import Candidate, Sketch, Task, Trial, TrialState
from toolkit.search.moves.knobs import FloatArray, IntArray
from toolkit.toml_file import Settings

COLUMNS = [
    "task_id",
    "candidate_id",
    "sketch_id",
    "source_id",
    "order",
    "schedule",
    "decisions",
    "state",
    "run_times_s",
    "latency_s",
    "elapsed_s",
    "timestamp",
]
STATES = tuple(TrialState)


class CostModel(Settings):
    """Seconds of a measurement if the log does not have them.

    A measurement is a build and then ``repeats`` runs of the program, each of at least
    ``minimal_run_s`` (TVM's ``min_repeat_ms``); a failure costs a build. The default is what one
    trial of MetaSchedule costs on a CPU of two cores: about a second, half of it building.
    """

    build_s: float = Field(default=0.5, gt=0)
    repeats: int = Field(default=3, ge=1, le=1_000_000)
    minimal_run_s: float = Field(default=0.1, ge=0)
    failed_s: float = Field(default=0.5, ge=0)
    longest_gap_s: float = Field(
        default=LONGEST_GAP_S,
        gt=0,
        description="A longer gap between timestamps is a pause, not a measurement.",
    )

    def seconds(self, latency_s: FloatArray) -> FloatArray:
        """Cost of measurements with these latencies (NaN: failed)."""
        runs = self.repeats * np.maximum(latency_s, self.minimal_run_s)
        return np.where(np.isnan(latency_s), self.failed_s, self.build_s + runs)


@dataclass(frozen=True)
class RecordedTable:
    """The measurements of one task.

    The n candidates are numbered in the order in which they were first recorded; the m occasions
    (one measurement of a candidate each) are sorted by candidate, then in recorded order.

    Attributes
    ----------
    sketch_of, decisions
        ``(n,)``: number of each candidate's sketch. For each sketch the decisions of its
        candidates in their order, ``(n_sketch, width)``.
    offsets
        ``(n + 1,)``: the occasions of candidate i are ``offsets[i]`` to ``offsets[i + 1]``.
    state, latency_s, elapsed_s, order
        ``(m,)``: number of each occasion's state in ``STATES``; its latency, NaN unless ok; the
        seconds of building and running it, always known; its place in recorded order.
    elapsed_sources
        How many elapsed times are recorded, from timestamps, and from the stated cost model.
    value_s
        ``(n,)``: a candidate's recorded latency: the median over its ok occasions, NaN for none.
    config_index
        ``(n,)``: AutoTVM's index of the configuration, where the log has it.
    enumerated
        Whether the whole space was recorded, so that "best recorded" is the optimum.
    """

    task: Task
    sketches: tuple[Sketch, ...]
    candidate_ids: tuple[str, ...]
    sketch_of: IntArray
    decisions: tuple[IntArray, ...]
    offsets: IntArray
    state: IntArray
    run_times_s: tuple[tuple[float, ...], ...]
    latency_s: FloatArray
    elapsed_s: FloatArray
    elapsed_sources: dict[str, int]
    value_s: FloatArray
    order: IntArray
    config_index: IntArray | None = None
    enumerated: bool = False

    def __len__(self) -> int:
        """Number of distinct candidates."""
        return len(self.candidate_ids)

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields only: cached values are not sent to other processes."""
        return {one.name: getattr(self, one.name) for one in fields(self)}

    @cached_property
    def candidates(self) -> tuple[Candidate, ...]:
        """All candidates, in recorded order."""
        rows = [map(tuple, matrix.tolist()) for matrix in self.decisions]
        return tuple(
            Candidate(candidate_id, self.sketches[s].sketch_id, next(rows[s]))
            for candidate_id, s in zip(self.candidate_ids, self.sketch_of.tolist(), strict=True)
        )

    @cached_property
    def trials(self) -> tuple[Trial, ...]:
        """One trial per occasion, made once and shared by all runs."""
        candidates = [self.candidates[i] for i in self.owner.tolist()]
        states = [STATES[s] for s in self.state.tolist()]
        return tuple(map(Trial, candidates, states, self.run_times_s, self.elapsed_s.tolist()))

    @property
    def occasions(self) -> IntArray:
        """Number of occasions of each candidate."""
        return np.diff(self.offsets)

    @cached_property
    def owner(self) -> IntArray:
        """Number of the candidate of each occasion, ``(m,)``."""
        return np.repeat(np.arange(len(self)), self.occasions)

    @cached_property
    def occasion_value_s(self) -> FloatArray:
        """Recorded value of each occasion's candidate, ``(m,)``; NaN where this occasion failed."""
        return np.where(np.isnan(self.latency_s), np.nan, self.value_s[self.owner])

    @cached_property
    def noisy(self) -> bool:
        """Whether any candidate has several occasions; if not, each candidate is one occasion."""
        return bool((self.occasions != 1).any())

    @cached_property
    def best_s(self) -> float | None:
        """Best recorded latency (the optimum only where ``enumerated``)."""
        best = np.fmin.reduce(self.value_s)
        return None if np.isnan(best) else float(best)

    @cached_property
    def best_occasions(self) -> frozenset[int]:
        """Occasions on which a candidate of the best recorded latency succeeded."""
        return frozenset(np.flatnonzero(self.occasion_value_s == self.best_s).tolist())

    @classmethod
    def from_records(
        cls,
        records: pl.DataFrame,
        task: Task,
        sketches: dict[str, Sketch],
        *,
        cost: CostModel | None = None,
        enumerated: bool = False,
    ) -> RecordedTable:
        """Build from records of one task (``COLUMNS``); raise ``DatasetError`` if it has none."""
        if records.is_empty():
            raise DatasetError(f"task {task.task_id} has no record", cure="run 'toolkit describe'")
        records = records.sort("source_id", "order", maintain_order=True)
        first = records.unique("candidate_id", keep="first", maintain_order=True)
        ids = first["candidate_id"].to_list()
        used = first["sketch_id"].unique(maintain_order=True).to_list()
        decisions = []
        for part in first.partition_by("sketch_id", maintain_order=True):
            width = sketches[part["sketch_id"][0]].width
            matrix = np.array(part["decisions"].to_list(), dtype=np.int64)
            decisions.append(matrix.reshape(len(part), width))
        sketch_of = _numbers(first["sketch_id"], used)
        elapsed, sources = elapsed_seconds(records, cost or CostModel())
        owner = _numbers(records["candidate_id"], ids)
        by_candidate = np.argsort(owner, kind="stable")
        records = records[by_candidate]
        latency = records["latency_s"].to_numpy().astype(np.float64)
        offsets = np.searchsorted(owner[by_candidate], np.arange(len(ids) + 1))
        return cls(
            task=task,
            sketches=tuple(sketches[s] for s in used),
            candidate_ids=tuple(ids),
            sketch_of=sketch_of,
            decisions=tuple(decisions),
            offsets=offsets,
            state=_numbers(records["state"], [state.value for state in STATES]),
            run_times_s=tuple(tuple(times or ()) for times in records["run_times_s"].to_list()),
            latency_s=latency,
            elapsed_s=elapsed[by_candidate],
            elapsed_sources=sources,
            value_s=_medians(latency, offsets),
            order=by_candidate,
            config_index=_config_index(task.format, first),
            enumerated=enumerated,
        )


def _numbers(texts: pl.Series, known: Sequence[str]) -> IntArray:
    """Place of each text in ``known``."""
    places = {text: place for place, text in enumerate(known)}
    return np.array([places[text] for text in texts.to_list()], dtype=np.int64)


def _medians(latency: FloatArray, offsets: IntArray) -> FloatArray:
    """Median of each candidate's ok latencies; NaN where it has none."""
    first, occasions = offsets[:-1], np.diff(offsets)
    owner = np.repeat(np.arange(len(occasions)), occasions)
    ordered = latency[np.lexsort((latency, owner))]  # NaN last
    good = np.bincount(owner, np.isfinite(latency)).astype(np.int64)
    low, high = ordered[first + np.maximum(good - 1, 0) // 2], ordered[first + good // 2]
    return np.asarray((low + high) / 2)


def _config_index(log_format: str, first: pl.DataFrame) -> IntArray | None:
    """Configuration index, which only AutoTVM writes: the order of grid search."""
    if log_format != "autotvm":
        return None
    rows = [orjson.loads(text or "null") for text in first["schedule"].to_list()]
    found = [row.get("index", row.get("i")) if isinstance(row, dict) else None for row in rows]
    known = all(isinstance(index, int) for index in found)
    return np.array(found, dtype=np.int64) if known else None


def elapsed_seconds(records: pl.DataFrame, cost: CostModel) -> tuple[FloatArray, dict[str, int]]:
    """Seconds of each record: recorded, else the gap between timestamps, else the cost model.

    Records must be in the order of their source; ``dated_seconds`` says which gaps are used.
    Returns the seconds, and how many came from each source.
    """
    known = records.select(
        elapsed=timed_seconds(), gap=dated_seconds(cost.longest_gap_s), latency="latency_s"
    )
    elapsed, gap, latency = (column.to_numpy().astype(np.float64) for column in known)
    recorded = np.isfinite(elapsed)
    timed = ~recorded & np.isfinite(gap)
    seconds = np.where(recorded, elapsed, np.where(timed, gap, cost.seconds(latency)))
    counts = {"recorded": recorded, "timestamps": timed, "cost_model": ~recorded & ~timed}
    return seconds, {source: int(which.sum()) for source, which in counts.items()}


def good_candidates(dataset: Any, task_ids: Sequence[str] | None = None) -> dict[str, int]:
    """Count the distinct candidates with a recorded latency, of tasks that have any."""
    frame = _records(dataset, ["task_id", "candidate_id", "latency_s"], task_ids)
    counts = frame.filter(pl.col("latency_s").is_finite()).group_by("task_id")
    return dict(counts.agg(pl.col("candidate_id").n_unique()).collect().iter_rows())


def load_tables(
    dataset: Any, task_ids: Sequence[str] | None = None, *, cost: CostModel | None = None
) -> dict[str, RecordedTable]:
    """Read the tables of tasks of an opened dataset in one pass, in the order of task ids.

    Tasks without a good candidate are left out.
    """
    frame = _records(dataset, COLUMNS, task_ids)
    parts = frame.collect().partition_by("task_id", as_dict=True, maintain_order=True)
    tasks, sketches, enumerated = dataset.tasks(), dataset.sketches(), dataset.enumerated()
    tables = {
        task_id: RecordedTable.from_records(
            part, tasks[task_id], sketches, cost=cost, enumerated=enumerated.get(task_id, False)
        )
        for (task_id,), part in sorted(parts.items())
    }
    return {task_id: table for task_id, table in tables.items() if table.best_s is not None}


def _records(dataset: Any, columns: Sequence[str], task_ids: Sequence[str] | None) -> pl.LazyFrame:
    frame: pl.LazyFrame = dataset.records(list(columns))
    return frame if task_ids is None else frame.filter(pl.col("task_id").is_in(list(task_ids)))
