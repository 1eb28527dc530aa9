"""Helion's autotuning logs: a table of configurations, and what its runs were."""

from __future__ import annotations

import csv
import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from toolkit.datasets import IngestReport, describe, ingest, open_dataset
from toolkit.logs.formats.helion.format import configuration
from toolkit.logs.rows.base import BadLine

COLUMNS = [
    *("run_id", "timestamp_s", "config_id", "generation", "status", "perf_ms", "compile_time_s"),
    "config",
]


def row(
    status: str, time_ms: str, *, run: str = "r1", block: int = 64, warps: int = 4
) -> list[str]:
    config = f"Config(block_sizes=[{block}, 32], indexing='pointer', num_warps={warps})"
    return [run, "1.50", f"c{block}", "0", status, time_ms, "0.80", config]


def about(run: str, shape: str, device: str | None = "NVIDIA H100") -> dict[str, Any]:
    hardware = {"device_kind": "cuda", "device_name": device}
    return {
        "run_id": run, "kernel_name": "matmul", "kernel_source": "def matmul(): ...",
        "input_shapes": shape, "dtypes": "['torch.float16']", "hardware_info": hardware,
        "settings": {"backend": "triton"}, "configs": {},
    }  # fmt: skip


def write(folder: Path, rows: list[list[str]], runs: list[dict[str, Any]] | None = None) -> Path:
    """Files as Helion writes them: the table with its line ends, and its sidecar."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "run.csv").open("w", newline="") as file:
        csv.writer(file).writerows([COLUMNS, *rows])
    if runs is not None:
        lines = [json.dumps(one) + "\n" for one in runs]
        (folder / "run.meta.jsonl").write_text("".join(lines))
    return folder


ROWS = [
    row("started", ""),
    row("ok", "0.500000"),
    row("ok", "0.250000", block=128),
    row("error", "", block=256),
    row("timeout", "", block=512),
    row("deduplicated", "0.250000", block=1024),
    row("ok", "2.000000", run="r2"),
]


def counts(report: IngestReport) -> tuple[int, int, int]:
    return report.lines, report.records, report.rejected


def test_runs_are_tasks_with_their_kernel_shapes_and_device(tmp_path: Path) -> None:
    runs = [about("r1", "[(64, 32), (32, 16)]"), about("r2", "[(128, 32), (32, 16)]")]
    log = write(tmp_path / "logs", ROWS, runs)
    report = ingest(log, tmp_path / "dataset")
    table = next(source for source in report.per_source if source.format == "helion")
    assert (table.lines, table.records, table.rejected) == (7, 5, 2)
    assert table.message is None
    assert set(table.reasons) == {
        "nothing was measured: started", "nothing was measured: deduplicated",
    }  # fmt: skip
    dataset = open_dataset(tmp_path / "dataset")
    tasks = sorted(dataset.tasks().values(), key=lambda task: str(task.arguments))
    assert [task.workload for task in tasks] == ["matmul", "matmul"]
    assert tasks[1].arguments == [[[64, 32], [32, 16]], ["torch.float16"]]
    told = {(task.machine, task.target, task.target_kind) for task in tasks}
    assert told == {("NVIDIA H100", "triton", "cuda")}
    (sketch,) = dataset.sketches().values()
    names = [knob.name for knob in sketch.knobs]
    assert names == ["block_sizes[0]", "block_sizes[1]", "indexing", "num_warps"]
    rows = dataset.records(["state", "latency_s"]).collect().rows()
    assert rows == [
        ("ok", 0.5e-3), ("ok", 0.25e-3), ("unknown", None), ("build_timeout", None), ("ok", 2e-3),
    ]  # fmt: skip
    assert sorted(task["best_s"] for task in describe(dataset)["tasks"]) == [0.25e-3, 2e-3]


def test_without_the_second_file_runs_are_still_apart(tmp_path: Path) -> None:
    report = ingest(write(tmp_path / "logs", ROWS), tmp_path / "dataset", machine="mine")
    assert counts(report) == (7, 5, 2)
    assert "kernels and shapes are unknown" in str(report.per_source[0].message)
    tasks = open_dataset(tmp_path / "dataset").tasks().values()
    assert {(task.workload, task.machine) for task in tasks} == {("run", "mine")}
    assert len(tasks) == 2


@pytest.mark.parametrize("packed", ["gz", "zip"])
def test_the_second_file_is_read_where_it_is_packed(tmp_path: Path, packed: str) -> None:
    log = write(tmp_path / "logs", ROWS, [about("r1", "[(64,)]"), about("r2", "[(128,)]")])
    if packed == "gz":
        plain = log / "run.meta.jsonl"
        plain.with_name("run.meta.jsonl.gz").write_bytes(gzip.compress(plain.read_bytes()))
        plain.unlink()
    else:
        log = Path(shutil.make_archive(str(tmp_path / "packed"), packed, log))
    assert ingest(log, tmp_path / "dataset").records == 5
    tasks = open_dataset(tmp_path / "dataset").tasks().values()
    told = sorted((str(task.arguments), task.workload, task.machine) for task in tasks)
    assert told == [
        ("[[[128]], ['torch.float16']]", "matmul", "NVIDIA H100"),
        ("[[[64]], ['torch.float16']]", "matmul", "NVIDIA H100"),
    ]


def test_a_description_that_is_nested_too_deep_is_left_alone(tmp_path: Path) -> None:
    runs = [about("r1", "[(64,)]"), about("r2", "[(128,)]")]
    runs[0]["settings"] = json.loads("[" * 300 + "]" * 300)
    assert ingest(write(tmp_path / "logs", ROWS, runs), tmp_path / "dataset").records == 5
    tasks = open_dataset(tmp_path / "dataset").tasks().values()
    assert {task.workload: task.arguments for task in tasks} == {
        "run": None, "matmul": [[[128]], ["torch.float16"]],
    }  # fmt: skip


def test_what_is_learned_of_runs_later_is_taken_in(tmp_path: Path) -> None:
    log = write(tmp_path / "logs", ROWS)
    ingest(log, tmp_path / "dataset")
    write(log, ROWS, [about("r1", "[(64,)]")])
    ingest(log, tmp_path / "dataset")
    dataset = open_dataset(tmp_path / "dataset")
    assert {task.workload for task in dataset.tasks().values()} == {"matmul", "run"}
    assert dataset.records().collect().height == 5


def test_older_tables_have_other_columns(tmp_path: Path) -> None:
    old = "timestamp_s,config_index,generation,status,perf_ms,compile_time_s,config"
    line = '1.00,1,0,ok,0.5,0.8,"{""block_sizes"": [16], ""loop_orders"": [[0, 1]]}"'
    (tmp_path / "old.csv").write_text(f"{old}\n{line}\n")
    assert counts(ingest(tmp_path / "old.csv", tmp_path / "dataset")) == (1, 1, 0)
    (sketch,) = open_dataset(tmp_path / "dataset").sketches().values()
    assert [knob.name for knob in sketch.knobs] == ["block_sizes[0]", "loop_orders"]


@pytest.mark.parametrize(
    "text",
    [
        "", "Config(1)", "Config(a=b)", "Config(a=__import__('os'))", "Config(", "[1]", "{",
        "Config(a=" + "[" * 300 + "]" * 300 + ")", "x" * 2**17,
    ],
)  # fmt: skip
def test_what_is_no_configuration_is_rejected(text: str) -> None:
    with pytest.raises(BadLine):
        configuration(text)


def test_rows_that_cannot_be_read_are_rejected_with_their_line(tmp_path: Path) -> None:
    bad = [row("ok", "fast"), row("ok", "-1"), row("ok", "")[:-1], ["x"], row("", "1.0")]
    report = ingest(write(tmp_path / "logs", [*ROWS[:3], *bad]), tmp_path / "dataset")
    assert counts(report) == (8, 3, 5)
    states = open_dataset(tmp_path / "dataset").records(["state"]).collect()["state"].to_list()
    assert states == ["ok", "ok", "unknown"], "a negative time is no success"


def test_a_table_that_is_cut_off_gives_what_it_has(tmp_path: Path) -> None:
    path = write(tmp_path / "logs", ROWS) / "run.csv"
    data = path.read_bytes()
    for at in range(len(",".join(COLUMNS)) + 3, len(data), 37):
        path.write_bytes(data[:at])
        report = ingest(path, tmp_path / f"dataset-{at}")
        assert report.lines == report.records + report.duplicates + report.rejected
        assert report.lines == data[:at].rstrip(b"\n").count(b"\n")


def test_a_table_that_helion_wrote(tmp_path: Path) -> None:
    helion = pytest.importorskip("helion")
    from helion.autotuner.logger import AutotuneLogEntry, AutotuneLogSink
    from helion.autotuner.metrics import KernelMetadata

    told = {"kernel_name": "add", "kernel_source": "def add(): ...", "input_shapes": "[(64,)]"}
    metadata = KernelMetadata(**told, dtypes="['torch.float32']", hardware="a GPU", settings={})
    with AutotuneLogSink(str(tmp_path / "run"), metadata, collect_dataset=True) as sink:
        sink.start_run()
        for block, time_ms in ((16, 0.5), (32, 0.25), (64, None)):
            config = helion.Config(block_sizes=[block], num_warps=4, loop_orders=[[1, 0]])
            entry = {"generation": 0, "compile_time": 0.1, "config": config}
            entry |= {"config_id": sink.register_config(config), "perf_ms": time_ms}
            sink.record(AutotuneLogEntry(status="ok" if time_ms else "error", **entry))
        sink.end_run()
    report = ingest(tmp_path, tmp_path / "dataset")
    assert report.records == 3
    (task,) = open_dataset(tmp_path / "dataset").tasks().values()
    assert (task.workload, task.machine, task.arguments) == (
        "add", "a GPU", [[[64]], ["torch.float32"]],
    )  # fmt: skip
