"""T4 results and Kernel Tuner caches."""

from __future__ import annotations

import json
import time

import pytest

from toolkit.datasets import ingest, open_dataset
from toolkit.errors import LogError
from toolkit.logs.formats import format_named
from toolkit.logs.read.detect import detect
from toolkit.logs.rows.base import BadLine


def t4(**metadata):
    def result(x, invalidity="correct", runtimes=(2.0, 4.0), word="a"):
        times = {"compilation": 100.0, "framework": 1.0, "search_algorithm": 0, "validation": 9.0}
        if runtimes:
            times["runtimes"] = list(runtimes)
        return {
            "timestamp": "2023-12-22 09:53:48.691683+00:00",
            "configuration": {"block": x, "unroll": True, "layout": word},
            "times": times,
            "invalidity": invalidity,
            "correctness": 1,
            "measurements": [{"name": "time", "value": 3.0, "unit": ""}],
        }

    return {
        "schema_version": "1.0.0",
        "metadata": {"timeunit": "miliseconds", **metadata},
        "results": [
            result(16),
            result(32, word="b"),
            result(32, "compile", ()),
            result(64, "constraints", ()),
            result(128, "timeout", ()),
            result(256, "runtime", ()),
            result(512, "correctness", ()),
            result(1024, runtimes=()),
            {"configuration": {}, "invalidity": "correct", "times": {}},
            {"configuration": {"block": 1}, "invalidity": "odd"},
            "no result",
        ],
    }


def cache(closed=True):
    def entry(x, y, **more):
        times = {
            "compile_time": 10.0,
            "verification_time": 0,
            "benchmark_time": 5.0,
            "strategy_time": 0,
            "framework_time": 1.0,
        }
        return {"x": x, "y": y, "time": 2.0, "times": [1.5, 2.5], **times, **more}

    document = {
        "device_name": "GPU 1",
        "kernel_name": "conv",
        "problem_size": [64, 64],
        "tune_params_keys": ["x", "y"],
        "tune_params": {"x": [1, 2], "y": ["a", "b"]},
        "objective": "time",
        "cache": {
            "1,a": entry(1, "a"),
            "1,b": entry(1, "b", time="InvalidConfig", times=None),
            "2,a": entry(2, "a", time="RuntimeFailedConfig", times=None),
            "2,b": entry(2, "b", time=1e20, times=None),
        },
    }
    text = json.dumps(document, indent=0)
    return text if closed else text.rstrip().removesuffix("}").rstrip().removesuffix("}") + ","


def test_t4_results():
    data = json.dumps(t4()).encode()
    assert detect(data) == "t4"
    result = format_named("t4").read(data, "conv", None)
    assert result.lines == 11
    assert [(r.line, r.reason) for r in result.rejected] == [
        (9, "the configuration is empty"),
        (10, "the invalidity 'odd' is not known"),
        (11, "a result has no configuration"),
    ]
    rows = result.rows.to_pylist()
    assert [row["state"] for row in rows] == [
        "ok",
        "ok",
        "compile",
        "instantiation",
        "run_timeout",
        "runtime",
        "wrong_answer",
        "ok",
    ]
    assert rows[0]["run_times_s"] == [0.002, 0.004]
    assert rows[0]["latency_s"] == pytest.approx(0.003)
    assert rows[0]["elapsed_s"] == pytest.approx(0.116)
    assert rows[0]["timestamp"] == pytest.approx(1703238828.691683)
    assert rows[7]["run_times_s"] == [0.003]
    assert rows[2]["latency_s"] is None
    (task,) = result.tasks
    assert (task.workload, task.format) == ("conv", "t4")
    (sketch,) = result.sketches
    assert [knob.kind for knob in sketch.knobs] == ["categorical"] * 3
    assert {word for _, word in sketch.knob("layout").labels} == {'"a"', '"b"'}
    assert rows[0]["decisions"][:2] == [16, 1]


@pytest.mark.parametrize(
    ("unit", "expected"),
    [("s", 2.0), ("Second", 2.0), ("microseconds", 2e-6), ("ms", 2e-3)],
)
def test_units(unit, expected):
    data = json.dumps(t4(timeunit=unit)).encode()
    rows = format_named("t4").read(data, "conv", None).rows.to_pylist()
    assert rows[0]["run_times_s"][0] == pytest.approx(expected)


def test_a_unit_that_nobody_knows_is_not_taken_for_milliseconds():
    with pytest.raises(BadLine, match="the time unit 'fortnights' is not known"):
        format_named("t4").read(json.dumps(t4(timeunit="fortnights")).encode(), "conv", None)


def test_a_document_that_grew_too_large_keeps_what_it_gave(tmp_path, monkeypatch):
    path, folder = tmp_path / "conv.json", tmp_path / "ds"
    path.write_text(json.dumps(t4()))
    ingest(path, folder)
    before = open_dataset(folder).records().collect()
    path.write_text(json.dumps(t4(), indent=1))
    monkeypatch.setattr("toolkit.datasets.write.reading.MAX_DOCUMENT_BYTES", 2**10)
    with pytest.raises(LogError, match="a JSON document of more than"):
        ingest(path, folder)
    assert len(before) and open_dataset(folder).records().collect().equals(before)


@pytest.mark.parametrize("end", ["+00:00", "Z", ""])
def test_times_do_not_depend_on_where_they_are_read(end, monkeypatch):
    document = t4()
    document["results"][0]["timestamp"] = f"2023-12-22 09:53:48{end}"
    monkeypatch.setenv("TZ", "JST-9")
    time.tzset()
    try:
        rows = format_named("t4").read(json.dumps(document).encode(), "conv", None).rows
    finally:
        monkeypatch.undo()
        time.tzset()
    assert rows.to_pylist()[0]["timestamp"] == 1703238828.0


def test_a_measurement_has_a_unit_of_its_own():
    document = t4(timeunit="seconds")
    document["results"][7]["measurements"][0]["unit"] = "ms"
    rows = format_named("t4").read(json.dumps(document).encode(), "conv", None).rows.to_pylist()
    assert rows[7]["run_times_s"] == [pytest.approx(0.003)]


@pytest.mark.parametrize("closed", [True, False])
def test_a_kernel_tuner_cache(closed):
    data = cache(closed).encode()
    assert detect(data) == "kernel-tuner"
    result = format_named("kernel-tuner").read(data, "file", None)
    rows = result.rows.to_pylist()
    assert [row["state"] for row in rows] == ["ok", "instantiation", "runtime", "unknown"]
    assert rows[0]["run_times_s"] == [0.0015, 0.0025]
    assert rows[0]["elapsed_s"] == pytest.approx(0.016)
    (task,) = result.tasks
    assert (task.workload, task.machine, task.arguments) == ("conv", "GPU 1", [64, 64])
    assert result.sketches[0].knob("x").choices == (1, 2)


def test_all_combinations_of_a_cache_are_an_enumerated_space(tmp_path):
    (tmp_path / "conv.json").write_text(cache())
    report = ingest(tmp_path / "conv.json", tmp_path / "ds")
    assert (report.lines, report.records) == (4, 4)
    assert list(open_dataset(tmp_path / "ds").enumerated().values()) == [True]


def test_a_document_that_changed_is_read_anew(tmp_path):
    path = tmp_path / "conv.json"
    path.write_text(json.dumps(t4()))
    ingest(path, tmp_path / "ds")
    document = t4()
    document["results"] = document["results"][:2]
    path.write_text(json.dumps(document))
    report = ingest(path, tmp_path / "ds")
    assert (report.lines, report.records) == (2, 2)
    assert open_dataset(tmp_path / "ds").records().collect().height == 2


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"{", "t4"),
        (b"[]", "t4"),
        (b'{"results": 3}', "t4"),
        (b'{"cache": {}}', "kernel-tuner"),
        (b'{"tune_params_keys": ["x"]}', "kernel-tuner"),
    ],
)
def test_what_is_no_document_is_refused(data, kind):
    with pytest.raises(BadLine, match=r"\w{3}"):
        format_named(kind).read(data, "x", None)


def test_a_damaged_document_alone_is_an_error(tmp_path):
    path = tmp_path / "x.json"
    path.write_text(json.dumps(t4())[:-10])
    report = ingest(path, tmp_path / "ds")
    assert report.per_source[0].outcome == "damaged"
    (tmp_path / "y.json").write_text("{}")
    with pytest.raises(LogError):
        ingest(tmp_path / "y.json", tmp_path / "ds")


def machine_file(**query):
    """As Kernel Tuner's ``store_metadata_file`` writes it."""
    lshw = [
        {"id": "computer", "class": "system", "configuration": {"boot": "normal"}, "children": [
            {"id": "cpu", "class": "processor", "product": "AMD EPYC 7402P"},
            {"id": "memory", "class": "memory", "product": "DIMM"},
        ]}
    ]  # fmt: skip
    environment = {"device_query": query, "requirements": ["numpy==1.24.2"]}
    metadata = {"hardware": {"lshw": lshw}, "environment": environment}
    return json.dumps({"metadata": metadata, "schema_version": "1.0.0"}, indent="  ")


NVIDIA = {"nvidia_smi_log": {"driver_version": "535", "gpu": {"product_name": "NVIDIA RTX A4000"}}}
TWO = {"nvidia_smi_log": {"gpu": [{"product_name": "A100"}, {"product_name": "A4000"}]}}
AMD = {"card0": {"GPU ID": "0x744c", "Card Series": "AMD Radeon PRO W7800"}, "system": {}}


@pytest.mark.parametrize(
    ("query", "machine"),
    [
        ({"nvidia-smi": NVIDIA}, "NVIDIA RTX A4000"),
        ({"rocm-smi": AMD}, "AMD Radeon PRO W7800"),
        ({}, "AMD EPYC 7402P"),
        ({"nvidia-smi": TWO}, None),
    ],
)
def test_t4_metadata_names_the_machine_of_the_results_beside_it(tmp_path, query, machine):
    results = {key: value for key, value in t4().items() if key != "metadata"}
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "gemm-results.json").write_text(json.dumps(results))
    (logs / "gemm-metadata.json").write_text(machine_file(**query))
    assert detect((logs / "gemm-metadata.json").read_bytes()) == "t4-metadata"
    for number, asked in enumerate((logs, logs / "gemm-results.json")):
        report = ingest(asked, tmp_path / f"ds{number}")
        tasks = open_dataset(tmp_path / f"ds{number}").tasks().values()
        assert {task.machine for task in tasks} == {machine}
        assert (report.records, report.rejected) == (8, 3)
    assert {source.outcome for source in report.per_source} == {"read"}
    again = ingest(logs, tmp_path / "ds0")
    assert {source.outcome for source in again.per_source} == {"unchanged"}


def test_t4_metadata_is_found_among_others_by_its_name_only(tmp_path):
    results = {key: value for key, value in t4().items() if key != "metadata"}
    for name, gpu in (("gemm", "A"), ("conv", "B")):
        query = {"nvidia-smi": {"nvidia_smi_log": {"gpu": {"product_name": gpu}}}}
        (tmp_path / f"{name}-results.json").write_text(json.dumps(results))
        (tmp_path / f"{name}-metadata.json").write_text(machine_file(**query))
    (tmp_path / "other.json").write_text(json.dumps(results))
    ingest(tmp_path, tmp_path / "ds")
    tasks = open_dataset(tmp_path / "ds").tasks().values()
    found = {task.workload: task.machine for task in tasks}
    assert found == {"gemm-results": "A", "conv-results": "B", "other": None}


def test_t4_metadata_may_be_nested_deeper_than_python_follows(tmp_path):
    results = {key: value for key, value in t4().items() if key != "metadata"}
    (tmp_path / "gemm-results.json").write_text(json.dumps(results))
    deep = "[" * 1000 + "]" * 1000
    told = machine_file().replace('"lshw": [', f'"lshw": [{deep},')
    assert deep in told
    (tmp_path / "gemm-metadata.json").write_text(told)
    assert ingest(tmp_path, tmp_path / "ds").records == 8
    (task,) = open_dataset(tmp_path / "ds").tasks().values()
    assert task.machine == "AMD EPYC 7402P"


def test_damaged_t4_metadata_is_said_and_names_no_machine(tmp_path):
    results = {key: value for key, value in t4().items() if key != "metadata"}
    (tmp_path / "gemm-results.json").write_text(json.dumps(results))
    (tmp_path / "gemm-metadata.json").write_text(machine_file()[:-20])
    report = ingest(tmp_path, tmp_path / "ds")
    assert {source.outcome for source in report.per_source} == {"read", "damaged"}
    (task,) = open_dataset(tmp_path / "ds").tasks().values()
    assert task.machine is None
