"""Export: what is written is read again as the same records, and by the programs it is for."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import loglines
import pytest

from toolkit.datasets import export, ingest, open_dataset, select_records
from toolkit.errors import DatasetError


def autotvm_lines():
    yield from (
        loglines.autotvm(index=n, tiles=(2**n, 8, 2), timestamp=n + 0.5, costs=[1e-5 * (n + 1)])
        for n in range(5)
    )
    yield loglines.autotvm(index=9, costs=[1e9], error=4, timestamp=9)
    yield loglines.autotvm(index=1, tiles=(2, 8, 2), timestamp=77, costs=[0.5e-5])
    yield loglines.autotvm(index=3, costs=[1e9], error=0, timestamp=78)
    yield loglines.autotvm(extra=[["ann", "an", ["vec"]], ["re", "re", [1, 0]]], timestamp=79)
    yield loglines.autotvm_old()
    yield loglines.autotvm_old(template="winograd", error=6)


def ansor_lines():
    for version in ("v0.2", "v0.3", "v0.5", "v0.6"):
        yield loglines.ansor(version=version, timestamp=ord(version[-1]), key='["one", 1]')
    yield loglines.ansor(loglines.ansor_steps(tile=(4, 2, 2)), costs=[1e-3, 2e-3])
    yield loglines.ansor(costs=[1e10], error=7, elapsed=15)
    for rows in (64, 128):
        yield loglines.ansor(loglines.ansor_steps(rows=rows), key='["bare"]')


def metaschedule_lines():
    yield loglines.metaschedule()
    yield loglines.metaschedule(1, loglines.trace(tile=(2, 2, 16)))
    yield loglines.metaschedule(0, loglines.trace(location=3), [1e10])


@pytest.fixture
def dataset(tmp_path):
    logs = tmp_path / "logs"
    loglines.write(logs / "a.log", *autotvm_lines())
    loglines.write(logs / "b.json", *ansor_lines())
    two = [loglines.workload("1", 64), loglines.workload("2", 128, new=True)]
    loglines.write(logs / "db" / "database_workload.json", *two)
    loglines.write(logs / "db" / "database_tuning_record.json", *metaschedule_lines())
    ingest(logs, tmp_path / "ds")
    return open_dataset(tmp_path / "ds")


def ids(opened, format=None):
    records = opened.records(["record_id", "format"]).collect()
    if format:
        records = records.filter(records["format"] == format)
    return sorted(records["record_id"])


@pytest.mark.parametrize("format", ["autotvm", "ansor", "metaschedule"])
def test_the_same_records_come_back(dataset, tmp_path, format):
    out = tmp_path / "out" / ("db" if format == "metaschedule" else "log.json")
    report = export(dataset, out, format, mixed=True)
    assert report["records"] == len(ids(dataset, format))
    assert report["left_out"] == dataset.records().collect().height - report["records"]
    back = ingest(out, tmp_path / "back")
    assert back.duplicates == 0
    again = open_dataset(tmp_path / "back")
    assert ids(again) == ids(dataset, format)
    tasks = {t.task_id: t for t in again.tasks().values()}
    known = dataset.tasks()
    assert all(known[task_id].arguments == task.arguments for task_id, task in tasks.items())
    assert set(again.candidates()["candidate_id"]) <= set(dataset.candidates()["candidate_id"])


@pytest.mark.parametrize("machine", [None, "box"])
def test_kernel_tuner_records_come_back(tmp_path, machine):
    entries = {
        f"{n},a": {
            "x": n,
            "y": "a",
            "time": "CompilationFailedConfig" if n == 3 else 0.1 * n,
            "times": [0.1 * n, 0.7 / (n + 1)] if n % 2 else None,
            "compile_time": 31.7 * n,
            "benchmark_time": 0.3,
            "timestamp": f"2023-12-22 09:53:48.69168{n}+00:00",
        }
        for n in range(8)
    }
    del entries["5,a"]["timestamp"]
    entries["6,a"]["time"] = "ErrorConfig"
    document = {
        "device_name": "GPU 1",
        "kernel_name": "conv",
        "problem_size": [64, 64],
        "tune_params_keys": ["x", "y"],
        # values that were never measured, and ones that Python takes for equal
        "tune_params": {"x": list(range(9, -1, -1)), "y": ["b", "a", 1, True, 1.0, [2]]},
        "cache": entries,
    }
    (tmp_path / "conv.json").write_text(json.dumps(document))
    ingest(tmp_path / "conv.json", tmp_path / "ds", machine=machine)
    dataset = open_dataset(tmp_path / "ds")
    assert len(ids(dataset)) == 8
    report = export(dataset, tmp_path / "out", "kernel-tuner")
    ingest(report["files"], tmp_path / "back", machine=machine)
    again = open_dataset(tmp_path / "back")
    assert ids(again) == ids(dataset)
    assert set(again.candidates()["candidate_id"]) == set(dataset.candidates()["candidate_id"])


def test_t4_records_come_back(tmp_path):
    results = [
        {
            "timestamp": f"2023-12-22 09:53:48.69168{n}+00:00",
            "configuration": {"x": n, "word": "a", "f": 0.5},
            "times": {"compilation": 10.1, "runtimes": [1.1, 2.3, n / 3] if n else []},
            "invalidity": invalidity,
            "correctness": 1,
        }
        for n, invalidity in enumerate(
            ["runtime", "correct", "correct", "timeout", "correctness", "constraints", "compile"]
        )
    ] + [
        # said to be correct, but with a time that no program can have
        {"configuration": {"x": 9}, "times": {"runtimes": [1e20]}, "invalidity": "correct"}
    ]
    document = {"metadata": {"timeunit": "miliseconds"}, "results": results}
    (tmp_path / "conv.json").write_text(json.dumps(document))
    ingest(tmp_path / "conv.json", tmp_path / "ds", machine="box")
    dataset = open_dataset(tmp_path / "ds")
    report = export(dataset, tmp_path / "out", "t4")
    ingest(report["files"], tmp_path / "back")
    assert ids(open_dataset(tmp_path / "back")) == ids(dataset)


def test_a_sidecar_and_the_machine_come_back(tmp_path):
    folder = tmp_path / "db"
    loglines.write(folder / "database_workload.json", loglines.workload())
    loglines.write(folder / "database_tuning_record.json", loglines.metaschedule())
    trial = {"elapsed_s": 0.5, "timestamp": 5.0, "state": "ok"}
    loglines.write(folder / "database_trials.jsonl", trial)
    tasks = [{"workload_index": 0, "name": "GMM", "space_size": 1}]
    loglines.write(folder / "collection.json", {"machine": "box", "protocol": {}, "tasks": tasks})
    ingest(folder, tmp_path / "ds")
    dataset = open_dataset(tmp_path / "ds")
    export(dataset, tmp_path / "out", "metaschedule")
    ingest(tmp_path / "out", tmp_path / "back")
    again = open_dataset(tmp_path / "back")
    assert ids(again) == ids(dataset)
    assert again.tasks() == dataset.tasks()
    assert again.enumerated() == dataset.enumerated()


def test_sidecars_of_an_earlier_export_do_not_describe_other_records(tmp_path):
    folder = tmp_path / "db"
    loglines.write(folder / "database_workload.json", loglines.workload())
    loglines.write(folder / "database_tuning_record.json", loglines.metaschedule())
    ingest(folder, tmp_path / "bare")
    trial = {"elapsed_s": 0.5, "timestamp": 5.0, "state": "ok"}
    loglines.write(folder / "database_trials.jsonl", trial)
    loglines.write(folder / "collection.json", {"machine": "box", "protocol": {}, "tasks": []})
    ingest(folder, tmp_path / "told")
    for name in ("told", "bare"):
        dataset = open_dataset(tmp_path / name)
        export(dataset, tmp_path / "out", "metaschedule", force=True)
    ingest(tmp_path / "out", tmp_path / "back")
    assert ids(open_dataset(tmp_path / "back")) == ids(dataset)


def test_the_best_and_the_top(dataset):
    best = select_records(dataset, top=1)
    assert best["task_id"].is_unique().all()
    dense = [t for t, task in dataset.tasks().items() if task.workload == "dense_nopack.x86"]
    assert best.filter(best["task_id"] == dense[0])["latency_s"].to_list() == [1e-5]
    top = select_records(dataset, task_ids=dense, top=3)
    assert sorted(top["latency_s"]) == pytest.approx([1e-5, 1.6e-5, 2e-5])
    assert top["candidate_id"].n_unique() == 3


def test_the_best_is_best_in_the_median_and_not_by_luck(tmp_path):
    lucky = [
        loglines.autotvm(costs=[cost], timestamp=at) for at, cost in enumerate((1e-6, 9e-6, 5e-6))
    ]
    steady = [
        loglines.autotvm(index=8, tiles=(2, 2, 2), costs=[2e-6 + at * 1e-8], timestamp=10 + at)
        for at in range(3)
    ]
    ingest(loglines.write(tmp_path / "log.json", *lucky, *steady), tmp_path / "ds")
    (best,) = select_records(open_dataset(tmp_path / "ds"), top=1).iter_rows(named=True)
    assert best["latency_s"] == pytest.approx(2.01e-6)
    assert best["timestamp"] == 11
    both = select_records(open_dataset(tmp_path / "ds"), top=2)
    assert sorted(both["latency_s"]) == pytest.approx([2.01e-6, 5e-6])


def test_a_filter(dataset):
    failed = select_records(dataset, where="state <> 'ok' AND format = 'autotvm'")
    assert failed.height == 3
    for where, words in [("nope = 1", "not understood"), ("state ==== 1", "not understood")]:
        with pytest.raises(DatasetError, match=words):
            select_records(dataset, where=where)
    with pytest.raises(DatasetError, match="no record"):
        select_records(dataset, where="latency_s > 1000")
    with pytest.raises(DatasetError, match="no task"):
        select_records(dataset, task_ids=["zzz"])


def test_errors(dataset, tmp_path):
    with pytest.raises(DatasetError, match="ansor"):
        export(dataset, tmp_path / "x", "anzor")
    with pytest.raises(DatasetError, match="no selected record can be written"):
        export(dataset, tmp_path / "x", "autotvm", where="format = 'ansor'")


def test_records_that_only_others_can_hold_are_sent_to_t4(tmp_path):
    timing = [{"kwargs": {"BLOCK_M": 16}, "num_warps": 2}, [0.5, 0.4, 0.6]]
    cache = {"key": [4096, "torch.float16"], "configs_timings": [timing]}
    (tmp_path / "kernel.autotune.json").write_text(json.dumps(cache))
    ingest(tmp_path / "kernel.autotune.json", tmp_path / "ds")
    for format in (None, "ansor"):
        with pytest.raises(DatasetError, match="no selected record") as raised:
            export(open_dataset(tmp_path / "ds"), tmp_path / "x", format)
        assert raised.value.cure == "export them as t4"
    assert export(open_dataset(tmp_path / "ds"), tmp_path / "x", "t4").records == 1


@pytest.mark.parametrize("format", ["t4", "kernel-tuner"])
def test_any_record_can_be_written_for_kernel_tuner(dataset, tmp_path, format):
    report = export(dataset, tmp_path / "out", format)
    all_of_them = len(ids(dataset))
    # A cache has one entry a candidate.
    held = all_of_them if format == "t4" else dataset.candidates().height
    assert (report.records, report.left_out) == (held, all_of_them - held)
    back = ingest(tmp_path / "out", tmp_path / "back")
    assert back.sources == len(report["files"])
    assert (back.lines, back.rejected) == (held, 0)
    good = open_dataset(tmp_path / "back").records().collect()
    assert good["latency_s"].min() == pytest.approx(0.5e-5)


def test_a_kernel_tuner_cache_has_the_keys_that_it_reads(dataset, tmp_path):
    report = export(dataset, tmp_path / "out", "kernel-tuner", where="format = 'autotvm'")
    for path in report["files"]:
        document = json.loads(Path(path).read_text())
        names = document["tune_params_keys"]
        for key, entry in document["cache"].items():
            assert key == ",".join(str(entry[name]) for name in names)
            assert all(entry[name] in document["tune_params"][name] for name in names)


def test_sketches_whose_ids_begin_alike_have_files_of_their_own(tmp_path):
    lines = [loglines.autotvm(extra=[[name, "ot", 1]]) for name in ("k202", "k656")]
    ingest(loglines.write(tmp_path / "a.log", *lines), tmp_path / "ds")
    dataset = open_dataset(tmp_path / "ds")
    begins = {sketch_id[:4] for sketch_id in dataset.sketches()}
    assert len(begins) == 1, "their ids are others now: choose names for which they begin alike"
    for format in ("t4", "kernel-tuner"):
        report = export(dataset, tmp_path / format, format)
        assert len(report.files) == 2
        assert ingest(report.files, tmp_path / f"{format}-back").records == 2


@pytest.mark.parametrize("format", ["t4", "kernel-tuner"])
def test_a_time_stamp_in_no_calendar_comes_back(tmp_path, format):
    line = loglines.autotvm(timestamp=1.7e12)  # milliseconds: the year is 55840
    ingest(loglines.write(tmp_path / "a.log", line), tmp_path / "ds")
    report = export(open_dataset(tmp_path / "ds"), tmp_path / "out", format)
    ingest(report.files, tmp_path / "back")
    (row,) = open_dataset(tmp_path / "back").records().collect().iter_rows(named=True)
    assert row["timestamp"] == 1.7e12


@pytest.mark.parametrize("format", ["t4", "kernel-tuner"])
def test_knobs_whose_names_become_one_word_keep_their_values(tmp_path, format):
    knobs = [[name, "ot", value] for value, name in enumerate(("k.a", "k-a", "k a"), start=31)]
    ingest(loglines.write(tmp_path / "a.log", loglines.autotvm(extra=knobs)), tmp_path / "ds")
    (path,) = export(open_dataset(tmp_path / "ds"), tmp_path / "out", format).files
    document = json.loads(Path(path).read_text())
    if format == "t4":
        values = document["results"][0]["configuration"]
    else:
        (entry,) = document["cache"].values()
        values = {name: entry[name] for name in document["tune_params_keys"]}
    assert len(values) == 6
    assert list(values.values())[3:] == [31, 32, 33]


def test_a_cache_holds_configurations_that_kernel_tuner_calls_the_same(tmp_path):
    results = [
        {"configuration": {"x": x, "y": y}, "times": {"runtimes": [1.0]}, "invalidity": "correct"}
        for x, y in (("a,b", "c"), ("a", "b,c"), (1, "1"), ("1", 1))
    ]
    (tmp_path / "conv.json").write_text(json.dumps({"metadata": {}, "results": results}))
    ingest(tmp_path / "conv.json", tmp_path / "ds")
    dataset = open_dataset(tmp_path / "ds")
    report = export(dataset, tmp_path / "out", "kernel-tuner")
    assert ingest(report.files, tmp_path / "back").records == 4
    again = open_dataset(tmp_path / "back")
    told = [set(each.records().collect()["schedule"]) for each in (dataset, again)]
    assert told[0] == told[1]


@pytest.mark.real_logs
@pytest.mark.parametrize("name", ["metaschedule-0.9", "autotvm-0.1", "ansor-ci-logs-older"])
def test_real_logs_come_back(real_logs, tmp_path, name):
    ingest(real_logs / "odd" / name, tmp_path / "ds")
    dataset = open_dataset(tmp_path / "ds")
    format = name.split("-")[0]
    out = tmp_path / ("db" if format == "metaschedule" else "log.json")
    export(dataset, out, format, mixed=True)
    ingest(out, tmp_path / "back")
    assert ids(open_dataset(tmp_path / "back")) == ids(dataset)


def test_an_archive_that_was_read_from_another_folder_is_not_written_over(tmp_path, monkeypatch):
    with zipfile.ZipFile(tmp_path / "logs.zip", "w") as archive:
        archive.writestr("a.log", loglines.dump(loglines.autotvm()))
    monkeypatch.chdir(tmp_path)
    ingest("logs.zip", "ds")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    with pytest.raises(DatasetError, match="a log that the dataset was read from"):
        export(open_dataset("../ds"), "../logs.zip", "autotvm", force=True)


def test_records_for_several_targets_come_into_one_log_only_when_asked(dataset, tmp_path):
    with pytest.raises(DatasetError, match="for several targets: cuda, llvm") as raised:
        export(dataset, tmp_path / "all.log", "autotvm")
    assert "--target" in raised.value.cure
    known = {task.target_kind for task in dataset.tasks().values() if task.format == "autotvm"}
    parts = [export(dataset, tmp_path / f"{k}.log", "autotvm", targets=[k]).records for k in known]
    assert sum(parts) == export(dataset, tmp_path / "all.log", "autotvm", mixed=True).records
    with pytest.raises(DatasetError, match="no task is for a target 'cude'") as raised:
        export(dataset, tmp_path / "x.log", "autotvm", targets=["cude"])
    assert "cuda" in raised.value.cure


def test_records_of_several_machines_come_into_one_log_only_when_asked(tmp_path):
    for number, machine in enumerate(("desk", "server")):
        lines = [
            loglines.autotvm(n, (2**n, 8, 2), [(2 + number) * 1e-3 + n * 1e-5]) for n in (1, 2)
        ]
        path = loglines.write(tmp_path / f"{machine}.log", *lines)
        ingest(path, tmp_path / "ds", machine=machine)
    dataset = open_dataset(tmp_path / "ds")
    with pytest.raises(DatasetError, match="desk, server") as raised:
        export(dataset, tmp_path / "best.log", "autotvm", top=1)
    assert "--machine" in raised.value.cure and "--mixed" in raised.value.cure
    report = export(dataset, tmp_path / "best.log", "autotvm", top=1, machines=["server"])
    assert report.records == 1
    assert json.loads((tmp_path / "best.log").read_bytes())["result"][0] == [3e-3 + 1e-5]
    assert export(dataset, tmp_path / "all.log", "autotvm", mixed=True).records == 4
    # T4 tells the machine of every file.
    assert export(dataset, tmp_path / "t4", "t4").records == 4
    with pytest.raises(DatasetError, match="no task is of a machine 'sever'"):
        export(dataset, tmp_path / "x", "autotvm", machines=["sever"])
    # Logs of the machines that are left out are logs that the dataset was read from, too.
    for machine in ("desk", "server"):
        with pytest.raises(DatasetError, match="a log that the dataset was read from"):
            export(dataset, tmp_path / "desk.log", "autotvm", machines=[machine], force=True)
