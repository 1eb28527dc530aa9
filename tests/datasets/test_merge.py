"""Shards of logs, merged: the same dataset as one ingest gives, whatever is read where."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import loglines
import orjson
import polars as pl
import pytest
from running import here

from toolkit.datasets import IngestReport, ingest, merge, open_dataset
from toolkit.datasets.write import merge as merging
from toolkit.datasets.write import open_parts, parts
from toolkit.errors import DatasetError, ToolkitError
from toolkit.locks import LOCK_FILE
from toolkit.logs.files import files as reading_files


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Five logs: one record in two of them, one within a log, and rejected lines."""
    folder = tmp_path / "logs"
    for name, first in (("a", 0), ("b", 3), ("c", 40)):
        lines = [loglines.autotvm(index=n, timestamp=n) for n in range(first, first + 6)]
        loglines.write(folder / f"{name}.json", *lines, b"no record", lines[2])
    loglines.write(folder / "d" / "database_workload.json", loglines.workload())
    loglines.write(folder / "d" / "database_tuning_record.json", loglines.metaschedule())
    loglines.write(folder / "e.json", *(loglines.ansor(timestamp=n) for n in range(4)))
    (folder / "README.md").write_text("# Logs\nNothing to see.\n")
    return folder


def content(folder: Path) -> dict[str, Any]:
    """Everything that a dataset says but the names of its files."""
    dataset = open_dataset(folder)
    parts = dataset.manifest.duplicates
    duplicates = [pl.read_parquet(folder / part.file) for part in parts]
    found = {
        "records": dataset.records().collect(),
        "duplicates": pl.concat([dataset.records().collect().clear(), *duplicates]),
        "rejected": dataset.rejected(),
        "sources": dataset.sources(),
    }
    return {
        **{name: frame.to_dicts() for name, frame in found.items()},
        "tasks": dataset.tasks(),
        "sketches": dataset.sketches(),
        "sizes": dataset.manifest.space_sizes,
        "fingerprint": dataset.fingerprint(),
    }


def files(folder: Path) -> dict[str, bytes]:
    """The bytes of every file of a dataset, by its path within."""
    found = [path for path in folder.rglob("*") if path.is_file() and path.name != LOCK_FILE]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


def totals(*reports: IngestReport) -> tuple[int, int]:
    return sum(r.lines for r in reports), sum(r.records + r.duplicates for r in reports)


@pytest.mark.parametrize("of", [1, 2, 3, 9])
def test_merged_shards_are_one_ingest_to_the_byte(logs: Path, tmp_path: Path, of: int) -> None:
    whole = ingest(logs, tmp_path / "whole")
    shards = [tmp_path / f"shard-{number}" for number in range(of)]
    read = [ingest(logs, each, shard=(n, of)) for n, each in enumerate(shards, start=1)]
    assert totals(*read) == totals(whole)
    merged = merge(shards[::-1], tmp_path / "merged")
    assert content(tmp_path / "merged") == content(tmp_path / "whole")
    assert files(tmp_path / "merged") == files(tmp_path / "whole")
    assert (merged.lines, merged.records, merged.duplicates, merged.rejected) == (
        *(whole.lines, whole.records, whole.duplicates, whole.rejected),
    )
    assert merged.reasons == whole.reasons
    # An ingest knows what the shards have read.
    again = ingest(logs, tmp_path / "merged")
    assert again.lines == 0 and again.unchanged == again.sources


def test_logs_that_several_read_are_taken_once(logs: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        ingest(logs, tmp_path / name)
    report = merge([tmp_path / "one", tmp_path / "two"], tmp_path / "merged")
    assert report.unchanged == 6
    assert content(tmp_path / "merged") == content(tmp_path / "one")
    merge([tmp_path / "two"], tmp_path / "merged")
    assert content(tmp_path / "merged") == content(tmp_path / "one")


def test_copies_in_other_folders_are_duplicates(logs: Path, tmp_path: Path) -> None:
    ingest(logs, tmp_path / "one")
    moved = logs.rename(tmp_path / "moved")
    ingest(moved, tmp_path / "two")
    report = merge([tmp_path / "one", tmp_path / "two"], tmp_path / "merged")
    one = open_dataset(tmp_path / "one")
    assert report.total_records == one.records().collect().height
    assert report.lines == report.records + report.duplicates + report.rejected
    assert open_dataset(tmp_path / "merged").fingerprint() == one.fingerprint()


def test_two_machines_have_other_logs_in_the_same_place(logs: Path, tmp_path: Path) -> None:
    path = tmp_path / "log.json"
    for name, index in (("one", 1), ("two", 2)):
        loglines.write(path, loglines.autotvm(index=index, timestamp=index))
        ingest(path, tmp_path / name, machine=name)
    merge([tmp_path / "one", tmp_path / "two"], tmp_path / "merged")
    merged = open_dataset(tmp_path / "merged")
    assert sorted(merged.sources()["machine"]) == ["one", "two"]
    assert merged.records().collect().height == 2
    assert {task.machine for task in merged.tasks().values()} == {"one", "two"}


def test_pieces_of_a_long_log_are_as_the_whole(
    logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merging, "PIECE_ROWS", 3)
    ingest(logs, tmp_path / "whole")
    for number in (1, 2):
        ingest(logs, tmp_path / str(number), shard=(number, 2))
    merge([tmp_path / "1", tmp_path / "2"], tmp_path / "merged")
    assert content(tmp_path / "merged") == content(tmp_path / "whole")


@pytest.mark.parametrize("part_lines", [3, 9, 13, 1000])
def test_files_do_not_tell_how_rows_arrived(
    logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part_lines: int
) -> None:
    monkeypatch.setattr(open_parts, "PART_LINES", part_lines)
    monkeypatch.setattr(parts, "ROW_GROUP_BYTES", 3000)
    ingest(logs, tmp_path / "whole")
    with monkeypatch.context() as patched:
        patched.setattr(reading_files, "BLOCK_BYTES", 1200)
        ingest(logs, tmp_path / "blocks")
        for number in (1, 2):
            ingest(logs, tmp_path / str(number), shard=(number, 2))
    monkeypatch.setattr(merging, "PIECE_ROWS", 5)
    merge([tmp_path / "1", tmp_path / "2"], tmp_path / "merged")
    whole = files(tmp_path / "whole")
    for name in ("blocks", "merged"):
        found = files(tmp_path / name)
        assert content(tmp_path / name) == content(tmp_path / "whole")
        if part_lines > 8:
            assert found == whole
        # Logs have eight lines: a block may fill several small parts, which come in one commit.
        for kind in ("records", "duplicates", "rejected"):
            assert [data for path, data in sorted(found.items()) if path.startswith(kind)] == [
                data for path, data in sorted(whole.items()) if path.startswith(kind)
            ]


def test_a_merge_that_was_killed_goes_on(
    logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingest(logs, tmp_path / "whole")
    for number in (1, 2):
        ingest(logs, tmp_path / str(number), shard=(number, 2))
    monkeypatch.setattr(merging, "PIECE_ROWS", 3)
    real, calls = merging.Store.add, [0]

    def killed(self: Any, *given: Any) -> None:
        calls[0] += 1
        if calls[0] == 7:
            raise KeyboardInterrupt
        real(self, *given)
        self.commit()  # as after half a million rows

    with monkeypatch.context() as patched:
        patched.setattr(merging.Store, "add", killed)
        with pytest.raises(KeyboardInterrupt):
            merge([tmp_path / "1", tmp_path / "2"], tmp_path / "merged")
    merge([tmp_path / "1", tmp_path / "2"], tmp_path / "merged")
    found, expected = content(tmp_path / "merged"), content(tmp_path / "whole")
    for name in ("tasks", "sketches", "fingerprint", "sizes"):
        assert found[name] == expected[name]
    assert sorted(found["sources"], key=str) == sorted(expected["sources"], key=str)


@pytest.mark.parametrize("names", [("whole", "killed"), ("killed", "whole")])
def test_what_a_killed_ingest_left_adds_nothing_to_a_finished_one(
    logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...]
) -> None:
    ingest(logs, tmp_path / "whole")
    real = merging.Store.add

    def killed(self: Any, *given: Any) -> None:
        real(self, *given)
        self.commit()
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(reading_files, "BLOCK_BYTES", 1200)
        patched.setattr(merging.Store, "add", killed)
        with pytest.raises(KeyboardInterrupt):
            ingest(logs, tmp_path / "killed", workers=0)
    assert 0 < open_dataset(tmp_path / "killed").records().collect().height < 6
    merge([tmp_path / name for name in names], tmp_path / "merged")
    assert content(tmp_path / "merged") == content(tmp_path / "whole")


def test_shards_without_a_log_are_a_dataset_when_merged(tmp_path: Path) -> None:
    log = loglines.write(tmp_path / "a.log", loglines.autotvm())
    for number in (2, 3):
        ingest(log, tmp_path / f"s{number}", shard=(number, 3))
    merge([tmp_path / "s2", tmp_path / "s3"], tmp_path / "merged")
    assert open_dataset(tmp_path / "merged").records().collect().is_empty()


def test_what_cannot_be_merged_is_said(logs: Path, tmp_path: Path) -> None:
    ingest(logs, tmp_path / "one")
    with pytest.raises(DatasetError, match="one of the datasets to merge"):
        merge([tmp_path / "one"], tmp_path / "one")
    with pytest.raises(DatasetError, match="there is no dataset"):
        merge([tmp_path / "one", tmp_path / "nothing"], tmp_path / "merged")
    assert not (tmp_path / "merged").exists()


def test_the_commands(logs: Path, tmp_path: Path) -> None:
    for number in (1, 2):
        code, _, err = here(
            *("ingest", logs, "--shard", f"{number}/2", "--dataset", f"s{number}"), cwd=tmp_path
        )
        assert code == 0, err
    code, said, err = here("merge", "s1", "s2", "--json", cwd=tmp_path)
    assert code == 0, err
    whole = ingest(logs, tmp_path / "whole")
    assert orjson.loads(said)["total_records"] == whole.total_records
    assert content(tmp_path / "tuning" / "dataset") == content(tmp_path / "whole")
    for wrong in ("0/2", "3/2", "two", "1/0"):
        code, _, err = here("ingest", logs, "--shard", wrong, cwd=tmp_path)
        assert code == 1 and "--shard 2/5" in err
    code, _, err = here("merge", "s1", "--out", "s1", cwd=tmp_path)
    assert code == 1 and "--out" in err
    assert issubclass(DatasetError, ToolkitError)
