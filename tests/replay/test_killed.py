"""A simulation that is killed with -9 goes on to the same bytes, task runs and networks alike."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import orjson
import pytest
from toy_tables import ToyDataset

from toolkit.replay import parse_scenario, simulate

SCENARIO = {
    "name": "toy",
    "tasks": {"minimum_candidates": 10},
    "strategy": [{"name": "random"}, {"name": "grid"}],
    "network": {"round_size": 5, "rounds_per_task": 4},
    "seeds": 2,
    "resamples": 100,
}
FILES = ("runs.parquet", "results.parquet", "summary.json")

# The child dies in the middle of writing its so-many-th piece, as a power cut would have it.
CHILD = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from toy_tables import ToyDataset
from toolkit.replay import parse_scenario, simulate
import orjson

left, rename = [int(sys.argv[4])], Path.replace

def die_instead(self, target):
    if "parts" in self.parts:
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)
    return rename(self, target)

Path.replace = die_instead
simulate(ToyDataset(2), parse_scenario(orjson.loads(sys.argv[2])), out=sys.argv[3])
"""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a simulation that nobody ends writes."""
    out = tmp_path_factory.mktemp("killed") / "whole"
    simulate(ToyDataset(2), parse_scenario(SCENARIO), out=out)
    return out


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no such signal here")
@pytest.mark.parametrize("at", [4, 5, 12])  # after the rows of a strategy; before; the networks
def test_killed_and_started_again_the_bytes_are_the_same(
    whole: Path, tmp_path: Path, at: int
) -> None:
    cut = tmp_path / "cut"
    here, text = str(Path(__file__).parent), orjson.dumps(SCENARIO).decode()
    child = subprocess.run(
        [sys.executable, "-c", CHILD, here, text, str(cut), str(at)], check=False, timeout=120
    )
    assert child.returncode == -signal.SIGKILL
    kept = sorted(p.name for p in (cut / "parts").rglob("*") if not p.name.endswith(".tmp"))
    assert len([name for name in kept if "." in name]) == at - 1
    simulate(ToyDataset(2), parse_scenario(SCENARIO), out=cut)
    for name in FILES:
        assert (whole / name).read_bytes() == (cut / name).read_bytes()
    assert not (cut / "parts").exists()


def test_one_or_two_workers_schedule_networks_to_the_same_bytes(
    whole: Path, tmp_path: Path
) -> None:
    simulate(ToyDataset(2), parse_scenario(SCENARIO), out=tmp_path / "2", workers=2)
    for name in FILES:
        assert (whole / name).read_bytes() == (tmp_path / "2" / name).read_bytes()
