"""Every format runs its role's conformance suite, and so does one that is not in."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import csv_format
import loglines
import orjson
import pytest
import test_helion
from test_documents import cache, t4

from toolkit.datasets import describe, export, ingest, open_dataset
from toolkit.errors import ToolkitError
from toolkit.logs.formats import FORMATS
from toolkit.testing import FormatConformance


def autotvm(folder: Path) -> Path:
    lines = [loglines.autotvm(i, (4, 8, 2 + i), timestamp=1.7e9 + i) for i in range(4)]
    return loglines.write(folder / "a.json", *lines)


def ansor(folder: Path) -> Path:
    lines = [loglines.ansor(loglines.ansor_steps(tile=(t, 2, 4))) for t in (1, 2, 4)]
    return loglines.write(folder / "a.json", *lines)


def metaschedule(folder: Path) -> Path:
    loglines.write(folder / "database_workload.json", loglines.workload())
    records = [loglines.metaschedule(costs=[1e-3 + i * 1e-4]) for i in range(3)]
    loglines.write(folder / "database_tuning_record.json", *records)
    return folder


def document(content: Any) -> Any:
    def write(folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        data = content.encode() if isinstance(content, str) else orjson.dumps(content)
        (folder / "a.json").write_bytes(data)
        return folder / "a.json"

    return write


def triton() -> dict[str, Any]:
    """Three configurations of a kernel; the last does not compile (``Infinity`` in the file)."""
    configurations = [
        {"kwargs": {"BLOCK_M": block, "EVEN": block > 16}, "num_warps": warps, "num_stages": 2}
        for block, warps in ((16, 2), (64, 4), (256, 8))
    ]
    unset = {"num_ctas": 1, "maxnreg": None, "pre_hook": None, "ir_override": None}
    times = [[0.5, 0.49, 0.52], [0.25, 0.2, 0.3], [math.inf] * 3]
    timings = [[{**c, **unset}, t] for c, t in zip(configurations, times, strict=True)]
    return {"key": [4096, 4096, "torch.float16"], "configs_timings": timings}


def helion(folder: Path) -> Path:
    return test_helion.write(folder, test_helion.ROWS, [test_helion.about("r1", "[(64,)]")])


LOGS = {
    "autotvm": autotvm,
    "ansor": ansor,
    "metaschedule": metaschedule,
    "t4": document(t4()),
    "kernel-tuner": document(cache()),
    "helion": helion,
    "triton": document(json.dumps(triton())),
}


class TestFormats(FormatConformance):
    @pytest.fixture(params=LOGS)
    def name(self, request: pytest.FixtureRequest) -> str:
        return str(request.param)

    @pytest.fixture
    def plugin(self, name: str) -> Any:
        return FORMATS.get(name)

    @pytest.fixture
    def log(self, name: str, tmp_path: Path) -> Path:
        return LOGS[name](tmp_path / "logs")


def test_a_triton_cache_says_what_triton_chose_by(tmp_path: Path) -> None:
    path = tmp_path / "abc" / "matmul_kernel.autotune.json"
    path.parent.mkdir()
    path.write_text(json.dumps(triton()))
    report = ingest(tmp_path, tmp_path / "dataset", machine="H100")
    assert (report.lines, report.records, report.rejected) == (3, 3, 0)
    dataset = open_dataset(tmp_path / "dataset")
    (task,) = dataset.tasks().values()
    assert (task.workload, task.machine) == ("matmul_kernel", "H100")
    assert task.arguments == [4096, 4096, "torch.float16"]
    (sketch,) = dataset.sketches().values()
    names = [knob.name for knob in sketch.knobs]
    assert names == ["BLOCK_M", "EVEN", "num_warps", "num_stages", "num_ctas"]
    rows = dataset.records(["state", "latency_s", "run_times_s"]).collect().rows()
    assert rows == [("ok", 0.5e-3, [0.5e-3]), ("ok", 0.25e-3, [0.25e-3]), ("unknown", None, [])]
    described = describe(dataset)
    assert described["tasks"][0]["best_s"] == 0.25e-3
    export(dataset, tmp_path / "out", "kernel-tuner")
    for number, wrong in enumerate(([1, [1.0]], [{"kwargs": 3}, [1.0]], [{"kwargs": {}}, ["x"]])):
        path.write_text(json.dumps({"key": [1], "configs_timings": [wrong]}))
        report = ingest(path, tmp_path / f"wrong-{number}")
        assert (report.records, report.rejected) == (0, 1) and report.reasons
    path.write_text(json.dumps({"key": [1], "configs_timings": 5}))
    with pytest.raises(ToolkitError, match="no timings"):
        ingest(path, tmp_path / "wrong")


TABLE = """block,unroll,time_s
16,yes,0.002
32,yes,0.001
32,no,0.0015
64,no,
"""


@pytest.fixture
def csv(monkeypatch: pytest.MonkeyPatch) -> None:
    """The format of this test, registered while it runs."""
    monkeypatch.setattr(FORMATS, "_paths", dict(FORMATS._paths))
    monkeypatch.setattr(FORMATS, "added", set())
    FORMATS.add("csv", "csv_format:Csv")


@pytest.mark.usefixtures("csv")
class TestAFormatOfSomebodyElse(FormatConformance):
    @pytest.fixture
    def plugin(self) -> Any:
        return csv_format.Csv

    @pytest.fixture
    def log(self, tmp_path: Path) -> Path:
        (tmp_path / "table.csv").write_text(TABLE)
        return tmp_path / "table.csv"

    def test_its_records_are_exported_as_what_holds_any(self, log: Path, tmp_path: Path) -> None:
        ingest(log, tmp_path / "dataset")
        dataset = open_dataset(tmp_path / "dataset")
        made = export(dataset, tmp_path / "out", "t4")
        assert made["records"] == 4
        report = ingest(tmp_path / "out", tmp_path / "again")
        assert report.records == 4


def test_a_plug_in_that_cannot_be_imported_is_told_with_its_cure(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(FORMATS, "_paths", {**FORMATS._paths, "bad": "no_such_package:Bad"})
    with pytest.raises(ToolkitError, match="'bad' \\(no_such_package:Bad\\) cannot be") as caught:
        ingest(autotvm(tmp_path), tmp_path / "dataset")
    assert "uninstall" in str(caught.value.cure)


def test_what_the_toolkit_recognises_is_no_other_formats(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """However much a plug-in claims, and however early its name stands in the alphabet."""
    monkeypatch.setattr(FORMATS, "_paths", {**FORMATS._paths, "a": "csv_format:Greedy"})
    report = ingest(document(cache())(tmp_path / "logs"), tmp_path / "dataset")
    assert [source.format for source in report.per_source] == ["kernel-tuner"]


def test_every_registered_format_is_tested() -> None:
    beside = {"metaschedule-workload", "helion-run", "t4-metadata"}
    assert set(LOGS) | beside == set(FORMATS.names())
