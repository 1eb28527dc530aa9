"""Races that are killed at random moments: finished legs stay, and the race comes to its end."""

from __future__ import annotations

from pathlib import Path

import orjson
import polars as pl
import pytest
from kills import half_files, kill_at_random

UNDECIDED = 4
"""Exit code of a race that came to its end while the machine was busy."""

ARMS = ("stock", "random")
TRIALS = 2


@pytest.mark.chaos
def test_killed_races_keep_their_legs_and_come_to_their_end(tmp_path: Path) -> None:
    known: dict[Path, tuple[bytes, int]] = {}

    def checked(out: Path, ended: bool) -> None:
        for path, before in known.items():
            if path.is_relative_to(out):
                assert (path.read_bytes(), path.stat().st_mtime_ns) == before, "run again"
        for path in out.glob("legs/*/*/*/leg.json"):
            assert orjson.loads(path.read_bytes())["arm"] == path.parent.name
            known[path] = path.read_bytes(), path.stat().st_mtime_ns
        for path in (*out.glob("*.json"), *out.glob("legs/*/*/confirmed.json")):
            assert orjson.loads(path.read_bytes())
        for path in out.glob("*.parquet"):
            assert pl.read_parquet(path).height == TRIALS * len(ARMS)
        if ended:
            assert half_files(out) == []
            (row,) = orjson.loads((out / "race.json").read_bytes())["rows"]
            assert (row["stock_trials"], row["trials"]) == (TRIALS, TRIALS)
            arms = [path.parent.name for path in out.glob("legs/*/seed-0/*/leg.json")]
            assert sorted(arms) == sorted(ARMS)

    command = ("race", "--workload", "matmul:32,32,32", "--trials", TRIALS, "--seeds", 1)
    options = ("--strategy", "random", "--threads", 1, "--blocks", 1, "--min-repeat-ms", 1)
    stock = ("--stock-build-timeout", 240)
    whole = (*command, *options, *stock)
    kill_at_random(whole, tmp_path, checked, (0, UNDECIDED), longest=0.6)
