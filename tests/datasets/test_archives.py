"""Archives: read without unpacking; traps are refused."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile

import loglines
import pytest
import zstandard

from toolkit.datasets import ingest, open_dataset
from toolkit.errors import LogError
from toolkit.logs.files import archives

CONTENT = {
    "measure_records/e5-2673/a.json": [loglines.ansor(timestamp=n) for n in range(5)],
    "measure_records/platinum/b.json": [loglines.ansor(timestamp=n) for n in range(10, 14)],
    "db/database_tuning_record.json": [loglines.metaschedule()],
    "db/database_workload.json": [loglines.workload()],
}


def content(name: str) -> bytes:
    return b"".join(loglines.dump(entry) + b"\n" for entry in CONTENT[name])


def make_zip(path, members: dict[str, bytes]):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def make_tar(path, members: dict[str, bytes], mode: str = "w"):
    with tarfile.open(path, mode) as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def make(path):
    members = {name: content(name) for name in CONTENT}
    members["measure_records/notes.txt"] = b"hello"
    members["measure_records/c.json.gz"] = gzip.compress(loglines.dump(loglines.autotvm()))
    if path.name.endswith(".zip"):
        return make_zip(path, members)
    if path.name.endswith(".zst"):
        make_tar(path.with_suffix(""), members)
        path.write_bytes(zstandard.compress(path.with_suffix("").read_bytes()))
        path.with_suffix("").unlink()
        return path
    return make_tar(path, members, f"w:{path.suffix[1:]}" if path.suffix != ".tar" else "w")


@pytest.mark.parametrize(
    "name", ["x.zip", "x.tar", "x.tar.gz", "x.tar.xz", "x.tar.bz2", "x.tar.zst"]
)
def test_archives_are_walked(tmp_path, name):
    (tmp_path / "logs").mkdir()
    path = make(tmp_path / "logs" / name)
    report = ingest(path, tmp_path / "ds", path_rule=r"measure_records/(?P<target>[^/]+)/")
    assert report.lines == report.records + report.duplicates + report.rejected
    assert (report.records, report.sources) == (11, 5)
    (skipped,) = report.skipped
    assert skipped.path.endswith("::measure_records/notes.txt")
    dataset = open_dataset(tmp_path / "ds")
    assert len(dataset.tasks()) == 3
    assert '{"target":"platinum"}' in dataset.sources()["labels"].to_list()
    assert sorted(p.name for p in (tmp_path / "logs").iterdir()) == [name]
    again = ingest(path, tmp_path / "ds")
    assert again.records == 0


def test_an_archive_and_its_unpacked_tree_hold_the_same_records(tmp_path):
    for name in CONTENT:
        target = tmp_path / "tree" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content(name))
    packed = make_zip(tmp_path / "x.zip", {name: content(name) for name in CONTENT})
    ingest(tmp_path / "tree", tmp_path / "one")
    ingest(packed, tmp_path / "two")
    assert (
        open_dataset(tmp_path / "one").fingerprint() == open_dataset(tmp_path / "two").fingerprint()
    )


@pytest.mark.parametrize("maker", [make_zip, make_tar])
def test_paths_that_climb_out_are_refused(tmp_path, maker):
    good = loglines.dump(loglines.autotvm())
    members = {"../../evil.log": good, "/abs.log": good, "a/../../b.log": good, "fine.log": good}
    report = ingest(maker(tmp_path / "x.bin", members), tmp_path / "ds")
    assert report.records == 1
    assert {s.reason for s in report.skipped} == {"its path leads out of the archive"}
    assert len(report.skipped) == 3


def test_links_and_nested_archives_are_not_followed(tmp_path):
    inner = make_zip(tmp_path / "inner.zip", {"a.log": loglines.dump(loglines.autotvm())})
    path = tmp_path / "x.tar"
    with tarfile.open(path, "w") as archive:
        archive.add(inner, "inner.zip")
        link = tarfile.TarInfo("link.log")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
        data = loglines.dump(loglines.autotvm())
        info = tarfile.TarInfo("a.log")
        info.size = len(data)
        archive.addfile(info, io.BytesIO(data))
    report = ingest(path, tmp_path / "ds")
    assert report.records == 1
    assert {s.reason for s in report.skipped} == {
        "an archive within an archive is not read",
        "a link or device, not a file",
    }


@pytest.mark.parametrize("maker", [make_zip, make_tar])
def test_a_bomb_is_left(tmp_path, monkeypatch, maker):
    monkeypatch.setattr(archives, "FREE_BYTES", 200_000)
    monkeypatch.setattr(archives, "MAX_RATIO", 2)
    good = loglines.dump(loglines.autotvm()) + b"\n"
    members = {"a.log": good, "b.log": good.replace(b"1.5", b"2.5") + b"\n" * 5_000_000}
    path = maker(tmp_path / "x.bin", members)
    if maker is make_tar:
        data = gzip.compress(path.read_bytes())
        path.write_bytes(data)
    report = ingest(path, tmp_path / "ds")
    messages = [source.message or "" for source in report.per_source]
    assert any("archive bomb" in message for message in messages)
    assert report.records >= 1


@pytest.mark.parametrize("maker", [make_zip, make_tar])
def test_a_damaged_archive_is_named(tmp_path, maker):
    path = maker(tmp_path / "x.bin", {"a.log": content(next(iter(CONTENT))) * 50})
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    try:
        report = ingest(path, tmp_path / "ds")
    except LogError as error:
        assert "damaged" in str(error)
    else:
        assert any(source.message for source in report.per_source)


def test_a_database_in_an_archive_finds_its_workloads_in_any_order(tmp_path):
    names = ["db/database_tuning_record.json", "db/database_workload.json"]
    for order in (names, names[::-1]):
        path = make_tar(tmp_path / f"{order[0][3:]}.tar", {name: content(name) for name in order})
        assert ingest(path, tmp_path / order[0][3:]).records == 1


@pytest.mark.parametrize("maker", [make_zip, make_tar])
def test_a_damaged_sidecar_in_an_archive_costs_what_it_says_alone(tmp_path, maker):
    names = ["db/database_tuning_record.json", "db/database_workload.json"]
    sidecar = "db/database_trials.jsonl"
    told = b'{"elapsed_s": 1.5, "timestamp": 5.0, "state": "ok"}\n'
    path = maker(tmp_path / "x.bin", {**{name: content(name) for name in names}, sidecar: told})
    data = path.read_bytes()
    at = data.index(sidecar.encode())
    if maker is make_zip:
        at += len(sidecar)
        path.write_bytes(data[:at] + b"\xff" * 4 + data[at + 4 :])
    else:
        path.write_bytes(data[: at + 512])  # the tar ends behind the sidecar's header
    report = ingest(path, tmp_path / "ds")
    assert report.records == 1
    assert any(source.path.endswith(sidecar) for source in report.skipped)
    assert open_dataset(tmp_path / "ds").records().collect()["elapsed_s"].to_list() == [None]


def test_of_a_name_that_stands_twice_in_a_tar_the_last_one_counts(tmp_path):
    """``tar -r`` appends what has changed, and unpacking leaves the last."""
    ansor, more = [content(name) for name in CONTENT if name.startswith("measure_records")]
    old = loglines.dump(loglines.autotvm()) + b"\n"
    path = make_tar(tmp_path / "x.tar", {"a.log": old, "b.log": ansor})
    make_tar(path, {"a.log": more}, "a")
    report = ingest(path, tmp_path / "ds")
    assert (report.sources, report.records, report.rejected) == (2, 9, 0)
    assert {task.format for task in open_dataset(tmp_path / "ds").tasks().values()} == {"ansor"}


def test_many_databases_of_an_archive_are_reached_in_a_few_readings(tmp_path, monkeypatch):
    members = {}
    for number in range(40):
        for kind in ("tuning_record", "workload"):
            name = f"db/database_{kind}.json"
            members[f"{number:02d}/{name[3:]}"] = content(name)
        members[f"{number:02d}/collection.json"] = b"{}"
    path = make_tar(tmp_path / "logs.tar.xz", members, "w:xz")
    readings = []
    walk = archives.Archive._walk

    def counted(self):
        readings.append(self)
        return walk(self)

    monkeypatch.setattr(archives.Archive, "_walk", counted)
    report = ingest(path, tmp_path / "ds")
    # A line of each workload's file is kept with its task, and is no record.
    assert (report.records + report.duplicates, report.rejected) == (40, 40)
    # One recognises the members; the others are those of records and of what stands beside them.
    assert len(readings) <= 1 + archives.CURSORS


def truncated(compress) -> bytes:
    lines = [loglines.dump(loglines.autotvm(index=n, timestamp=n)) for n in range(3000)]
    return compress(b"\n".join(lines) + b"\n")[:-400]


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress])
def test_what_stands_before_the_end_of_a_truncated_file_is_kept(tmp_path, compress):
    path = tmp_path / "log.packed"
    path.write_bytes(truncated(compress))
    report = ingest(path, tmp_path / "ds")
    (source,) = report.per_source
    assert source.outcome == "damaged"
    assert "damaged" in source.message
    assert report.records > 0
    assert report.lines == report.records + report.rejected
    assert ingest(path, tmp_path / "ds").records == 0


def test_what_stands_before_garbage_is_kept(tmp_path):
    line = loglines.dump(loglines.autotvm()) + b"\n"
    path = tmp_path / "a.log.gz"
    path.write_bytes(gzip.compress(line) + b"garbage behind it")
    report = ingest(path, tmp_path / "ds")
    assert (report.records, report.per_source[0].outcome) == (1, "damaged")


def test_joined_gzip_members_are_one_log(tmp_path):
    lines = [loglines.dump(loglines.autotvm(timestamp=n)) + b"\n" for n in range(2)]
    path = tmp_path / "a.log.gz"
    path.write_bytes(gzip.compress(lines[0]) + gzip.compress(lines[1]) + b"\0" * 512)
    report = ingest(path, tmp_path / "ds")
    assert (report.records, report.per_source[0].outcome) == (2, "read")


def test_a_truncated_member_of_an_archive_keeps_its_beginning(tmp_path):
    path = tmp_path / "logs.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.log.gz", truncated(gzip.compress))
        archive.writestr("b.log", loglines.dump(loglines.ansor()) + b"\n")
    report = ingest(path, tmp_path / "ds")
    assert {source.outcome for source in report.per_source} == {"damaged", "read"}
    assert report.records > 1


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"7z\xbc\xaf\x27\x1c" + b"\0" * 50, "7z"),
        (b"Rar!\x1a\x07\x00" + b"x" * 50, "RAR"),
        (b"\x04\x22\x4d\x18" + b"x" * 50, "LZ4"),
        (lzma.compress(b"x" * 99, format=lzma.FORMAT_ALONE), "LZMA"),
        (loglines.dump(loglines.autotvm()).decode().encode("utf-16"), "UTF-16"),
        (b"PAR1" + b"x" * 50, "Parquet"),
    ],
)
def test_what_else_there_is_has_a_name(tmp_path, content, word):
    path = tmp_path / "a.log"
    path.write_bytes(content)
    with pytest.raises(LogError, match=word):
        ingest(path, tmp_path / "ds")
