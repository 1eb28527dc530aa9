"""Blocks on a machine that has become much slower decide nothing, and every command says so."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import orjson
from typer.testing import CliRunner

from tests.live.burners import slow_machine
from toolkit.cli.main import app
from toolkit.live.slowed import DECIDES_NOTHING

runner = CliRunner()

NOT_THE_MACHINE = "the machine was not the one that the search read on"


def test_a_race_on_a_slow_machine_is_undecided_until_it_is_confirmed_on_a_quiet_one(
    tmp_path: Path,
) -> None:
    out = tmp_path / "race"
    command = ["race", "--workload", "matmul:128,128,128", "--trials", "4", "--seeds", "1"]
    command += ["--strategy", "random", "--threads", "1", "--stock-build-timeout", "240"]
    command += ["--out", str(out)]
    searched = runner.invoke(app, [*command, "--blocks", "0", "--json"])
    assert searched.exit_code == 0, searched.output
    legs = {path: path.stat().st_mtime_ns for path in out.rglob("leg.json")}
    with slow_machine():
        slow = runner.invoke(app, [*command, "--blocks", "2", "--json"])
    assert slow.exit_code == 4, slow.output
    (confirmed,) = orjson.loads(slow.stdout)["confirmed"]
    assert confirmed["slowed_by"] >= DECIDES_NOTHING
    assert confirmed["undecided"].startswith(NOT_THE_MACHINE)
    assert confirmed["finals"] == confirmed["steps"] == confirmed["as_good"] == {}
    result = orjson.loads((out / "race.json").read_bytes())
    assert result["summary"]["random"]["undecided"] == 1
    assert result["summary"]["random"]["final_ratio"] is None
    assert any(NOT_THE_MACHINE in warning for warning in result["warnings"])

    again = runner.invoke(app, [*command, "--blocks", "2"])
    result = orjson.loads((out / "race.json").read_bytes())
    (confirmed,) = result["confirmed"]
    # The legs were not run again, and what was undecided was read anew.
    assert {path: path.stat().st_mtime_ns for path in out.rglob("leg.json")} == legs
    assert again.exit_code == (4 if confirmed["undecided"] else 0), again.output
    assert (confirmed["finals"] == {}) == bool(confirmed["undecided"])
    assert ("undecided" in again.stdout) == bool(confirmed["undecided"])


def test_finalists_of_a_slow_machine_name_no_winner(tmp_path: Path) -> None:
    # Several of its random programs are as fast as the best: there are finalists.
    command = ["tune", "--workload", "layer_norm:64,256", "--trials", "24", "--threads", "1"]
    command += ["--strategy", "random", "--drop-above", "0", "--out", str(tmp_path), "--json"]
    assert runner.invoke(app, [*command, "--finalists", "0"]).exit_code == 0
    records = tmp_path / "database_tuning_record.json"
    before = records.read_bytes()
    with slow_machine():
        slow = runner.invoke(app, [*command, "--finalists", "4"])
    assert slow.exit_code == 0, slow.output
    # The burners themselves are told of as well.
    told = [text for text in orjson.loads(slow.stdout)["warnings"] if NOT_THE_MACHINE in text]
    assert [text.startswith("layer_norm:64,256: undecided") for text in told] == [True]
    assert records.read_bytes() == before


def test_a_validation_on_a_slow_machine_gives_no_ratio(tmp_path: Path) -> None:
    collected, dataset, out = (str(tmp_path / name) for name in ("c", "d", "v"))
    collect = ["collect", "--workload", "matmul:128,128,128", "--trials", "6", "--threads", "1"]
    assert runner.invoke(app, [*collect, "--out", collected]).exit_code == 0
    assert runner.invoke(app, ["ingest", collected, "--dataset", dataset]).exit_code == 0
    command = ["validate", "--dataset", dataset, "--seconds", "12", "--top", "2"]
    command += ["--strategy", "random", "--out", out, "--json"]
    done: list = []
    running = threading.Thread(target=lambda: done.append(runner.invoke(app, command)))
    running.start()
    # The search has read programs, and has stopped: the blocks begin.
    lines, still = 0, 0
    while still < 8 and running.is_alive():
        time.sleep(0.1)
        found = sum(len(p.read_bytes().splitlines()) for p in Path(out).rglob("*trials.jsonl"))
        still = still + 1 if found and found == lines else 0
        lines = found
    with slow_machine():
        running.join()
    (result,) = done
    assert result.exit_code == 4, result.output
    printed = orjson.loads(result.stdout)
    (verdict,) = printed["verdicts"]
    assert verdict["slowed_by"] >= DECIDES_NOTHING
    assert verdict["verdict"] == "undecided" and verdict["ratio"] is None
    assert verdict["reason"].startswith(NOT_THE_MACHINE)
    assert any(NOT_THE_MACHINE in warning for warning in printed["warnings"])
