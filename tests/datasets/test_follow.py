"""A log that is still being written is followed: only what is new is read."""

from __future__ import annotations

import loglines
import pytest

from toolkit.datasets import follow, open_dataset
from toolkit.datasets.describe import best_so_far
from toolkit.datasets.write import reading as readings
from toolkit.datasets.write import run as reading_files


def test_a_live_log(tmp_path, monkeypatch):
    lines = [
        loglines.dump(loglines.autotvm(index=n, timestamp=n, costs=[1e-3 / (n + 1)])) + b"\n"
        for n in range(40)
    ]
    path = tmp_path / "live.log"
    path.write_bytes(b"".join(lines[:10]) + lines[10][:50])
    skipped = []
    original = readings.SourceReading._skip
    monkeypatch.setattr(
        readings.SourceReading,
        "_skip",
        lambda self, stream: skipped.append(self.source.consumed) or original(self, stream),
    )
    seen = []
    for report in follow(path, tmp_path / "ds", interval_s=0.01, rounds=6):
        seen.append((report.lines, report.records, report.rejected))
        best = best_so_far(open_dataset(tmp_path / "ds"))
        if len(seen) == 1:
            path.write_bytes(b"".join(lines[:20]))
        elif len(seen) == 2:
            path.write_bytes(b"".join(lines))
    assert seen == [(11, 10, 1), (10, 10, 0), (20, 20, 0)]
    # the first look reads from the beginning, the others jump to what is new
    assert skipped == [0]
    assert best[0]["best_latency_s"] == 1e-3 / 40
    assert best[0]["records"] == 40
    assert open_dataset(tmp_path / "ds").records().collect()["line"].to_list() == list(range(1, 41))


def test_a_log_that_was_replaced_by_another_is_read_anew(tmp_path):
    path = tmp_path / "live.log"
    loglines.write(path, *(loglines.autotvm(timestamp=n) for n in range(5)))
    rounds = follow(path, tmp_path / "ds", interval_s=0.01, rounds=5)
    next(rounds)
    loglines.write(path, *(loglines.autotvm(timestamp=n) for n in range(100, 108)))
    assert next(rounds).records == 8
    assert open_dataset(tmp_path / "ds").records().collect().height == 8


def test_files_that_appear_are_taken_in(tmp_path):
    folder = tmp_path / "logs"
    loglines.write(folder / "a.log", loglines.autotvm())
    rounds = follow(folder, tmp_path / "ds", interval_s=0.01, rounds=5)
    assert next(rounds).records == 1
    loglines.write(folder / "b.log", loglines.ansor())
    (folder / "c.log").write_bytes(b"")
    assert next(rounds).records == 1
    assert list(rounds) == []


@pytest.mark.parametrize(
    ("place", "before"),
    [("ingest.find_logs", False), ("run.find_logs", True), ("ingest.discover", False)],
)
def test_a_file_that_is_removed_meanwhile_ends_nothing(tmp_path, monkeypatch, place, before):
    loglines.write(tmp_path / "logs" / "a.log", loglines.autotvm())
    gone = loglines.write(tmp_path / "logs" / "b.log", loglines.ansor())
    usual = getattr(reading_files, place.partition(".")[2])

    def removed(*given):
        if before:
            gone.unlink(missing_ok=True)
        found = usual(*given)
        gone.unlink(missing_ok=True)
        return found

    monkeypatch.setattr(f"toolkit.datasets.write.{place}", removed)
    reports = list(follow(tmp_path / "logs", tmp_path / "ds", interval_s=0.01, rounds=3))
    assert [report.records for report in reports] == [1]
