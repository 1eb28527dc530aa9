"""A race on a whole network: both arms run as users run them, and what they had is compared."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from toolkit.errors import LiveError
from toolkit.networks.compare import installed_runtimes
from toolkit.networks.legs import OURS, STOCK, NetworkRaceSettings, copy_database
from toolkit.networks.race import race_network

pytestmark = pytest.mark.live


def test_both_arms_leave_networks_that_are_compared(
    model_file: Path, target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path.parent)  # as users name folders: from where they are
    monkeypatch.setattr("toolkit.networks.legs.SHARES", (1 / 2, 1.0))
    settings = NetworkRaceSettings(seconds=12.0, stock_seconds=4.0, read_seconds=1.0)
    result = race_network(model_file, Path(tmp_path.name), target=target, settings=settings)
    arms = {row["arm"] for row in result.rows}
    assert arms == {STOCK, OURS}
    assert all(row["latency_s"] > 0 and row["compile_s"] > 0 for row in result.rows)
    assert all(row["tuned_s"] < 60 for row in result.rows)
    assert result.ratio is not None and result.ratio > 0
    assert [row["against"] for row in result.against] == installed_runtimes(model_file)
    assert all(row["latency_s"] > 0 and row["ratio"] > 0 for row in result.against)
    if result.reached_s is not None:
        assert result.s_at_most == pytest.approx(result.reached_s / 4.0)
    written = orjson.loads((tmp_path / "race.json").read_bytes())
    assert written["rows"] == result.rows
    # Finished arms are kept: only the readings are taken again.
    legs = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/leg.json")}
    assert len(legs) == 2
    # Networks far slower than the fastest take no turns of the others.
    monkeypatch.setattr("toolkit.networks.race.TURNS_BELOW", 0.0)
    again = race_network(model_file, tmp_path, target=target, settings=settings)
    *slow, mine = again.rows
    assert [(row["interval"], row["verdict"]) for row in slow] == [(None, "faster")] * len(slow)
    labels = [f"{row['arm']} after {row['tuned_s']:.0f} s" for row in again.rows]
    assert all(len(again.readings_s[label]) == 1 for label in labels[:-1])
    assert again.against and mine["ratio"] == 1.0
    assert legs == {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/leg.json")}
    with pytest.raises(LiveError, match="another seconds"):
        race_network(model_file, tmp_path, target=target, settings=NetworkRaceSettings(50.0, 4.0))


def test_an_arm_that_fails_is_named(model_file: Path, target: str, tmp_path: Path) -> None:
    settings = NetworkRaceSettings(seconds=30.0, stock_seconds=0.5, seed=-1)
    with pytest.raises(LiveError, match="toolkit ended with code 2"):
        race_network(model_file, tmp_path, target=target, settings=settings)
    with pytest.raises(LiveError, match="no model file"):
        race_network(tmp_path / "n.py", tmp_path / "b", target=target, settings=settings)


def test_a_copy_leaves_out_a_line_that_is_not_whole(tmp_path: Path) -> None:
    database = tmp_path / "database"
    database.mkdir()
    copy_database(database, tmp_path / "a")
    assert (tmp_path / "a" / "database_workload.json").read_bytes() == b""
    (database / "database_workload.json").write_bytes(b"[1]\n[2]\n")
    (database / "database_tuning_record.json").write_bytes(b"[0]\n[1, ")
    copy_database(database, tmp_path / "b")
    assert (tmp_path / "b" / "database_tuning_record.json").read_bytes() == b"[0]\n"
    assert (tmp_path / "b" / "database_workload.json").read_bytes() == b"[1]\n[2]\n"
