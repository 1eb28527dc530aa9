"""A day with an AArch64 device that qemu emulates (``emulated.sh`` prepares it)."""

from __future__ import annotations

import os
from pathlib import Path

import orjson
import pytest
from running import Running, toolkit, until

from tests.live.farm import KEY, Farm

PREPARED = os.environ.get("EMULATED_AARCH64", "")
TARGET = '{"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "cortex-a72", "num-cores": 2}'

pytestmark = pytest.mark.skipif(not PREPARED, reason="sh tests/live/emulated.sh prepares it")


def test_a_device_of_another_architecture_from_its_server_to_a_winner(tmp_path: Path) -> None:
    records = tmp_path / "tuning" / "tuned" / "database_tuning_record.json"
    with Farm(servers=1, wait_s=120, python=Path(PREPARED) / "python") as farm:
        place = ("--target", TARGET, "--device", farm.device)
        command = ("tune", "--workload", "matmul:64,64,64", *place, "--strategy", "random")
        command += ("--trials", "24", "--round-size", "8", "--finalists", "3")
        run = Running(*command, cwd=tmp_path)
        assert until(lambda: records.is_file() and records.read_bytes().count(b"\n") >= 4, 120)
        farm.kill(farm.servers[0])
        out, err = run.finish()[1:]
        kept = records.read_bytes()
        assert run.process.returncode == 1 and "the last device is lost" in err, out + err
        assert 4 <= kept.count(b"\n") < 24

        farm.add_server()
        code, out, err = toolkit(*command, "--json", cwd=tmp_path)
        assert code == 0, err
        told = orjson.loads(out)
        (task,) = told["tasks"]
        assert task["trials"] == 24 and task["failed"] == {} and task["unchecked"] is None
        assert any("emulated (aarch64 on x86_64)" in warning for warning in told["warnings"])
        about = orjson.loads(records.with_name("collection.json").read_bytes())
        assert about["machine"] == f"{KEY} (emulated)"

        assert toolkit("ingest", "tuning/tuned", cwd=tmp_path)[0] == 0
        command = ("validate", *place, "--seconds", "30", "--top", "2", "--strategy", "random")
        code, out, err = toolkit(*command, "--json", cwd=tmp_path)
        assert code in (0, 3, 4), err
        (verdict,) = orjson.loads(out)["verdicts"]
        assert verdict["screened"] == 2 and not verdict["rejected"] and not verdict["dropped"]
        code, _, err = toolkit("train", "throughput", cwd=tmp_path)
        assert code == 1 and "measured by an emulator" in " ".join(err.split())
