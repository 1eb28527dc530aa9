"""Training that is killed at random moments leaves the model before, or the new one."""

from __future__ import annotations

from pathlib import Path

import pytest
from kills import kill_at_random, same_files
from made_autotvm import write_autotvm
from made_commands import QUICK

from toolkit.datasets import ingest
from toolkit.training import load_throughput


@pytest.mark.chaos
def test_killed_training_leaves_a_whole_model_or_none(tmp_path: Path) -> None:
    write_autotvm(tmp_path / "logs" / "log.json")
    ingest(tmp_path / "logs", tmp_path / "tuning" / "dataset", workers=0)
    (tmp_path / "quick.toml").write_text(QUICK)

    def checked(out: Path, ended: bool) -> None:
        if (out / "manifest.json").is_file():
            load_throughput(out)
        if ended:
            same_files(tmp_path / "timed", out)

    command = ("train", "throughput", "--recipe", "quick.toml", "--threads", "1")
    kill_at_random(command, tmp_path, checked)
