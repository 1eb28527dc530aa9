"""Write measurements as a MetaSchedule database, line by line, with facts that TVM leaves out.

``database_workload.json`` and ``database_tuning_record.json`` are TVM's own format
(``meta_schedule/database/json_database.cc``). A record of TVM has no state, no elapsed time and
no time stamp: line i of ``database_trials.jsonl`` has them for record i. ``collection.json``
describes the measurement. Every line is flushed, so finished measurements survive a kill.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TextIO

import orjson
import tvm
from tvm.s_tir import meta_schedule as ms

from toolkit.atomic import sweep, write_atomically
from toolkit.errors import LiveError
from toolkit.live.measure.fingerprint import differences
from toolkit.live.measure.machine import tvm_target
from toolkit.live.measure.program import MeasureResult
from toolkit.live.space.programs import plain
from toolkit.records import TrialState

# What TVM writes for a failed run (``meta_schedule/database/database_utils.cc``).
FAILED_RUN_SECS = [1e10]

COLLECTION_FILE, RECORDS_FILE = "collection.json", "database_tuning_record.json"
_OF_TRIAL = {"state", "elapsed_s", "timestamp", "error"}


class DatabaseWriter:
    """Appends to the database in a folder; a context manager.

    It continues a database that is in the folder (``records``, ``trials``). Raises ``LiveError``
    when a line is damaged, or the toolkit did not write the database.
    """

    def __init__(self, folder: Path, target: str) -> None:
        self.folder = folder
        self._target = plain_target(tvm_target(target))
        folder.mkdir(parents=True, exist_ok=True)
        sweep(folder)
        self._paths = [
            folder / "database_workload.json",
            folder / RECORDS_FILE,
            folder / "database_trials.jsonl",
        ]
        of_records, of_trials = self._paths[1:]
        if of_records.is_file() and of_records.stat().st_size and not of_trials.is_file():
            # No record has a line in the other file, so all records would be cut off.
            raise LiveError(
                "the folder holds a database that the toolkit did not write",
                where=folder,
                cure="give another --out",
            )
        workloads, records, trials = map(self._lines, self._paths)
        whole = min(len(records), len(trials))
        for path, lines in ((of_records, records), (of_trials, trials)):
            if len(lines) > whole:  # the run stopped between the two files
                del lines[whole:]
                write_atomically(path, "".join(f"{line}\n" for line in lines).encode())
        self.records = self._parsed(of_records, records, _is_record)
        self.trials = self._parsed(of_trials, trials, _is_trial)
        known = self._parsed(self._paths[0], workloads, _is_workload)
        self._indices = {str(line[0]): index for index, line in enumerate(known)}
        self._refused: set[str] | None = None
        self._files: list[TextIO] = [path.open("a", encoding="utf-8") for path in self._paths]
        half = [
            record
            for record, line in zip(self.records, self.trials, strict=True)
            if line["state"] != TrialState.OK.value and record[1][1] != FAILED_RUN_SECS
        ]
        for record in half:
            # The run stopped between the two files. TVM would compile with this wrong program.
            record[1][1] = FAILED_RUN_SECS
        if half:
            self._rewrite()

    def __enter__(self) -> DatabaseWriter:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files:
            # An error of a full disk was reported when the line was written.
            with contextlib.suppress(OSError):
                file.close()

    @staticmethod
    def _lines(path: Path) -> list[str]:
        """Return the lines of a file; cut off a last line that a kill left incomplete."""
        if not path.is_file():
            return []
        content = path.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        if len(whole) < len(content):
            write_atomically(path, whole)
        try:
            return [line for line in whole.decode().split("\n") if line.strip()]
        except UnicodeDecodeError:
            raise _damaged(path) from None

    @staticmethod
    def _parsed(path: Path, lines: list[str], is_sound: Callable[[Any], bool]) -> list[Any]:
        try:
            found = [orjson.loads(line) for line in lines]
        except orjson.JSONDecodeError:
            raise _damaged(path) from None
        if not all(map(is_sound, found)):
            raise _damaged(path)
        return found

    def workload_index(self, module: tvm.IRModule) -> int:
        """Return the position of a workload; add it if it is new."""
        line = workload_line(module)
        key = str(orjson.loads(line)[0])
        if key not in self._indices:
            self._indices[key] = len(self._indices)
            self._write(0, line)
        return self._indices[key]

    def add(
        self,
        workload: int,
        trace: list[Any],
        arguments: list[Any],
        reading: MeasureResult,
        **more: Any,
    ) -> int:
        """Append one measurement; return its position.

        ``trace`` is ``[instructions, decisions]``. ``more`` goes into the line of
        ``database_trials.jsonl`` (``occasion``, ``parent``, ``direction``).
        """
        ok = reading.state is TrialState.OK
        run_secs = list(reading.run_times_s) if ok else FAILED_RUN_SECS
        record = [workload, [trace, run_secs, self._target, arguments]]
        trial = {
            "elapsed_s": reading.build_s + reading.run_s,
            "timestamp": time.time(),
            "state": reading.state.value,
            "error": reading.error,
            "build_s": reading.build_s,
            "foreign_share": round(reading.foreign_share, 4),
            "retries": reading.retries,
            **({"processors": list(reading.processors)} if reading.processors else {}),
            "occasion": 0,
            "parent": None,
            "direction": None,
            **more,
        }
        self._write(1, orjson.dumps(record).decode())
        self._write(2, orjson.dumps(trial).decode())
        self.records.append(record)
        self.trials.append(trial)
        return len(self.records) - 1

    def refuse(self, workload: int, candidate: str, error: str, **more: Any) -> None:
        """Write down a candidate of which TVM made no program.

        It has no valid trace, and TVM refuses a database with an invalid trace. So such candidates
        are in ``database_refused.jsonl``, each once.
        """
        path = self.folder / "database_refused.jsonl"
        if self._refused is None:
            known = self._parsed(path, self._lines(path), _is_refused)
            self._refused = {line["candidate"] for line in known}
        if candidate in self._refused:
            return
        self._refused.add(candidate)
        entry = {"workload": workload, "candidate": candidate, "error": error, **more}
        with path.open("ab") as file:
            file.write(orjson.dumps({**entry, "timestamp": time.time()}) + b"\n")

    def condemn(self, position: int, state: TrialState, error: str) -> None:
        """Turn a record into a failure: its program ran, but was found to be wrong later.

        The search's reading is kept as ``searched_s``.
        """
        self.trials[position].setdefault("searched_s", self.records[position][1][1])
        self.records[position][1][1] = FAILED_RUN_SECS
        self.trials[position].update(state=state.value, error=error)
        self._rewrite()

    def settle(self, latencies_s: Mapping[int, float], **more: Any) -> None:
        """Write the latencies of programs that were measured again, by position, best first.

        TVM compiles with the record whose mean run time is lowest, so a record's ``run_secs`` are
        scaled to this latency. The search's reading is kept as ``searched_s``, with the program's
        ``final_place`` (1: the winner) and ``more``.
        """
        for place, (position, latency_s) in enumerate(latencies_s.items(), start=1):
            times = self.records[position][1][1]
            self.trials[position].setdefault("searched_s", list(times))
            self.trials[position].update(final_place=place, **more)
            scale = latency_s * len(times) / sum(times)
            self.records[position][1][1] = [seconds * scale for seconds in times]
        self._rewrite()

    def _rewrite(self) -> None:
        # The trials first: after a kill in between, they still have the search's readings.
        for which, entries in ((2, self.trials), (1, self.records)):
            self._files[which].close()
            lines = b"".join(orjson.dumps(entry) + b"\n" for entry in entries)
            write_atomically(self._paths[which], lines)
            self._files[which] = self._paths[which].open("a", encoding="utf-8")

    def _write(self, which: int, line: str) -> None:
        path = self._paths[which]
        before = path.stat().st_size
        try:
            self._files[which].write(line + "\n")
            self._files[which].flush()
        except OSError as error:
            # The file object keeps what did not fit, and would write it later.
            with contextlib.suppress(OSError):
                self._files[which].close()
            # An incomplete line would be joined with the next one.
            with contextlib.suppress(OSError):
                os.truncate(path, before)
            raise LiveError(
                f"could not write: {error.strerror}",
                where=path,
                cure="free some space and run the same command again: it goes on from here",
            ) from None

    def describe(self, collection: dict[str, Any]) -> None:
        """Write ``collection.json``: machine, protocol, and the known facts of each task.

        Tasks that earlier runs measured into the folder keep their entries. Raises ``LiveError``
        when the folder holds measurements of another machine.
        """
        path = self.folder / COLLECTION_FILE
        about = read_collection(self.folder)
        before = about.get("machine_fingerprint")
        now = collection.get("machine_fingerprint")
        if before and now and self.records and (other := differences(before, now)):
            raise LiveError(
                f"the folder holds measurements of a machine with other {', '.join(other)}",
                where=self.folder,
                cure="give another --out: records of two machines must not be compared",
            )
        told, own = about.get("tasks"), {task["workload_index"] for task in collection["tasks"]}
        kept = [
            task
            for task in (told if isinstance(told, list) else [])
            if isinstance(task, dict)
            and task.keys() >= collection["tasks"][0].keys()
            and task["workload_index"] in range(len(self._indices))
            and task["workload_index"] not in own
        ]
        content = {**collection, "tasks": [*kept, *collection["tasks"]]}
        write_atomically(path, orjson.dumps(content, option=orjson.OPT_INDENT_2))


def read_collection(folder: Path) -> dict[str, Any]:
    """Return the content of ``collection.json``; empty if it is missing or damaged."""
    try:
        about = orjson.loads((folder / COLLECTION_FILE).read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return {}
    return about if isinstance(about, dict) else {}


def _is_record(record: Any) -> bool:
    """Return whether it has the form ``[workload, [[_, _], run times, target, arguments]]``."""
    match record:
        case [_, [[_, _], [*_], _, _]]:
            return True
    return False


def _is_trial(line: Any) -> bool:
    return isinstance(line, dict) and line.keys() >= _OF_TRIAL


def _is_workload(line: Any) -> bool:
    return isinstance(line, list) and len(line) > 0


def _is_refused(line: Any) -> bool:
    return isinstance(line, dict) and "candidate" in line


def _damaged(path: Path) -> LiveError:
    return LiveError(
        "a line of this file is damaged",
        where=path,
        cure="restore the file, or give another --out",
    )


def workload_line(module: tvm.IRModule) -> str:
    """Return a workload as its line of the database: ``["hash", "base64 of its graph"]``."""
    return orjson.dumps(plain(ms.database.Workload(module).as_json())).decode()


def plain_target(target: tvm.target.Target) -> dict[str, Any]:
    """Return a target as the JSON object that TVM writes into records."""
    exported: dict[str, Any] = orjson.loads(str(target))
    return exported
