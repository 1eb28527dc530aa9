"""A dataset's records of the computations to be tuned: for look-ups, and to be measured first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import orjson
import polars as pl

from toolkit.datasets import Dataset
from toolkit.live.measure.fingerprint import machine_fingerprint
from toolkit.live.space.space import MetaScheduleSpace
from toolkit.records import MACHINE_FINGERPRINT, Candidate, Task, Trial
from toolkit.search.base import Oracle, Strategy
from toolkit.training.table.table import workload_key

PROGRAMS = 4
"""Number of recorded programs of a task that are measured before the search's own proposals."""


@dataclass(frozen=True, slots=True)
class Known:
    """A recorded task that computes the same loops.

    ``latency_s`` is the best candidate's: the median over its successful readings. ``exact`` says
    whether it is the same program, not one with another epilogue. ``same_machine`` says whether a
    machine of this name measured it, with this fingerprint if the logs have one.
    """

    task: Task
    records: int
    latency_s: float | None
    exact: bool
    same_machine: bool
    same_target: bool

    @property
    def how(self) -> str:
        """Text for the user: how the task relates to the one that is tuned."""
        if not self.exact:
            return "the same loops"
        if self.same_machine and self.same_target:
            return "this machine"
        return "another target" if not self.same_target else "another machine"


class Recorded:
    """Tasks of a dataset by the computation (``workload_key``)."""

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset
        self._twins: dict[str, list[Task]] = {}
        self._here: dict[str, str] = {}
        for task in dataset.tasks().values():
            if task.blob:
                self._twins.setdefault(workload_key(task), []).append(task)

    def of(self, task: Task) -> list[Known]:
        """Return the tasks with the computation of a live task, the closest first."""
        twins = self._twins.get(workload_key(task), [])
        if not twins:
            return []
        rows = (
            self._candidates(twins)
            .group_by("task_id")
            .agg(records=pl.col("occasions").sum(), latency_s=pl.col("latency_s").min())
        )
        told = {row[0]: row[1:] for row in rows.collect().iter_rows()}
        # A task may have no records left.
        found = [
            Known(
                twin,
                records=told.get(twin.task_id, (0, None))[0],
                latency_s=told.get(twin.task_id, (0, None))[1],
                exact=_hash(twin) == _hash(task),
                same_machine=twin.machine == task.machine
                and self._measured_here(twin, task.target),
                same_target=twin.target == task.target,
            )
            for twin in twins
        ]
        return sorted(found, key=_distance)

    def programs(self, space: MetaScheduleSpace, count: int = PROGRAMS) -> list[Candidate]:
        """Return the best recorded programs of a space's computation that are in the space.

        Programs of the closest recorded task come first.
        """
        found: dict[str, Candidate] = {}
        for known in self.of(space.task):
            best = self._candidates([known.task]).drop_nulls("latency_s").sort("latency_s")
            for schedule in best.head(count).collect()["schedule"]:
                if len(found) < count and (candidate := space.adopt(schedule)) is not None:
                    found[candidate.candidate_id] = candidate
        return list(found.values())

    def seconds_a_trial(self, machine: str | None) -> float | None:
        """Return the median seconds of a measurement on a machine; without records, on all."""
        ids = {t.task_id for t in self._dataset.tasks().values() if t.machine == machine}
        times = self._dataset.records(["task_id", "elapsed_s"]).drop_nulls("elapsed_s")
        own = times.filter(pl.col("task_id").is_in(list(ids)))
        for rows in (own, times):
            median = rows.select(pl.col("elapsed_s").median()).collect().item()
            if median is not None:
                return float(median)
        return None

    def _measured_here(self, twin: Task, target: str) -> bool:
        """Return whether this machine measured a task; true if the logs have no fingerprint."""
        told = self._fingerprints.get(twin.task_id)
        if not told:
            return True
        if target not in self._here:
            self._here[target] = machine_fingerprint(target)["id"]
        return self._here[target] in told

    @cached_property
    def _fingerprints(self) -> dict[str, set[str]]:
        """Fingerprints of the machines that measured each task, if their logs have them."""
        labels = self._dataset.source_labels()
        pairs = self._dataset.records(["task_id", "source_id"]).unique().collect()
        found: dict[str, set[str]] = {}
        for task_id, source_id in pairs.iter_rows():
            if name := labels.get(source_id, {}).get(MACHINE_FINGERPRINT):
                found.setdefault(task_id, set()).add(name)
        return found

    def _candidates(self, tasks: Iterable[Task]) -> pl.LazyFrame:
        """Return the candidates of tasks: schedule, occasions, and latency in seconds."""
        frame = self._dataset.records(
            ["task_id", "candidate_id", "schedule", "state", "latency_s"]
        ).filter(pl.col("task_id").is_in([task.task_id for task in tasks]))
        good = pl.col("latency_s").filter(pl.col("state") == "ok")
        return frame.group_by("task_id", "candidate_id", maintain_order=True).agg(
            pl.col("schedule").first(), latency_s=good.median(), occasions=pl.len()
        )


def _hash(task: Task) -> str:
    """Return TVM's structural hash of a task's workload."""
    return str(orjson.loads(task.blob or '[""]')[0])


def _distance(known: Known) -> tuple[bool, bool, bool, int]:
    return not known.exact, not known.same_target, not known.same_machine, -known.records


class RecordedFirst:
    """Measures recorded programs before a search's first candidates, within the size of its rounds.

    It is both the search's strategy and its oracle. ``measured`` counts the programs so far.
    """

    def __init__(self, strategy: Strategy, oracle: Oracle, programs: Sequence[Candidate]) -> None:
        self.name, self.tell = strategy.name, strategy.tell
        self._strategy, self._oracle = strategy, oracle
        self._programs = list(programs)
        self._now = 0
        self.measured = 0

    def ask(self, n: int) -> list[Candidate]:
        """Propose candidates, and leave room in the round for programs."""
        if n == 1 and self._programs:  # no room for both
            self.measured += 1
            return [self._programs.pop(0)]
        self._now = min(len(self._programs), n - 1)
        return self._strategy.ask(n - self._now)

    def measure(self, candidates: Sequence[Candidate]) -> list[Trial]:
        """Return one trial for each candidate, and then those of recorded programs."""
        asked = {candidate.candidate_id for candidate in candidates}
        first = [one for one in self._programs[: self._now] if one.candidate_id not in asked]
        self._programs = self._programs[self._now :]
        self.measured += self._now
        self._now = 0
        # Two batches: the known programs' latencies show which of the others are clearly slower.
        known = self._oracle.measure(first) if first else []
        return [*self._oracle.measure(candidates), *known]
