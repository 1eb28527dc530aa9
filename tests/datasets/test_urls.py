"""Datasets and models on object stores: against a real S3 server, and in memory."""

from __future__ import annotations

import logging
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import fsspec
import orjson
import polars as pl
import pytest
import s3fs
from made_autotvm import write_autotvm
from made_commands import QUICK
from moto.server import ThreadedMotoServer
from running import here

from toolkit import reports
from toolkit.datasets import check, ingest, merge, open_dataset
from toolkit.datasets.urls import folder_at
from toolkit.errors import DatasetError, ToolkitError
from toolkit.features import extract, extractor_named

TABLES = ("records", "rejected", "tasks", "sketches")
# Strategies with and without a model; no more runs than that takes.
SCENARIO = """
seeds = 1
resamples = 100
[[strategy]]
name = "random"
[[strategy]]
name = "transfer"
[budget]
evaluations = 40
"""


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of two logs on this machine."""
    folder = tmp_path_factory.mktemp("places")
    write_autotvm(folder / "a" / "log.json")
    write_autotvm(folder / "b" / "log.json", [(16, 32, 7)])
    ingest([folder / "a", folder / "b"], folder / "dataset", workers=0)
    return folder / "dataset"


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of an empty bucket on a server of this test."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    for name, value in {
        "AWS_ACCESS_KEY_ID": "me",
        "AWS_SECRET_ACCESS_KEY": "mine",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
    }.items():
        monkeypatch.setenv(name, value)
    s3fs.S3FileSystem.clear_instance_cache()
    # What a server was told outlives it, in this process.
    name = f"lab-{uuid.uuid4().hex}"
    s3fs.S3FileSystem().mkdir(name)
    try:
        yield f"s3://{name}"
    finally:
        s3fs.S3FileSystem.clear_instance_cache()
        server.stop()


@pytest.fixture
def memory() -> Iterator[str]:
    """The URL of an empty store in memory."""
    yield "memory://lab"
    fsspec.filesystem("memory").store.clear()


def test_a_dataset_in_a_bucket_is_the_dataset(bucket: str, dataset: Path, tmp_path: Path) -> None:
    code, said, err = here(
        "merge", dataset, "--out", f"{bucket}/all/dataset", "--json", cwd=tmp_path
    )
    assert code == 0, err
    assert orjson.loads(said)["dataset"] == f"{bucket}/all/dataset"
    merge([dataset], tmp_path / "merged")
    there, own = open_dataset(f"{bucket}/all/dataset"), open_dataset(tmp_path / "merged")
    assert there.fingerprint() == own.fingerprint()
    for name in TABLES:
        assert there._tables[name].collect().equals(own._tables[name].collect()), name
    assert there.candidates().equals(own.candidates())
    lazily = there.records(["latency_s"]).filter(pl.col("latency_s") > 0)
    assert isinstance(lazily, pl.LazyFrame)
    assert lazily.collect().equals(own.records(["latency_s"]).drop_nulls().collect())
    assert check(f"{bucket}/all/dataset").damaged == []
    # And back again, as the same bytes.
    merge([f"{bucket}/all/dataset"], tmp_path / "back")
    for path in (tmp_path / "merged").rglob("*.parquet"):
        back = tmp_path / "back" / path.relative_to(tmp_path / "merged")
        assert back.read_bytes() == path.read_bytes()


def test_commands_take_urls(bucket: str, dataset: Path, tmp_path: Path) -> None:
    merge([dataset], f"{bucket}/dataset")
    given = ("--dataset", f"{bucket}/dataset", "--json")
    code, said, err = here("describe", *given, cwd=tmp_path)
    assert code == 0, err
    assert orjson.loads(said)["dataset"] == f"{bucket}/dataset"
    assert here("check", *given, cwd=tmp_path)[0] == 0
    (tmp_path / "quick.toml").write_text(QUICK)
    train = ("train", "throughput", "--recipe", "quick.toml", "--out", "model")
    assert here(*train, *given, cwd=tmp_path)[0] == 0
    s3fs.S3FileSystem().put(str(tmp_path / "model"), f"{bucket}/models/mine", recursive=True)
    outputs = []
    for model in ("model", f"{bucket}/models/mine"):
        code, said, err = here(
            "predict", f"{bucket}/dataset", "--model", model, "--json", cwd=tmp_path
        )
        assert code == 0, err
        outputs.append({**orjson.loads(said), "model": None})
    assert outputs[0] == outputs[1]
    (tmp_path / "few.toml").write_text(SCENARIO)
    simulate = ("simulate", "--scenario", "few.toml", "--workers", "1")
    simulate += ("--model", f"{bucket}/models/mine")
    code, _, err = here(*simulate, *given, cwd=tmp_path)
    assert code == 0, err
    report = ("report", "--dataset", f"{bucket}/dataset", "--model", f"{bucket}/models/mine")
    code, _, err = here(*report, "--json", cwd=tmp_path)
    assert code == 0, err
    code, _, err = here("ingest", dataset.parent / "a", *given, cwd=tmp_path)
    assert code == 1 and "toolkit merge FOLDER --out URL" in " ".join(err.split())


def test_what_is_copied_halfway_is_no_dataset(
    memory: str, dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = type(fsspec.filesystem("memory"))
    usual, copied = store.put_file, []

    def put_file(self: object, path: str, to: str, **options: object) -> None:
        copied.append(to)
        if len(copied) == 3:
            raise ConnectionResetError("the line was cut")
        usual(self, path, to, **options)

    monkeypatch.setattr(store, "put_file", put_file)
    with pytest.raises(DatasetError, match="the line was cut"):
        merge([dataset], f"{memory}/dataset")
    with pytest.raises(DatasetError, match="there is no dataset"):
        open_dataset(f"{memory}/dataset")
    # The same command again ends it, and a second dataset finds the place taken.
    merge([dataset], f"{memory}/dataset")
    assert open_dataset(f"{memory}/dataset").fingerprint() == open_dataset(dataset).fingerprint()
    with pytest.raises(DatasetError, match="there is a dataset already"):
        merge([dataset], f"{memory}/dataset")


def test_a_merge_says_which_dataset_is_not_there(
    memory: str, dataset: Path, tmp_path: Path
) -> None:
    for out in (tmp_path / "out", f"{memory}/out"):
        with pytest.raises(DatasetError, match="there is no dataset") as raised:
            merge([dataset, f"{memory}/none"], out)
        assert str(raised.value.where).endswith("none")


def test_a_report_is_followed_beside_a_store_s_dataset(
    memory: str, dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    merge([dataset], f"{memory}/dataset")
    usual = reports.follow_report
    monkeypatch.setattr(reports, "follow_report", lambda *a, **how: usual(*a, **how, rounds=1))
    monkeypatch.setattr(reports, "render_html", lambda summary: "<html><body></body></html>")
    command = ("report", "--follow", "--dataset", f"{memory}/dataset", "--json")
    code, said, err = here(*command, cwd=tmp_path)
    assert code == 0, err
    assert orjson.loads(said)["dataset"]["records"] > 0
    assert (tmp_path / "tuning" / "report.html").is_file()


def test_damage_is_found(memory: str, dataset: Path) -> None:
    merge([dataset], f"{memory}/dataset")
    manifest = folder_at(f"{memory}/dataset") / "dataset.json"
    part = next(iter((folder_at(f"{memory}/dataset") / "records").iterdir()))
    whole = part.read_bytes()
    part.write_bytes(bytes(reversed(whole)))
    assert [row["why"] for row in check(f"{memory}/dataset").damaged]
    part.write_bytes(whole[:-1])
    with pytest.raises(DatasetError, match="were written"):
        open_dataset(f"{memory}/dataset")
    part.unlink()
    with pytest.raises(DatasetError, match="missing"):
        open_dataset(f"{memory}/dataset")
    manifest.write_bytes(b"{}")
    with pytest.raises(DatasetError, match="schema version"):
        open_dataset(f"{memory}/dataset")


def test_features_of_a_store_s_dataset_are_kept_in_the_workspace(
    memory: str, dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    merge([dataset], f"{memory}/dataset")
    opened = open_dataset(f"{memory}/dataset")
    told = [extract(opened, extractor_named("knobs")) for _ in range(2)]
    assert told[0] == told[1] and told[0]["candidates"] == opened.candidates().height
    kept = list((tmp_path / "tuning" / "features" / opened.fingerprint()).rglob("*.parquet"))
    assert len(kept) == told[0]["groups"]


def test_what_cannot_be_reached_is_told_with_its_cure(
    bucket: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for url, said in {
        f"{bucket}/none": "there is no dataset",
        "s3://none/dataset": "there is no dataset",
        "nothing://a/b": "such as s3://bucket/folder",
    }.items():
        code, _, err = here("describe", "--dataset", url, cwd=tmp_path)
        assert code == (2 if url.startswith("nothing") else 1), err
        assert said in " ".join(err.replace("\u2502", "").split()), err
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    with pytest.raises(ToolkitError, match=r"pip install 'tvm-tuning-toolkit\[cloud\]'"):
        open_dataset("gs://a/b")
    monkeypatch.setitem(sys.modules, "upath", None)
    with pytest.raises(ToolkitError, match=r"pip install 'tvm-tuning-toolkit\[cloud\]'"):
        open_dataset("memory://b")
    monkeypatch.delitem(sys.modules, "upath")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    # Nobody answers there, and the client would ask five times and wait in between.
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    s3fs.S3FileSystem.clear_instance_cache()
    code, _, err = here("describe", "--dataset", f"{bucket}/dataset", cwd=tmp_path)
    assert code == 1 and "cannot be read" in err and "127.0.0.1:9" in err
