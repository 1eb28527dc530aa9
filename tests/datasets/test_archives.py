"""Archives: read without unpacking; traps are refused."""

from __future__ import annotations

import gzip
import io
import tarfile
import zipfile

import loglines
import pytest
import zstandard

from toolkit.datasets import ingest, open_dataset
from toolkit.errors import LogError
from toolkit.logs import archives

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
    assert {s.message for s in report.skipped} == {"its path climbs out of the archive"}
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
    assert {s.message for s in report.skipped} == {
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
