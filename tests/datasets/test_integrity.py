"""Damage is noticed, manifests are not believed, and readers keep what they opened."""

from __future__ import annotations

import json
import random

import loglines
import orjson
import polars as pl
import pytest
from typer.testing import CliRunner

from toolkit.cli.main import app
from toolkit.datasets import check, ingest, open_dataset
from toolkit.datasets import manifest as manifests
from toolkit.datasets.read import integrity
from toolkit.errors import DatasetError


def run(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


@pytest.fixture
def ds(tmp_path):
    """A dataset of three logs, one of them a copy, and a line that is no record."""
    lines = [loglines.autotvm(index=n, timestamp=n) for n in range(30)]
    loglines.write(tmp_path / "logs" / "a.log", *lines, b"{broken")
    loglines.write(tmp_path / "logs" / "b.log", *lines)
    loglines.write(tmp_path / "logs" / "c.log", loglines.ansor())
    ingest(tmp_path / "logs", tmp_path / "ds")
    return tmp_path / "ds"


def flip(path, rng):
    data = bytearray(path.read_bytes())
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


def files(folder):
    return [folder / part.file for part in manifests.load(folder).parts()]


@pytest.mark.parametrize("seed", range(5))
def test_a_flipped_bit_is_noticed_wherever_it_is(ds, seed):
    rng = random.Random(seed)
    assert run("check", "--dataset", ds).exit_code == 0
    for path in [*files(ds), ds / "dataset.json"]:
        whole = path.read_bytes()
        flip(path, rng)
        with pytest.raises(DatasetError):
            ingest(ds.parent / "logs" / "c.log", ds)
        if path.parent.name != "duplicates":  # which only ingests and checks look at
            with pytest.raises(DatasetError):
                open_dataset(ds)
        found = run("check", "--dataset", ds, "--json")
        assert found.exit_code == 1
        if path.name != "dataset.json":
            (entry,) = json.loads(found.stdout)["damaged"]
            assert ds / entry["file"] == path
        path.write_bytes(whole)
    assert run("check", "--dataset", ds).exit_code == 0


def test_damage_in_a_large_dataset_is_found_by_check_and_before_rewriting(ds, monkeypatch):
    monkeypatch.setattr(integrity, "VERIFIED_BYTES", 0)
    path = next(p for p in files(ds) if p.parent.name == "records")
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 4
    path.write_bytes(data)
    (entry,) = check(ds)["damaged"]
    assert "not what was written" in entry["why"]
    loglines.write(ds.parent / "logs" / "a.log", loglines.autotvm(timestamp=99))
    with pytest.raises(DatasetError, match="not what was written"):
        ingest(ds.parent / "logs", ds)
    path.write_bytes(data[:-1])
    with pytest.raises(DatasetError, match="bytes"):
        open_dataset(ds)


def test_a_missing_part_is_named(ds):
    files(ds)[0].unlink()
    assert check(ds)["damaged"][0]["why"] == "it is missing"
    for action in (lambda: open_dataset(ds), lambda: ingest(ds.parent / "logs", ds)):
        with pytest.raises(DatasetError, match="missing"):
            action()


def rewritten(folder, change):
    """Edit a manifest as somebody would who knows of its checksum."""
    data = orjson.loads((folder / "dataset.json").read_bytes())
    del data["checksum"]
    change(data)
    data["checksum"] = manifests._checksum(data)
    (folder / "dataset.json").write_bytes(orjson.dumps(data))


def twice(data):
    data["records"] *= 2
    for source in data["sources"]:
        source["records"] *= 2
        source["lines"] += source["records"] // 2


def elsewhere(data):
    data["records"][0]["file"] = "../other/records/part-000001-1.parquet"


def absolute(data):
    data["tasks"]["file"] = "/etc/passwd"


def other_kind(data):
    data["records"][0]["file"] = data["rejected"][0]["file"]


def wrong_sum(data):
    data["sources"][0]["records"] += 1
    data["sources"][0]["lines"] += 1


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (twice, "named twice"),
        (elsewhere, "no file of records"),
        (absolute, "no table"),
        (other_kind, "no file of records"),
        (wrong_sum, "disagree"),
        (lambda data: data["sources"][0].update(lines=99), "add up"),
        (lambda data: data.update(records=[5]), "damaged"),
        (lambda data: data.update(digest=5), "damaged"),
        (lambda data: data.update(tasks="tasks-000001.parquet"), "damaged"),
        (lambda data: data.update(sources=None), "damaged"),
        (lambda data: data["records"][0].update(rows="9"), "damaged"),
        (lambda data: data["records"][0].update(file=None), "damaged"),
        (lambda data: data["records"][0].update(size="x"), "damaged"),
    ],
)
def test_a_manifest_that_cannot_be_true_is_refused(ds, change, why):
    rewritten(ds, change)
    for action in (lambda: open_dataset(ds), lambda: ingest(ds.parent / "logs", ds)):
        with pytest.raises(DatasetError, match=why):
            action()
    assert run("check", "--dataset", ds).exit_code == 1


def test_an_edited_manifest_is_refused(ds):
    path = ds / "dataset.json"
    path.write_text(path.read_text().replace("a.log", "z.log"))
    result = run("describe", "--dataset", ds)
    assert (result.exit_code, "not as the toolkit wrote it" in result.stderr) == (1, True)


def test_a_reader_keeps_what_it_opened(ds):
    dataset = open_dataset(ds)
    records = dataset.records()
    log = loglines.write(ds.parent / "logs" / "a.log", loglines.ansor(timestamp=5))
    loglines.write(ds.parent / "logs" / "b.log", loglines.ansor(timestamp=6))
    before = files(ds)
    ingest(log.parent, ds)
    assert not any(path.exists() for path in before)
    assert records.collect().height == dataset.records().select(pl.len()).collect().item() == 31
    assert len(dataset.tasks()) == len(dataset.sketches()) == 2
    assert dataset.rejected().height == 1
    assert open_dataset(ds).records().collect().height == 3


def test_a_reader_that_is_overtaken_takes_the_newer_commit(ds, monkeypatch):
    old = manifests.load(ds)
    for name in "ab":
        loglines.write(ds.parent / "logs" / f"{name}.log", loglines.ansor(timestamp=5))
    ingest(ds.parent / "logs", ds)
    load, given = manifests.load, [old]
    monkeypatch.setattr(
        integrity.manifests, "load", lambda folder: given.pop() if given else load(folder)
    )
    assert open_dataset(ds).records().collect().height == 2


def test_many_parts_are_read_by_name(ds, monkeypatch):
    monkeypatch.setattr(integrity, "HELD_FILES", 0)
    assert open_dataset(ds).records().collect().height == 31
