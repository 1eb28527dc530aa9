"""Searches that are killed at random moments: no record is lost, none is there twice."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from kills import half_files, kept_records, kill_at_random, whole_lines

TRIALS = 24


@pytest.mark.chaos
def test_killed_searches_lose_no_record_and_have_none_twice(tmp_path: Path) -> None:
    known: dict[Path, list[bytes]] = {}

    def checked(out: Path, ended: bool) -> None:
        known[out] = kept_records(out, known.get(out, []))
        records = whole_lines(out / "database_tuning_record.json")
        trials = whole_lines(out / "database_trials.jsonl")
        if ended:
            assert half_files(out) == []
            assert len(records) == len(trials) == TRIALS
            traces = [orjson.dumps(orjson.loads(line)[1][0]) for line in records]
            assert len(set(traces)) == TRIALS
            assert {orjson.loads(line)["state"] for line in trials} == {"ok"}

    command = ("tune", "--workload", "matmul:32,32,32", "--trials", TRIALS, "--seed", 1)
    options = ("--finalists", 0, "--min-repeat-ms", 1, "--strategy", "random")
    kill_at_random((*command, *options), tmp_path, checked)
