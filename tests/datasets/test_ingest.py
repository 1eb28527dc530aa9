"""Ingest: every line accounted for, idempotent, growing logs, changed logs, odd files."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import pickle
import random

import loglines
import polars as pl
import pytest
import running
import zstandard

from toolkit.datasets import describe, export, ingest, open_dataset
from toolkit.errors import LogError, ToolkitError
from toolkit.logs.read.reader import BlockReader


def accounted(report) -> bool:
    return report.lines == report.records + report.duplicates + report.rejected


def snapshot(folder) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture
def logs(tmp_path):
    folder = tmp_path / "logs"
    loglines.write(
        folder / "net" / "xgb" / "a.log",
        *(loglines.autotvm(index=n, timestamp=n) for n in range(5)),
    )
    loglines.write(
        folder / "net" / "ga" / "b.json",
        b"# a comment",
        *(loglines.ansor(timestamp=n) for n in range(4)),
        b"",
        loglines.ansor(timestamp=1),
    )
    loglines.write(folder / "ms" / "database_workload.json", loglines.workload())
    loglines.write(folder / "ms" / "database_tuning_record.json", loglines.metaschedule())
    (folder / "README.md").write_text("# Logs\nNothing to see.\n")
    (folder / "empty.json").write_bytes(b"")
    return folder


def test_all_formats_of_a_folder(logs, tmp_path):
    report = ingest(logs, tmp_path / "ds")
    assert accounted(report)
    assert (report.lines, report.records, report.duplicates, report.rejected) == (14, 10, 1, 3)
    assert report.reasons == {
        "a comment": 1,
        "a blank line": 1,
        "a workload (kept with its task)": 1,
    }
    assert {source.path.rsplit("/", 1)[1]: source.reason for source in report.skipped} == {
        "README.md": "no tuning log that the toolkit knows",
        "empty.json": "the file is empty",
    }
    assert report.sources == 4
    dataset = open_dataset(tmp_path / "ds")
    assert dataset.records().collect().height == 10
    assert {task.format for task in dataset.tasks().values()} == {
        "autotvm",
        "ansor",
        "metaschedule",
    }
    assert dataset.sources()["lines"].sum() == 14
    rejected = dataset.rejected()
    assert rejected.filter(pl.col("reason") == "a comment").row(0, named=True)["content"] == (
        b"# a comment"
    )


def test_ingesting_again_changes_nothing(logs, tmp_path):
    ingest(logs, tmp_path / "ds")
    before = snapshot(tmp_path / "ds")
    report = ingest(logs, tmp_path / "ds")
    assert (report.lines, report.unchanged) == (0, 4)
    assert snapshot(tmp_path / "ds") == before


def test_a_copy_of_a_log_gives_duplicates_only(logs, tmp_path):
    ingest(logs, tmp_path / "ds")
    fingerprint = open_dataset(tmp_path / "ds").fingerprint()
    (logs / "copy.log").write_bytes((logs / "net" / "xgb" / "a.log").read_bytes())
    report = ingest(logs, tmp_path / "ds")
    assert (report.lines, report.records, report.duplicates) == (5, 0, 5)
    assert open_dataset(tmp_path / "ds").fingerprint() == fingerprint


def test_repeats_are_kept_and_share_a_candidate(tmp_path):
    lines = [
        loglines.autotvm(timestamp=1),
        loglines.autotvm(timestamp=2, costs=[3e-5]),
        loglines.autotvm(timestamp=3, costs=[1e9], error=4),
        loglines.autotvm(timestamp=4, costs=[1e-5]),
    ]
    ingest(loglines.write(tmp_path / "a.log", *lines), tmp_path / "ds")
    candidates = open_dataset(tmp_path / "ds").candidates()
    assert candidates.height == 1
    row = candidates.row(0, named=True)
    assert (row["state"], row["n_ok"]) == ("ok", 3)
    assert row["latency_s"] == pytest.approx(1.6e-5)
    assert [occasion["state"] for occasion in row["occasions"]] == ["ok", "ok", "runtime", "ok"]


def test_the_fingerprint_knows_neither_order_nor_paths(tmp_path):
    lines = [loglines.autotvm(index=n, timestamp=n) for n in range(50)]
    ingest(loglines.write(tmp_path / "a.log", *lines), tmp_path / "one")
    random.Random(1).shuffle(lines)
    loglines.write(tmp_path / "two" / "b.log", *lines[:20])
    loglines.write(tmp_path / "two" / "c.log", *lines[20:])
    ingest(tmp_path / "two", tmp_path / "ds")
    one, two = open_dataset(tmp_path / "one"), open_dataset(tmp_path / "ds")
    assert one.fingerprint() == two.fingerprint()
    ingest(loglines.write(tmp_path / "d.log", loglines.ansor()), tmp_path / "ds")
    assert open_dataset(tmp_path / "ds").fingerprint() != one.fingerprint()


@pytest.mark.parametrize("ending", ["", ".gz", ".zst", ".xz"])
def test_compression_is_recognised_by_content(tmp_path, ending):
    plain = loglines.write(tmp_path / "a.log", *(loglines.ansor(timestamp=n) for n in range(30)))
    data = plain.read_bytes()
    packed = {
        "": data,
        ".gz": gzip.compress(data),
        ".zst": zstandard.compress(data),
        ".xz": lzma.compress(data),
    }[ending]
    path = tmp_path / "renamed.bin"
    path.write_bytes(packed)
    report = ingest(path, tmp_path / "ds")
    assert (report.lines, report.records) == (30, 30)


@pytest.mark.parametrize(
    "compress",
    [gzip.compress, zstandard.compress, lzma.compress, bz2.compress],
    ids=lambda c: c.__module__,
)
def test_a_compressed_log_that_is_cut_off_keeps_what_stands_before(tmp_path, compress):
    lines = [loglines.ansor(timestamp=n, costs=[random.random()]) for n in range(15_000)]
    data = compress(b"\n".join(map(loglines.dump, lines)))
    path = tmp_path / "a.log"
    path.write_bytes(data[: len(data) // 2])
    report = ingest(path, tmp_path / "ds")
    assert report.per_source[0].outcome == "damaged"
    assert "damaged" in report.per_source[0].message
    assert report.records > 5000
    assert accounted(report)


def test_frames_one_after_the_other_are_read(tmp_path):
    lines = [loglines.dump(loglines.ansor(timestamp=n)) + b"\n" for n in range(30)]
    path = tmp_path / "a.log.zst"
    path.write_bytes(b"".join(map(zstandard.compress, lines)))
    report = ingest(path, tmp_path / "ds")
    assert (report.lines, report.records, report.per_source[0].outcome) == (30, 30, "read")


def test_a_growing_log_is_read_on_from_where_it_stood(tmp_path):
    lines = [loglines.dump(loglines.autotvm(index=n, timestamp=n)) for n in range(10)]
    path = tmp_path / "live.log"
    path.write_bytes(b"\n".join(lines[:4]) + b"\n" + lines[4][:100])
    first = ingest(path, tmp_path / "ds")
    assert (first.lines, first.records, first.rejected) == (5, 4, 1)
    assert next(iter(first.reasons)).startswith("unfinished")
    path.write_bytes(b"\n".join(lines[:9]))
    second = ingest(path, tmp_path / "ds")
    assert (second.lines, second.records, second.rejected) == (5, 5, 0)
    path.write_bytes(b"\n".join(lines) + b"\n")
    third = ingest(path, tmp_path / "ds")
    assert (third.lines, third.records, third.duplicates) == (1, 1, 0)
    dataset = open_dataset(tmp_path / "ds")
    assert dataset.records().collect()["line"].to_list() == list(range(1, 11))
    assert dataset.records().collect()["order"].to_list() == list(range(10))
    assert dataset.rejected().height == 0
    assert dataset.sources().row(0, named=True)["lines"] == 10
    whole = ingest(path, tmp_path / "whole")
    assert whole.records == 10
    assert open_dataset(tmp_path / "whole").fingerprint() == dataset.fingerprint()


def test_a_growing_compressed_log(tmp_path):
    lines = [loglines.dump(loglines.autotvm(timestamp=n)) + b"\n" for n in range(6)]
    path = tmp_path / "a.log.gz"
    path.write_bytes(gzip.compress(b"".join(lines[:3])))
    ingest(path, tmp_path / "ds")
    with path.open("ab") as stream:
        stream.write(gzip.compress(b"".join(lines[3:])))
    assert ingest(path, tmp_path / "ds").records == 3


def test_a_log_that_was_rewritten_replaces_what_it_gave(tmp_path):
    path = loglines.write(tmp_path / "a.log", *(loglines.autotvm(timestamp=n) for n in range(9)))
    other = loglines.write(tmp_path / "b.log", loglines.ansor())
    ingest([path, other], tmp_path / "ds")
    loglines.write(path, *(loglines.autotvm(timestamp=n) for n in range(100, 103)))
    report = ingest([path, other], tmp_path / "ds")
    assert (report.lines, report.records) == (3, 3)
    dataset = open_dataset(tmp_path / "ds")
    assert sorted(dataset.records().collect()["timestamp"]) == [100, 101, 102, 1607112214]
    assert dataset.sources()["lines"].to_list() == [3, 1]
    ingest([other, path], tmp_path / "fresh")
    assert open_dataset(tmp_path / "fresh").fingerprint() == dataset.fingerprint()


def test_another_machine_is_another_task(tmp_path):
    path = loglines.write(tmp_path / "a.log", loglines.autotvm())
    ingest(path, tmp_path / "ds", machine="one")
    report = ingest(path, tmp_path / "ds", machine="two")
    assert report.records == 1
    machines = {task.machine for task in open_dataset(tmp_path / "ds").tasks().values()}
    assert "two" in machines
    assert open_dataset(tmp_path / "ds").records().collect().height == 1


def test_labels_and_machine_from_the_path(logs, tmp_path):
    rule = r"(?P<network>[^/]+)/(?P<tuner>[^/]+)/[^/]+\.(log|json)$"
    ingest(logs / "net", tmp_path / "ds", path_rule=rule)
    labels = set(open_dataset(tmp_path / "ds").sources()["labels"])
    assert labels == {
        '{"network":"net","tuner":"xgb"}',
        '{"network":"net","tuner":"ga"}',
    }
    ingest(logs / "net", tmp_path / "other", path_rule=r"/(?P<machine>net)/")
    assert {t.machine for t in open_dataset(tmp_path / "other").tasks().values()} == {"net"}
    again = ingest(logs / "net", tmp_path / "other")  # what is known of a source stays
    assert again.unchanged == 2
    with pytest.raises(ToolkitError, match="regular expression"):
        ingest(logs, tmp_path / "ds", path_rule="(")


def test_a_database_with_its_sidecar(tmp_path):
    folder = tmp_path / "db"
    loglines.write(folder / "database_workload.json", loglines.workload())
    loglines.write(
        folder / "database_tuning_record.json",
        loglines.metaschedule(),
        loglines.metaschedule(costs=[1e10], schedule=loglines.trace(unroll=2)),
    )
    loglines.write(
        folder / "database_trials.jsonl",
        {"elapsed_s": 0.5, "timestamp": 5.0, "state": "ok"},
        {"elapsed_s": 0.25, "timestamp": 6.0, "state": "run_timeout"},
    )
    tasks = [{"workload_index": 0, "name": "GMM", "space_size": 2}]
    loglines.write(folder / "collection.json", {"machine": "box", "protocol": {}, "tasks": tasks})
    report = ingest(folder, tmp_path / "ds")
    assert (report.lines, report.records, report.sources) == (3, 2, 2)
    dataset = open_dataset(tmp_path / "ds")
    records = dataset.records().collect()
    assert records["elapsed_s"].to_list() == [0.5, 0.25]
    assert records["state"].to_list() == ["ok", "run_timeout"]
    (task,) = dataset.tasks().values()
    assert (task.workload, task.machine) == ("GMM", "box")
    assert dataset.enumerated() == {task.task_id: True}


@pytest.mark.parametrize(("ending", "pack"), [("gz", gzip.compress), ("bz2", bz2.compress)])
def test_a_compressed_database_finds_its_sidecars(tmp_path, ending, pack):
    trial = {"elapsed_s": 0.5, "timestamp": 5.0, "state": "ok"}
    for name, entry in (
        ("x_workload.json", loglines.workload()),
        ("x_tuning_record.json", loglines.metaschedule()),
        ("x_trials.jsonl", trial),
        ("collection.json", {"machine": "box", "protocol": {}, "tasks": []}),
    ):
        data = loglines.write(tmp_path / name, entry).read_bytes()
        (tmp_path / "db").mkdir(exist_ok=True)
        (tmp_path / "db" / f"{name}.{ending}").write_bytes(pack(data))
    report = ingest(tmp_path / "db", tmp_path / "ds")
    assert report.records == 1
    dataset = open_dataset(tmp_path / "ds")
    assert dataset.records().collect()["elapsed_s"].to_list() == [0.5]
    assert [task.machine for task in dataset.tasks().values()] == ["box"]


def test_records_named_alone_find_their_workloads(tmp_path):
    folder = tmp_path / "db"
    loglines.write(folder / "database_workload.json", loglines.workload())
    path = loglines.write(folder / "database_tuning_record.json", loglines.metaschedule())
    assert ingest(path, tmp_path / "ds").records == 1


def test_records_whose_workload_file_is_lost_are_told_by_their_traces(tmp_path):
    other = loglines.trace()
    other[0][0][2][0] = "softmax"
    lines = [
        loglines.metaschedule(),
        loglines.metaschedule(schedule=loglines.trace(tile=(4, 8, 2))),
        loglines.metaschedule(schedule=other),
        loglines.metaschedule(which=1),
    ]
    path = loglines.write(tmp_path / "db" / "records.json", *lines)
    report = ingest(path, tmp_path / "ds")
    assert (report.records, report.rejected) == (4, 0)
    assert "the workload file is missing" in report.per_source[0].message
    dataset = open_dataset(tmp_path / "ds")
    tasks = list(dataset.tasks().values())
    assert sorted(task.workload for task in tasks) == ["matmul", "matmul", "softmax"]
    assert all(task.arguments == loglines.TENSORS and task.blob is None for task in tasks)
    assert describe(dataset)["records"] == 4
    # No database can be made of them: TVM wants the workloads.
    with pytest.raises(ToolkitError, match="is lost"):
        export(dataset, tmp_path / "out", format="metaschedule")
    # When the file turns up, they are read anew.
    loglines.write(tmp_path / "db" / "workloads.json", loglines.workload())
    report = ingest(path, tmp_path / "ds")
    assert report.records == 3 and report.per_source[0].message is None
    assert report.reasons == {"workload 1 is missing or damaged": 1}
    (task,) = open_dataset(tmp_path / "ds").tasks().values()
    assert task.blob is not None


def test_what_cannot_be_read_is_named(tmp_path):
    text = "2022-08-23 05:27:21.013 INFO Initializing Task #0: main\n"
    (tmp_path / "task.log").write_text(text)
    with pytest.raises(LogError, match="text log"):
        ingest(tmp_path / "task.log", tmp_path / "ds")
    (tmp_path / "x.pkl").write_bytes(pickle.dumps([1]))
    with pytest.raises(LogError, match="pickle"):
        ingest(tmp_path / "x.pkl", tmp_path / "ds")
    with pytest.raises(LogError, match="no such file"):
        ingest(tmp_path / "absent", tmp_path / "ds")
    (tmp_path / "nothing").mkdir()
    with pytest.raises(LogError, match="no files"):
        ingest(tmp_path / "nothing", tmp_path / "ds")


def test_mixed_formats_in_one_file(tmp_path):
    path = loglines.write(tmp_path / "all.log", loglines.autotvm(), loglines.ansor(), b"junk")
    report = ingest(path, tmp_path / "ds")
    assert (report.records, report.rejected) == (2, 1)


def test_groups_give_every_candidate_once(logs, tmp_path):
    ingest(logs, tmp_path / "ds")
    dataset = open_dataset(tmp_path / "ds")
    seen = []
    for group, rows in dataset.groups():
        assert group.decisions.shape == (rows.height, group.sketch.width)
        assert rows["sketch_id"].unique().to_list() == [group.sketch.sketch_id]
        seen += rows["candidate_id"].to_list()
    assert sorted(seen) == sorted(dataset.candidates()["candidate_id"])


def test_a_space_is_enumerated_only_when_all_of_it_was_recorded(tmp_path):
    tiles = [(y, x, 2) for y in (1, 2, 4) for x in (1, 2)]
    lines = [loglines.autotvm(index=n, tiles=tile, timestamp=n) for n, tile in enumerate(tiles)]
    ingest(loglines.write(tmp_path / "a.log", *lines[:-1]), tmp_path / "part")
    assert list(open_dataset(tmp_path / "part").enumerated().values()) == [False]
    ingest(loglines.write(tmp_path / "b.log", *lines), tmp_path / "ds")
    assert list(open_dataset(tmp_path / "ds").enumerated().values()) == [True]


def test_reading_in_several_processes_changes_nothing(logs, tmp_path):
    loglines.write(
        logs / "long.log",
        *(loglines.ansor(timestamp=n, costs=[1e-3 + n * 1e-9]) for n in range(12000)),
        b"{broken",
    )
    alone = ingest(logs, tmp_path / "alone", workers=0)
    together = ingest(logs, tmp_path / "together", workers=2)
    assert accounted(together)
    for name in ("lines", "records", "duplicates", "rejected", "reasons"):
        assert getattr(alone, name) == getattr(together, name)
    one, two = open_dataset(tmp_path / "alone"), open_dataset(tmp_path / "together")
    assert one.records().collect().equals(two.records().collect())
    assert one.rejected().equals(two.rejected())
    assert one.tasks() == two.tasks()
    assert one.sketches() == two.sketches()


def test_the_order_in_which_a_reader_tells_tasks_changes_no_byte(logs, tmp_path, monkeypatch):
    """It depends on what the reader has read before, and so on the number of processes."""
    keys = [f'["task {number}"]' for number in range(3)]
    loglines.write(logs / "several.json", *(loglines.ansor(key=key) for key in keys))
    read = BlockReader.read

    def backwards(self, block, index):
        result = read(self, block, index)
        result.tasks.reverse()
        result.sketches.reverse()
        return result

    ingest(logs, tmp_path / "one", workers=0)
    monkeypatch.setattr(BlockReader, "read", backwards)
    ingest(logs, tmp_path / "other", workers=0)
    assert len(open_dataset(tmp_path / "one").tasks()) == 6
    one, other = snapshot(tmp_path / "one"), snapshot(tmp_path / "other")
    assert one == other


@pytest.mark.parametrize("workers", [0, 1])
def test_no_log_needs_pandas(tmp_path, workers):
    """Where it is installed, its import would take longer than most logs."""
    (tmp_path / "path" / "pandas").mkdir(parents=True)
    (tmp_path / "path" / "pandas" / "__init__.py").write_text("raise SystemError('imported')")
    logs = tmp_path / "logs"
    (logs / "database").mkdir(parents=True)
    loglines.write(logs / "autotvm.log", loglines.autotvm(), loglines.autotvm(), "no record")
    loglines.write(logs / "ansor.json", *[loglines.ansor(timestamp=n) for n in range(9)])
    loglines.write(logs / "database" / "database_tuning_record.json", loglines.metaschedule())
    loglines.write(logs / "database" / "database_workload.json", loglines.workload())
    arguments = "ingest", "logs", "--dataset", "data", "--workers", workers
    paths = os.pathsep.join([str(tmp_path / "path"), os.environ.get("PYTHONPATH", "")])
    for _ in range(2):
        code, _, told = running.toolkit(*arguments, cwd=tmp_path, PYTHONPATH=paths)
        assert code == 0, told
        loglines.write(logs / "ansor.json", *[loglines.ansor(timestamp=n) for n in range(12)])
    assert open_dataset(tmp_path / "data").records().collect().height == 14
