"""Searches that are killed at random moments: no record is lost, none is there twice."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from kills import kill_at_random

TRIALS = 24


def whole_lines(path: Path) -> list[bytes]:
    """Lines that have their end: what a kill left by half does not count."""
    return path.read_bytes().split(b"\n")[:-1] if path.is_file() else []


@pytest.mark.chaos
def test_killed_searches_lose_no_record_and_have_none_twice(tmp_path: Path) -> None:
    known: dict[Path, list[bytes]] = {}

    def checked(out: Path, ended: bool) -> None:
        records = whole_lines(out / "database_tuning_record.json")
        trials = whole_lines(out / "database_trials.jsonl")
        kept = records[: min(len(records), len(trials))]
        before = known.get(out, [])
        assert kept[: len(before)] == before, "what was measured stays"
        known[out] = kept
        if ended:
            assert len(records) == len(trials) == TRIALS
            traces = [orjson.dumps(orjson.loads(line)[1][0]) for line in records]
            assert len(set(traces)) == TRIALS
            assert {orjson.loads(line)["state"] for line in trials} == {"ok"}

    command = ("tune", "--workload", "matmul:32,32,32", "--trials", TRIALS, "--seed", 1)
    options = ("--finalists", 0, "--min-repeat-ms", 1, "--strategy", "random")
    kill_at_random((*command, *options), tmp_path, checked)
