"""Blocks on a machine that has become much slower decide nothing, and every command says so."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import orjson
from typer.testing import CliRunner

from tests.live.burners import NOT_THE_MACHINE, slow_machine
from toolkit.cli.main import app
from toolkit.live.measure.slowed import DECIDES_NOTHING

runner = CliRunner()


def test_finalists_of_a_slow_machine_name_no_winner(tmp_path: Path) -> None:
    command = ["tune", "--workload", "matmul:16,16,16", "--threads", "1", "--json"]
    command += ["--strategy", "random", "--drop-above", "0", "--min-repeat-ms", "20"]
    command += ["--trials", "8", "--out", str(tmp_path)]
    assert runner.invoke(app, [*command, "--finalists", "0"]).exit_code == 0
    # On some processors no program is as fast as the best: then nothing would be read again.
    records = tmp_path / "database_tuning_record.json"
    lines = [orjson.loads(line) for line in records.read_bytes().splitlines()]
    lines.sort(key=lambda line: np.mean(line[1][1]))
    lines[1][1][1] = lines[0][1][1]
    records.write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))
    before = records.read_bytes()
    with slow_machine():
        slow = runner.invoke(app, [*command, "--finalists", "2"])
    assert slow.exit_code == 0, slow.output
    # The burners themselves are told of as well.
    said = orjson.loads(slow.stdout)
    told = [text for text in said["warnings"] if NOT_THE_MACHINE in text]
    assert [text.startswith("matmul:16,16,16: undecided") for text in told] == [True], said
    assert records.read_bytes() == before


def test_a_validation_on_a_slow_machine_gives_no_ratio(tmp_path: Path) -> None:
    collected, dataset, out = (str(tmp_path / name) for name in ("c", "d", "v"))
    collect = ["collect", "--workload", "matmul:128,128,128", "--trials", "6", "--threads", "1"]
    assert runner.invoke(app, [*collect, "--out", collected]).exit_code == 0
    assert runner.invoke(app, ["ingest", collected, "--dataset", dataset]).exit_code == 0
    command = ["validate", "--dataset", dataset, "--seconds", "5", "--top", "2"]
    command += ["--strategy", "random", "--out", out, "--json"]
    # The machine is slow in the blocks and not in the screening before them.
    with slow_machine():
        result = runner.invoke(app, command)
    assert result.exit_code == 4, result.output
    printed = orjson.loads(result.stdout)
    (verdict,) = printed["verdicts"]
    assert verdict["slowed_by"] >= DECIDES_NOTHING
    assert verdict["verdict"] == "undecided" and verdict["ratio"] is None
    assert verdict["reason"].startswith(NOT_THE_MACHINE)
    assert any(NOT_THE_MACHINE in warning for warning in printed["warnings"])
