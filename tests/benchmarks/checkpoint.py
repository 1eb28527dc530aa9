"""The checkpoint of a run on a device: every measured batch as one JSON line, before it is told.

A run is resumed by asking its (deterministic) strategy again and answering from the file. A line
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
from toolkit.search.base import Oracle

FIELDS = ("run_times_s", "elapsed_s", "timestamp", "error")


class Checkpoint:
    """An oracle that keeps what another one measured, batch by batch.

    ``header`` is what the run depends on (task, strategy, options, seed): a file of another run is
    refused.
    """

    def __init__(self, oracle: Oracle, path: Path, header: dict[str, Any] | None = None) -> None:
        self.oracle, self.path = oracle, path
        own = orjson.dumps(header or {}, option=orjson.OPT_SORT_KEYS)
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            self._write(own)
        content = path.read_bytes()
        *lines, cut = content.split(b"\n")
        if not lines or lines[0] != own:
            raise SearchError(
                "the checkpoint belongs to a run with other settings",
                where=path,
                cure="give another folder, or remove the file to start again",
            )
        self._kept: list[dict[str, Any]] = [orjson.loads(line) for line in lines[1:]]
        if cut:
            with path.open("r+b") as file:
                file.truncate(len(content) - len(cut))

    def _write(self, line: bytes) -> None:
        with self.path.open("ab") as file:
            file.write(line + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def measure(self, candidates: Sequence[Candidate]) -> list[Trial]:
        """Answer with the next kept batch, or measure and keep it."""
        asked = [candidate.candidate_id for candidate in candidates]
        if not self._kept:
            trials = self.oracle.measure(candidates)
            found = [
                {
                    "candidate_id": trial.candidate.candidate_id,
                    "state": trial.state.value,
                    **{name: getattr(trial, name) for name in FIELDS},
                }
                for trial in trials
            ]
            self._write(orjson.dumps({"asked": asked, "trials": found}))
            return trials
        batch = self._kept.pop(0)
        if batch["asked"] != asked:
            raise SearchError(
                "the next batch of the checkpoint holds other candidates than were asked",
                where=self.path,
                cure="the strategy, its options or the space changed: start in another folder",
            )
        by_id = {candidate.candidate_id: candidate for candidate in candidates}
        return [
            Trial(
                by_id[entry["candidate_id"]],
                TrialState(entry["state"]),
                tuple(entry["run_times_s"]),
                **{name: entry[name] for name in FIELDS[1:]},
            )
            for entry in batch["trials"]
        ]
