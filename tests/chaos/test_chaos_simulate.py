"""Simulations that are killed at random moments go on to the same bytes."""

from __future__ import annotations

from pathlib import Path

import pytest
from kills import kill_at_random, same_files
from made_autotvm import write_autotvm

from toolkit.datasets import ingest

SCENARIO = """
seeds = 12
resamples = 200
[tasks]
minimum_candidates = 10
[[strategy]]
name = "random"
[[strategy]]
name = "evolutionary"
"""


@pytest.mark.chaos
@pytest.mark.parametrize("workers", [1, 2])
def test_killed_simulations_go_on_to_the_same_bytes(tmp_path: Path, workers: int) -> None:
    write_autotvm(tmp_path / "logs" / "log.json")
    ingest(tmp_path / "logs", tmp_path / "tuning" / "dataset", workers=0)
    (tmp_path / "mine.toml").write_text(SCENARIO)

    def checked(out: Path, ended: bool) -> None:
        if ended:
            same_files(tmp_path / "timed", out)

    command = ("simulate", "--scenario", "mine.toml", "--workers", workers)
    kill_at_random(command, tmp_path, checked)
