"""MetaSchedule databases (``ms.database.JSONDatabase``) of any TVM version, read without TVM.

A database is two files. A line of ``database_tuning_record.json`` is
``[workload index, [[instructions, decisions], run times, target, arguments]]``; line *i* of
``database_workload.json`` is workload *i*. A failed record has one run time that means failure
(``[1e10]``, ``[1e9]`` or the integer ``10000000000``); there is no error number.

If the workload file is missing, a workload is identified by its index, its arguments, and the names
of its blocks in the trace.

``toolkit collect`` also writes ``database_trials.jsonl`` (one line per record: elapsed time,
timestamp, state) and ``collection.json`` (machine, protocol, names of the tasks).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from toolkit.logs.files.places import Place
from toolkit.logs.formats.metaschedule.trace import (
    FORMAT,
    check_instructions,
    chosen,
    read_skeleton,
)
from toolkit.logs.formats.metaschedule.workload import LoggedWorkload
from toolkit.logs.rows.base import BadLine, Reading, check_shapes, outcome_of, seconds
from toolkit.logs.rows.format import Beside
from toolkit.logs.rows.identity import Interner, make_task
from toolkit.records import Task, TrialState, canonical_json

LOST = "the workload file is missing: workloads are identified by block names and arguments"
_FAILURES = {state.value: state for state in TrialState if state is not TrialState.OK}


@dataclass(frozen=True)
class Database(Beside):
    """Content of the files beside the records of a database.

    Attributes
    ----------
    workloads
        By index; ``None`` if the line is damaged.
    trials
        Objects of ``database_trials.jsonl`` in record order (may be shorter than the log).
    names
        Task names by workload index, from ``collection.json``; ``space_sizes`` likewise.
    labels
        The machine's fingerprint, also from ``collection.json`` (``MACHINE_FINGERPRINT``).
    records, file
        The file of the records, and the file of their workloads.
    """

    workloads: Sequence[LoggedWorkload | None] = ()
    trials: Sequence[Any] = ()
    names: Mapping[int, str] = field(default_factory=dict)
    space_sizes: Mapping[int, int] = field(default_factory=dict)
    machine: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    records: Place | None = None
    file: Place | None = None

    @property
    def portable(self) -> bool:
        """False if a sidecar describes the records, or the database is in an archive.

        A sidecar's line is found by the record's index, which depends on all earlier blocks. And
        another process cannot open the files of an archive.
        """
        return not self.trials and (self.records is None or self.records.member is None)

    @property
    def note(self) -> str | None:
        return None if self.workloads else LOST

    @property
    def context(self) -> str:
        """The workload file, and whether a sidecar describes the records."""
        return f"{self.file} {bool(self.trials)}"

    def description(self) -> Any:
        return [str(self.records), None if self.file is None else str(self.file)]


class MetaScheduleReader:
    """Reads tuning records of one database into readings."""

    def __init__(self, database: Database, machine: str | None = None) -> None:
        self.database = database
        self._machine = machine or database.machine
        self.workloads: dict[str, int] = {}
        """Workload indices by task id."""
        self._tasks = Interner()
        self._skeletons = Interner()

    def interpret(self, entry: Any, index: int, line: bytes = b"") -> Reading:
        """Interpret a decoded line; ``index`` is the record's index, also in the sidecar."""
        if not (
            isinstance(entry, list)
            and len(entry) == 2
            and type(entry[0]) is int
            and isinstance(entry[1], list)
            and len(entry[1]) == 4
        ):
            raise BadLine("the line is not [workload, [trace, run times, target, arguments]]")
        which, (trace, costs, target, arguments) = entry
        if not isinstance(trace, list) or len(trace) != 2:
            raise BadLine("the trace is not [instructions, decisions]")
        check_instructions(trace[0])
        skeleton = self._skeletons.made(
            canonical_json(chosen(trace[0])), lambda: read_skeleton(trace[0])
        )
        decisions = skeleton.decide(trace[1])
        state, run_times = outcome_of([] if costs is None else costs, None)
        trials = self.database.trials
        told = trials[index] if index < len(trials) else None
        told = told if isinstance(told, dict) else {}
        if told and not run_times:
            state = _FAILURES.get(str(told.get("state")), TrialState.UNKNOWN)
        blocks = () if self.database.workloads else block_names(trace[0])
        task, tvm_version = self._tasks.made(
            canonical_json([which, target, arguments, blocks]),
            lambda: self.task(which, target, arguments, blocks),
        )
        return Reading(
            task=task,
            sketch=skeleton.sketch,
            decisions=decisions,
            schedule=canonical_json(trace).decode(),
            format_version="1",
            tvm_version=tvm_version,
            state=state,
            run_times_s=run_times,
            elapsed_s=seconds(told.get("elapsed_s"), "elapsed time in the sidecar"),
            timestamp=seconds(told.get("timestamp"), "timestamp in the sidecar"),
        )

    def task(
        self, which: int, target: Any, arguments: Any, blocks: Sequence[str] = ()
    ) -> tuple[Task, str | None]:
        """Return the task of a record, and its TVM version; raise ``BadLine``.

        ``blocks`` are the block names that identify a workload if its file is missing.
        """
        workloads = self.database.workloads
        workload = workloads[which] if 0 <= which < len(workloads) else None
        if workload is None and (workloads or which < 0):
            raise BadLine(f"workload {which} is missing or damaged")
        if isinstance(target, dict):
            kind = target.get("kind")
            text = canonical_json(target).decode()
            hardware = {k: v for k, v in target.items() if k not in ("kind", "keys", "tag")}
        elif isinstance(target, str):
            kind, text, hardware = target.split(" ", 1)[0], target, {}
        else:
            raise BadLine("the target is neither an object nor a string")
        name, told = self.database.names.get(which), workload
        task = make_task(
            format=FORMAT,
            workload=name or (told.name if told else "+".join(blocks) or f"workload {which}"),
            arguments=[],
            target=text,
            target_kind=kind if isinstance(kind, str) else "unknown",
            hardware=hardware,
            machine=self._machine,
            extents=told.extents if told else (),
            blob=told.line if told else None,
            identity=told.structural_hash if told else [which, *blocks, arguments],
            named=False,
        )
        check_shapes(arguments)
        self.workloads[task.task_id] = which
        return replace(task, arguments=arguments), told.tvm_version if told else None


def block_names(instructions: Sequence[Any]) -> tuple[str, ...]:
    """Return the sorted names of the blocks in the chosen part of a trace, without the root."""
    names = {
        str(attributes[0])
        for kind, _, attributes, _ in chosen(list(instructions))
        if kind in ("GetBlock", "GetSBlock") and attributes
    }
    return tuple(sorted(names - {"root"}))
