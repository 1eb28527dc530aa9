"""Machines of two speeds: found where runs share candidates, told, and corrected when asked."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import orjson
import pytest
from analysed_logs import analysed, write
from running import here

from toolkit.cli.tables import out
from toolkit.datasets import describe, ingest, open_dataset
from toolkit.reports.caveats import find_caveats
from toolkit.reports.sections.dataset import dataset_section

SLOW = 1.24


def tuners_of_two_speeds(folder: Path, slow: float = SLOW) -> list[Path]:
    """Three tuners on four tasks, the same 40 candidates each; ``ga`` ran on a slower machine."""
    rng = np.random.default_rng(3)
    logs = []
    for task in range(4):
        costs = rng.lognormal(1.0, 0.5, 40)
        for name, speed in (("ga", slow), ("random", 1.0), ("xgb", 1.0)):
            order = rng.permutation(40)
            read = costs[order] * speed * rng.lognormal(0.0, 0.01, 40)
            logs.append(
                write(
                    folder / name / f"{task}.log",
                    read.tolist(),
                    index=[int(i) + 1 for i in order],
                    tiles=[(1, 1, int(i) + 1) for i in order],
                    target=f"llvm -mcpu={task}",
                )
            )
    return logs


def test_a_tuner_on_a_slower_machine_is_told_and_corrected(tmp_path):
    found = analysed(tmp_path, *tuners_of_two_speeds(tmp_path))
    speeds = found.speeds
    assert speeds is not None and not speeds.corrected
    assert (speeds.runs, speeds.slower, speeds.tasks, speeds.slower_tasks) == (12, 4, 4, 4)
    assert speeds.slowdown == pytest.approx(SLOW, rel=0.01)
    slow = {tuner.tuner: tuner.slowdown for tuner in found.tuners.tuners}
    assert slow["ga"] == pytest.approx(SLOW, rel=0.01)
    assert max(slow["random"], slow["xgb"]) < 1.02

    dataset = open_dataset(tmp_path / "ds")
    told = describe(dataset, correct_speed=True)
    assert told.speeds.corrected and told.speeds.slowdown == speeds.slowdown
    # The same candidates read alike once corrected: they scatter by noise alone.
    assert told.noise.between.median < 0.03 < found.noise.between.median
    caveats = find_caveats(dataset_section(tmp_path / "ds"), [], [], [], {"verdicts": []})
    assert any("more than one speed" in caveat for caveat in caveats)


def test_runs_of_one_speed_are_said_to_read_alike(tmp_path):
    speeds = analysed(tmp_path, *tuners_of_two_speeds(tmp_path, slow=1.0)).speeds
    assert (speeds.runs, speeds.slower, speeds.slowdown) == (12, 0, None)
    caveats = find_caveats(dataset_section(tmp_path / "ds"), [], [], [], {"verdicts": []})
    assert not any("more than one speed" in caveat for caveat in caveats)


def test_noisy_readings_are_no_second_speed(tmp_path):
    rng = np.random.default_rng(0)
    logs = [
        write(tmp_path / name / "a.log", (5.0 * rng.lognormal(0.0, 0.3, 12)).tolist())
        for name in ("one", "two")
    ]
    assert analysed(tmp_path, *logs).speeds.slower == 0


def test_standard_errors_are_those_of_the_difference_of_two_runs(tmp_path):
    # Half of 16 candidates are read 5 % slower, half 30 %: in the median 17 %, or 0.16 in logs. The
    # standard error of that is 1.86 * 0.107 / 4 = 0.05, and 0.16 is less than four of them.
    ways = [1.05, 1.3] * 8
    logs = [write(tmp_path / "one" / "a.log", [5.0] * 16)]
    logs.append(write(tmp_path / "two" / "a.log", [5.0 * way for way in ways]))
    speeds = analysed(tmp_path, *logs).speeds
    assert (speeds.runs, speeds.slower) == (2, 0)


def test_candidates_shared_with_runs_that_share_too_little_do_not_count(tmp_path):
    def run(name: str, candidates: list[int], slow: float = 1.0) -> Path:
        tiles = [(1, 1, n) for n in candidates]
        costs = [(5.0 + n) * slow for n in candidates]
        at = 1e9 + ord(name)  # else equal readings were one record
        path = tmp_path / name / "a.log"
        return write(path, costs, tiles=tiles, index=candidates, timestamp=at)

    # Of the first one's eight, seven are those of a run that goes: one is left.
    logs = [run("a", [*range(1, 9)], 1.5), run("b", [*range(1, 8)])]
    logs += [run("c", [*range(8, 30)]), run("d", [*range(9, 30)])]
    speeds = analysed(tmp_path, *logs).speeds
    assert (speeds.runs, speeds.slower) == (2, 0)


def test_runs_that_share_nothing_say_nothing(tmp_path):
    one = write(tmp_path / "a.log", [1.0] * 20)
    two = write(tmp_path / "b.log", [2.0] * 20, tiles=[(2, 2, n + 1) for n in range(20)])
    assert analysed(tmp_path, one, two).speeds is None


def test_describe_says_it_and_corrects_on_demand(tmp_path):
    ingest(tuners_of_two_speeds(tmp_path), tmp_path / "tuning" / "dataset")
    code, said, _ = here("describe", cwd=tmp_path)
    assert code == 0
    assert "4 of 12 runs with shared candidates" in " ".join(said.split())
    assert "see --correct" in " ".join(said.split()) and "Slowdown:" in said
    code, said, _ = here("describe", "--correct-speed", "--json", cwd=tmp_path)
    assert code == 0 and orjson.loads(said)["speeds"]["corrected"]


def test_a_terminal_of_80_columns_shows_the_slowdown_whole(tmp_path, monkeypatch):
    ingest(tuners_of_two_speeds(tmp_path), tmp_path / "tuning" / "dataset")
    monkeypatch.setattr(out, "_width", 80)
    code, said, err = here("describe", cwd=tmp_path)
    assert code == 0, err
    (heads,) = [line for line in said.splitlines() if line.startswith("tuner ")]
    assert heads.split()[-1] == "slowdown" and "…" not in heads
    assert max(map(len, said.splitlines())) <= 80
