"""The real logs: every line accounted for, and the numbers that are known of them."""

from __future__ import annotations

import gzip
import lzma
from pathlib import Path

import polars as pl
import pytest

from toolkit.datasets import describe, ingest, open_dataset
from toolkit.logs.formats import document_formats
from toolkit.logs.read.detect import TEXT_LOG

pytestmark = pytest.mark.real_logs

FAILURES_S = 1e9


def read(path: Path) -> bytes:
    """A file's content, decompressed by its ending."""
    data = path.read_bytes()
    if path.suffix == ".gz":
        return gzip.decompress(data)
    return lzma.decompress(data) if path.suffix == ".xz" else data


def check(folder: Path, dataset_dir: Path):
    """Ingest a folder; every line of every log is a record, a duplicate or rejected."""
    report = ingest(folder, dataset_dir)
    assert report.lines == report.records + report.duplicates + report.rejected
    documents = {found.name for found in document_formats()}
    for source in report.per_source:
        assert source.lines == source.records + source.duplicates + source.rejected
        if source.outcome == "read" and source.format not in documents:
            lines = read(Path(source.path)).split(b"\n")
            assert source.lines == len(lines) - (lines[-1] == b"")
    dataset = open_dataset(dataset_dir)
    records = dataset.records().collect()
    assert records["latency_s"].max() is None or records["latency_s"].max() < FAILURES_S
    assert records.filter(pl.col("state") != "ok")["latency_s"].is_null().all()
    assert records.filter(pl.col("state") == "ok")["latency_s"].is_not_null().all()
    assert ingest(folder, dataset_dir).lines == 0
    return report, dataset


def good(dataset, format: str) -> pl.DataFrame:
    """Good candidates of a format."""
    tasks = [task_id for task_id, task in dataset.tasks().items() if task.format == format]
    return dataset.candidates(tasks).filter(pl.col("n_ok") > 0)


def test_ryzen(real_logs, tmp_path):
    folder = real_logs / "autotvm-0.2-ryzen3700x"
    report, dataset = check(folder, tmp_path / "ds")
    assert (report.records, len(dataset.tasks())) == (248_214, 104)
    complete = [task_id for task_id, done in dataset.enumerated().items() if done]
    assert len(complete) == 30
    sizes = dataset.candidates(complete).group_by("task_id").len()["len"]
    assert (sizes.min(), sizes.max()) == (168, 1620)
    # one of them was tuned completely in two networks
    sources = dataset.sources().with_columns(
        network=pl.col("path").str.extract(r"([^/]+)/[^/]+/[^/]+$")
    )
    pairs = (
        dataset.records(["task_id", "source_id", "candidate_id"])
        .filter(pl.col("task_id").is_in(complete))
        .collect()
        .join(sources.select("source_id", "network"), on="source_id")
        .group_by(["task_id", "network"])
        .agg(recorded=pl.col("candidate_id").n_unique())
        .join(dataset.candidates(complete).group_by("task_id").len(), on="task_id")
    )
    assert pairs.filter(pl.col("recorded") == pl.col("len")).height == 31
    # every outermost factor follows from the workload's shapes
    for group, _ in dataset.groups():
        for knob in group.sketch.knobs:
            if knob.kind == "tile":
                assert (group.decisions[:, knob.offset] > 0).all()


def test_v100(real_logs, tmp_path):
    report, dataset = check(real_logs / "ansor-autotvm-v100-roller", tmp_path / "ds")
    assert (report.records, len(dataset.tasks())) == (292_143, 276)
    ansor = good(dataset, "ansor")
    assert (ansor.height, ansor["task_id"].n_unique()) == (163_706, 179)
    summary = describe(dataset)
    assert {entry["format_version"] for entry in summary["formats"]} == {"0.2", "v0.6"}


def test_a100(real_logs, tmp_path):
    report, dataset = check(real_logs / "metaschedule-a100-resnet34", tmp_path / "ds")
    assert report.records + report.duplicates == 20_089
    assert len(dataset.tasks()) == 20
    assert good(dataset, "metaschedule").height == 14_956
    assert all(task.extents for task in dataset.tasks().values())
    assert any("conv2d" in task.workload for task in dataset.tasks().values())


def test_rtx2080ti(real_logs, tmp_path):
    report, dataset = check(real_logs / "ansor-v0.6-rtx2080ti", tmp_path / "ds")
    assert (report.records, len(dataset.tasks())) == (42_300, 67)


def test_t4(real_logs, tmp_path):
    report, dataset = check(real_logs / "t4-kernel-tuner", tmp_path / "ds")
    assert report.records == 4362 + 4362 + 11_130
    per_format = {s.format: s.records for s in report.per_source}
    assert set(per_format) == {"t4", "kernel-tuner"}
    # the same measurements in two formats
    convolutions = [t for t in dataset.tasks().values() if t.workload.startswith("convolution")]
    best = (
        dataset.candidates([t.task_id for t in convolutions])
        .group_by("task_id")
        .agg(pl.col("latency_s").min())
    )
    assert best["latency_s"].max() == pytest.approx(best["latency_s"].min())


def test_odd(real_logs, tmp_path):
    report, dataset = check(real_logs / "odd", tmp_path / "ds")
    (text_log,) = (s for s in report.per_source if s.outcome == "skipped")
    assert text_log.format == TEXT_LOG
    damaged = dataset.rejected().filter(pl.col("reason").str.contains("not UTF-8"))
    assert damaged.select("line").to_series().to_list() == [3068]
    versions = {e["format_version"] for e in describe(dataset)["formats"] if e["format"] == "ansor"}
    assert versions == {"v0.2", "v0.3", "v0.5", "v0.6"}
    rvv = [s for s in report.per_source if "rvv-all-failed" in s.path]
    assert sum(s.records + s.duplicates for s in rvv) == 504
    states = dict(dataset.records().group_by("state").len().collect().iter_rows())
    assert states["build_timeout"] > 0
    assert states["instantiation"] > 0
