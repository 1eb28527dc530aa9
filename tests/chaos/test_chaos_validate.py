"""Validations that are killed at random moments: readings stay, and the next one has a verdict."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from kills import half_files, kept_records, kill_at_random
from running import toolkit

VALIDATED = (0, 3, 4)
"""Exit codes of a validation that came to its end: better, not better, undecided."""


@pytest.mark.chaos
def test_killed_validations_lose_no_reading_and_come_to_their_end(tmp_path: Path) -> None:
    collect = ("collect", "--workload", "matmul:64,64,64", "--trials", 6, "--threads", 1)
    assert toolkit(*collect, "--out", "c", cwd=tmp_path)[0] == 0
    assert toolkit("ingest", "c", "--dataset", "d", cwd=tmp_path)[0] == 0
    known: dict[Path, list[bytes]] = {}

    def checked(out: Path, ended: bool) -> None:
        for folder in out.glob("measured/*"):
            known[folder] = kept_records(folder, known.get(folder, []))
        for path in (*out.glob("*.json"), *out.glob("measured/*/collection.json")):
            assert orjson.loads(path.read_bytes())
        if ended:
            assert half_files(out) == []
            (verdict,) = orjson.loads((out / "verdicts.json").read_bytes())["verdicts"]
            assert verdict["verdict"] in ("better", "not better", "undecided")
            (folder,) = out.glob("measured/*")
            names = ("database_tuning_record.json", "database_trials.jsonl")
            lines = [(folder / name).read_bytes().splitlines() for name in names]
            assert len(lines[0]) == len(lines[1]) == len(known[folder])

    command = ("validate", "--dataset", "d", "--seconds", 5, "--top", 2, "--strategy", "random")
    kill_at_random(command, tmp_path, checked, VALIDATED)
