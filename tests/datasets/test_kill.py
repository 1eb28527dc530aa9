"""Killed with -9 at fifty random moments: no record is lost, doubled or torn."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import loglines
import pytest

from toolkit.datasets import ingest, open_dataset

PROGRAM = Path(__file__).with_name("kill_ingest.py")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_killed_at_random_moments(tmp_path):
    logs = tmp_path / "logs"
    loglines.write(
        logs / "a.log", *(loglines.autotvm(index=n, timestamp=n) for n in range(120)), b"{broken"
    )
    loglines.write(logs / "b.json", b"# note", *(loglines.ansor(timestamp=n) for n in range(120)))
    loglines.write(logs / "ms" / "database_workload.json", loglines.workload())
    loglines.write(
        logs / "ms" / "database_tuning_record.json",
        *(loglines.metaschedule(costs=(1e-3 + n * 1e-6,)) for n in range(60)),
    )
    arguments = [str(logs), str(tmp_path / "ds"), "50", "2024"]
    done = subprocess.run(
        [sys.executable, str(PROGRAM), *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "POLARS_MAX_THREADS": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    killed, datasets = map(int, done.stdout.split())
    assert killed == 50
    ingest(logs, tmp_path / "whole", workers=0)
    whole = open_dataset(tmp_path / "whole")
    for number in range(datasets):
        dataset = open_dataset(tmp_path / f"ds-{number}")
        assert dataset.fingerprint() == whole.fingerprint()
        assert dataset.rejected().height == whole.rejected().height
