"""A race on a whole network: both arms run as users run them, and what they had is compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import orjson
import pytest

from toolkit.errors import LiveError
from toolkit.live.confirm.rules import INCUMBENT
from toolkit.live.confirm.verdict import Confirmation
from toolkit.networks.compare import installed_runtimes
from toolkit.networks.legs import OURS, STOCK, NetworkRaceSettings, copy_database
from toolkit.networks.race import race_network

pytestmark = pytest.mark.live

MINE = "toolkit after 1 s"


def finish_arms(monkeypatch: pytest.MonkeyPatch, stock: Sequence[float]) -> None:
    """Stock left a network after each of these times, which take 1, 2, ... s; ours takes 0.01."""

    def leg(name: str, *_: object) -> list[dict[str, object]]:
        times = stock if name == STOCK else [1.0]
        return [{"tuned_s": tuned_s, "folder": "copy"} for tuned_s in times]

    def once(arms: Mapping[str, object], *_: object) -> dict[str, float]:
        return {name: 0.01 if name == MINE else float(n) for n, name in enumerate(arms, 1)}

    monkeypatch.setattr("toolkit.networks.race.run_leg", leg)
    monkeypatch.setattr("toolkit.networks.race.compile_copy", lambda *_: 0.5)
    monkeypatch.setattr("toolkit.networks.race._read_once", once)
    monkeypatch.setattr("toolkit.networks.race.installed_runtimes", lambda _: [])


def test_both_arms_leave_networks_that_are_compared(
    model_file: Path, target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path.parent)  # as users name folders: from where they are
    monkeypatch.setattr("toolkit.networks.legs.SHARES", (1 / 2, 1.0))
    settings = NetworkRaceSettings(seconds=8.0, stock_seconds=3.0, read_seconds=0.3)
    result = race_network(model_file, Path(tmp_path.name), target=target, settings=settings)
    arms = {row["arm"] for row in result.rows}
    assert arms == {STOCK, OURS}
    assert all(row["latency_s"] > 0 and row["compile_s"] > 0 for row in result.rows)
    assert all(row["tuned_s"] < 60 for row in result.rows)
    assert result.ratio is not None and result.ratio > 0
    assert [row["against"] for row in result.against] == installed_runtimes(model_file)
    assert all(row["latency_s"] > 0 and row["ratio"] > 0 for row in result.against)
    if result.reached_s is not None:
        assert result.s_at_most == pytest.approx(result.reached_s / 3.0)
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
        race_network(model_file, tmp_path, target=target, settings=NetworkRaceSettings(50.0, 3.0))


def test_an_arm_that_fails_is_named(model_file: Path, target: str, tmp_path: Path) -> None:
    settings = NetworkRaceSettings(seconds=30.0, stock_seconds=0.5, seed=-1)
    with pytest.raises(LiveError, match="the arm toolkit ended with code 2"):
        race_network(model_file, tmp_path, target=target, settings=settings)
    with pytest.raises(LiveError, match="is not a model file"):
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


def test_where_all_others_are_far_slower_ours_has_the_reading_that_showed_it(
    model_file: Path, target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish_arms(monkeypatch, stock=[2.0])
    settings = NetworkRaceSettings()
    result = race_network(model_file, tmp_path, target=target, settings=settings)
    assert result.readings_s[MINE] == [0.01] and result.against == []
    assert [row["verdict"] for row in result.rows] == ["faster", ""]
    assert result.ratio == pytest.approx(0.01) and result.reached_s == 1.5


def test_readings_are_in_the_order_in_which_networks_were_made(
    model_file: Path, target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish_arms(monkeypatch, stock=[float(second) for second in range(1, 9)])
    read = Confirmation({INCUMBENT: [0.01]})
    monkeypatch.setattr("toolkit.networks.race.compare", lambda *_, **__: read)
    settings = NetworkRaceSettings()
    result = race_network(model_file, tmp_path, target=target, settings=settings)
    stock = [f"stock after {second} s" for second in range(1, 9)]
    assert list(result.readings_s) == [MINE, *stock]


def test_networks_of_the_same_second_have_readings_of_their_own(
    model_file: Path, target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish_arms(monkeypatch, stock=[0.7, 1.3, 12.0])
    settings = NetworkRaceSettings()
    result = race_network(model_file, tmp_path, target=target, settings=settings)
    assert [row["latency_s"] for row in result.rows] == pytest.approx([1.0, 2.0, 3.0, 0.01])
    stock = [name for name in result.readings_s if name.startswith(STOCK)]
    assert stock == ["stock after 1 s", "stock after 1 s (2)", "stock after 12 s"]


def test_a_mistyped_path_is_no_race(
    model_file: Path, target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish_arms(monkeypatch, stock=[2.0])
    settings = NetworkRaceSettings()
    with pytest.raises(LiveError, match="no such file"):
        race_network(tmp_path / "smal.onnx", tmp_path, target=target, settings=settings)
    assert race_network(model_file, tmp_path, target=target, settings=settings).ratio is not None
