"""A search of a network that is killed leaves what compiles, and the same command goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import orjson
import pytest

from toolkit.networks.compile import compile_network
from toolkit.networks.tasks import network_of

pytestmark = pytest.mark.live

ROOT = Path(__file__).parents[2]
TOOLKIT = [sys.executable, "-c", "from toolkit.cli.main import main; main()"]


def test_what_a_killed_search_leaves_compiles_and_it_goes_on(
    model_file: Path, target: str, tmp_path: Path
) -> None:
    out = tmp_path / "tuned"
    command = [
        *TOOLKIT, "tune", "--workload", str(model_file), "--trials", "14", "--strategy", "random",
        "--threads", "1", "--min-repeat-ms", "1", "--out", str(out), "--json",
    ]  # fmt: skip
    environment = dict(os.environ, PYTHONPATH=str(ROOT))
    records = out / "database_tuning_record.json"
    killed = subprocess.Popen(
        command, cwd=tmp_path, env=environment, start_new_session=True, stdout=subprocess.DEVNULL
    )
    while killed.poll() is None:
        if records.is_file() and records.read_bytes().count(b"\n") >= 5:
            os.killpg(killed.pid, signal.SIGKILL)
            break
        time.sleep(0.01)
    assert killed.wait(timeout=240) == -signal.SIGKILL
    before = records.read_bytes().splitlines()

    graph = network_of(str(model_file), target)
    compiled = compile_network(
        graph, tmp_path / "compiled", database=out, target=target, model=model_file,
        choose_seconds=0, seconds=0,
    )  # fmt: skip
    assert 0 < compiled.tuned <= compiled.functions
    assert compiled.tuned + len(compiled.untuned) == compiled.functions
    assert compiled.checked_against == "onnxruntime"

    done = subprocess.run(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, check=True, timeout=240
    )
    result = orjson.loads(done.stdout)
    after = records.read_bytes().splitlines()
    assert result["trials"] == 14 and len(after) > len(before)
    # The last line may have been cut by the kill.
    assert after[: len(before) - 1] == before[:-1]
    assert result["weighted_latency_s"] is not None
