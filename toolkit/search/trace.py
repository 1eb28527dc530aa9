"""The checkpoint of a run: every measured batch as one JSON line, written before it is told.

A run is resumed by asking its (deterministic) strategy again and answering from the trace. A line
that a crash cut short is dropped: its batch is measured again.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson

from toolkit.errors import SearchError
from toolkit.records import Candidate, Trial, TrialState


class Trace:
    """Batches of one run, kept in a file.

    Parameters
    ----------
    path
        JSON lines; created when absent.
    header
        What the run depends on (task, strategy, options, seed): a trace of another run is refused.
    """

    def __init__(self, path: Path, header: dict[str, Any] | None = None) -> None:
        self.path = path
        self._header = orjson.dumps(header or {}, option=orjson.OPT_SORT_KEYS)
        self._batches: list[dict[str, Any]] = []
        self._next = 0
        if path.exists():
            self._read()
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._write(self._header)

    def _read(self) -> None:
        content = self.path.read_bytes()
        lines = content.split(b"\n")
        whole, cut = lines[:-1], lines[-1]
        if not whole or whole[0] != self._header:
            raise SearchError(
                "the checkpoint belongs to a run with other settings",
                where=self.path,
                cure="give another folder, or remove the file to start again",
            )
        self._batches = [orjson.loads(line) for line in whole[1:]]
        if cut:
            with self.path.open("r+b") as file:
                file.truncate(len(content) - len(cut))

    def _write(self, line: bytes) -> None:
        with self.path.open("ab") as file:
            file.write(line + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def __len__(self) -> int:
        """Number of batches kept."""
        return len(self._batches)

    def replay(self, candidates: Sequence[Candidate]) -> tuple[list[Trial], list[float]] | None:
        """Return the next kept batch for these candidates, ``None`` when there is none."""
        if self._next >= len(self._batches):
            return None
        batch = self._batches[self._next]
        asked = [candidate.candidate_id for candidate in candidates]
        if batch["asked"] != asked:
            raise SearchError(
                f"batch {self._next + 1} of the checkpoint holds other candidates than were asked",
                where=self.path,
                cure="the strategy, its options or the space changed: start in another folder",
            )
        self._next += 1
        by_id = {candidate.candidate_id: candidate for candidate in candidates}
        trials = [
            Trial(
                candidate=by_id[entry["candidate_id"]],
                state=TrialState(entry["state"]),
                run_times_s=tuple(entry["run_times_s"]),
                elapsed_s=entry["elapsed_s"],
                timestamp=entry["timestamp"],
                error=entry["error"],
            )
            for entry in batch["trials"]
        ]
        return trials, list(batch["ends"])

    def append(
        self, candidates: Sequence[Candidate], trials: Sequence[Trial], ends: Sequence[float]
    ) -> None:
        """Keep a measured batch; it is on disk when this returns."""
        batch = {
            "asked": [candidate.candidate_id for candidate in candidates],
            "trials": [
                {
                    "candidate_id": trial.candidate.candidate_id,
                    "state": trial.state.value,
                    "run_times_s": trial.run_times_s,
                    "elapsed_s": trial.elapsed_s,
                    "timestamp": trial.timestamp,
                    "error": trial.error,
                }
                for trial in trials
            ],
            "ends": list(ends),
        }
        self._write(orjson.dumps(batch))
        self._batches.append(batch)
        self._next = len(self._batches)
