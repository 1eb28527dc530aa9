"""Hostile lines, names and documents: one rejected line or file each, and all others are read."""

from __future__ import annotations

import base64
import json
import os
import tarfile
import zipfile

import loglines
import pytest
from running import toolkit
from typer.testing import CliRunner

from toolkit.cli.main import app
from toolkit.datasets import ingest, open_dataset
from toolkit.errors import ToolkitError

ANSOR = [loglines.dump(loglines.ansor(timestamp=n)) for n in range(2)]
AUTOTVM = [loglines.dump(loglines.autotvm(timestamp=n)) for n in range(2)]
DEEP = b"[" * 253 + b"]" * 253


def counts(report):
    assert report.lines == report.records + report.duplicates + report.rejected
    return report.records, report.rejected


def replaced(line, old, new):
    assert old in line
    return line.replace(old, new, 1)


def changed_lines(line, changes):
    """Hostile lines by name; each change says what stands in the good line, and what instead."""
    return {name: replaced(line, *change) for name, change in changes.items()}


def steps(*changed):
    return loglines.dump(loglines.ansor(loglines.ansor_steps()[:-1] + list(changed), timestamp=9))


HOSTILE_ANSOR = changed_lines(
    ANSOR[0],
    {
        "nested steps": (b'[["SP", 2, 0', b"[" + DEEP + b', ["SP", 2, 0'),
        "nested stages": (b"[[], [[", b"[[" + DEEP + b"], [["),
        "nested inputs": (b', "", 1, []]', b', "", 1, ' + DEEP + b"]"),
        "a key twice": (b'"r": ', b'"r": [[1.0], 0, 1, 1], "r": '),
        "a key twice, with a space": (b'"r": ', b'"r" : [[1.0], 0, 1, 1], "r": '),
        "the first key twice": (b'{"i": ', b'{"i": [[1, 2], [[], []]], "i": '),
        "a key twice in the task": (b', "", 1, []]', b', "", 1, [{"a":1,"a":2}]]'),
        "a length of 0": (b"[2, 1, 4]", b"[2, 0, 4]"),
        "a length of -50": (b"[2, 1, 4]", b"[2, -50, 4]"),
        "a negative extent": (b'"SP", 2, 0, 64', b'"SP", 2, 0, -64'),
        "a negative shape": (b'32, \\"float32\\"]', b'[\\"TENSOR\\", [-1, 5], \\"float32\\"]]'),
    },
)
HOSTILE_ANSOR["nested key"] = loglines.dump(loglines.ansor(key=f'["w", {DEEP.decode()}]'))
HOSTILE_ANSOR["a place beyond 64 bits"] = steps(["CA", 2, 4, 2**63 - 1])  # among fused loops
HOSTILE_AUTOTVM = changed_lines(
    AUTOTVM[0],
    {
        "nested arguments": (b'["TENSOR"', DEEP + b', ["TENSOR"'),
        "a nested entity": (b'"sp", [-1, 4]', b'"ot", ' + DEEP),
        "a key twice": (b'"index": 7', b'"index": 7, "index": 8'),
        "an outer key twice": (b'"version"', b'"result": [], "version"'),
        "a key of the options twice": (b"{}]", b'{"a": 1, "a": 2}]'),
        "a factor of 0": (b"[-1, 4]", b"[-1, 0]"),
        "a factor of -50": (b"[-1, 4]", b"[-1, -50]"),
        "a first factor of -50": (b"[-1, 4]", b"[-50, 4]"),
        "a negative shape": (b"[64, 32]", b"[-64, 32]"),
        "a shape beyond 64 bits": (b"[64, 32]", b"[9223372036854775808, 9223372036854775808]"),
    },
)
CASES = [
    *((name, line, ANSOR) for name, line in HOSTILE_ANSOR.items()),
    *((name, line, AUTOTVM) for name, line in HOSTILE_AUTOTVM.items()),
]


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(("good", "hostile"), [(ANSOR, HOSTILE_ANSOR), (AUTOTVM, HOSTILE_AUTOTVM)])
def test_each_hostile_line_is_rejected_and_the_others_are_read(tmp_path, workers, good, hostile):
    path = loglines.write(tmp_path / "a.log", good[0], *hostile.values(), good[1])
    report = ingest(path, tmp_path / "ds", workers=workers)
    assert counts(report) == (2, len(hostile)), report.reasons
    dataset = open_dataset(tmp_path / "ds")
    assert len(dataset.tasks()) == len(dataset.sketches()) == 1


@pytest.mark.parametrize("name,line,good", CASES, ids=lambda value: str(value)[:30])
def test_a_hostile_line_before_good_ones(tmp_path, name, line, good):
    report = ingest(loglines.write(tmp_path / "a.log", line, *good), tmp_path / "ds")
    assert counts(report) == (2, 1), (name, report.reasons)


@pytest.mark.parametrize("costs", [[5e-324], [1e8], [1e-3, 1e8], [1e-11], [0], [-1], [2e6]])
@pytest.mark.parametrize("line", [loglines.ansor, loglines.autotvm])
def test_run_times_of_no_program_are_none(tmp_path, costs, line):
    path = loglines.write(tmp_path / "a.log", line(), line(costs=costs, timestamp=2))
    assert counts(ingest(path, tmp_path / "ds")) == (2, 0)
    records = open_dataset(tmp_path / "ds").records().collect()
    assert records["state"].to_list() == ["ok", "unknown"]
    assert records["latency_s"].null_count() == 1


def workload(*changes):
    graph = json.dumps(loglines._old_graph(64))
    for old, new in changes:
        assert old in graph
        graph = graph.replace(old, new)
    blob = len(graph).to_bytes(8, "little") + graph.encode()
    return ["hostile", base64.b64encode(blob).decode()]


@pytest.mark.parametrize("extent", ["9" * 4000, "9" * 5000, "9" * 25, "-64"])
def test_a_workload_of_an_extent_that_no_loop_has(tmp_path, extent):
    hostile = workload(('"value": "64"', f'"value": "{extent}"'))
    loglines.write(tmp_path / "db" / "database_workload.json", loglines.workload(), hostile)
    lines = [loglines.metaschedule(), loglines.metaschedule(which=1)]
    loglines.write(tmp_path / "db" / "database_tuning_record.json", *lines)
    report = ingest(tmp_path / "db", tmp_path / "ds")
    assert counts(report) == (1, 3)  # the two workloads and the record of the second
    assert len(open_dataset(tmp_path / "ds").tasks()) == 1


@pytest.mark.parametrize(
    "change",
    [
        ('"iter_vars": "9"', '"iter_vars": Infinity'),
        ('"repr_str": "matmul"', '"repr_str": "\\ud800"'),
        ('"b64ndarrays": []', f'"b64ndarrays": {"[" * 100_000}{"]" * 100_000}'),
    ],
    ids=["an infinite index", "half a character", "nested"],
)
def test_a_workload_that_is_json_to_python_alone(tmp_path, change):
    lines = [loglines.workload(), workload(change)]
    loglines.write(tmp_path / "db" / "database_workload.json", *lines)
    lines = [loglines.metaschedule(), loglines.metaschedule(which=1)]
    loglines.write(tmp_path / "db" / "database_tuning_record.json", *lines)
    assert counts(ingest(tmp_path / "db", tmp_path / "ds")) == (1, 3)


@pytest.mark.parametrize("sidecar", [False, True])
def test_hostile_metaschedule_lines(tmp_path, sidecar):
    good = loglines.dump(loglines.metaschedule())
    tail = b'["EnterPostproc", [], [], []]'
    lines = [
        good,
        replaced(good, b"[8, 4, 2]", b"[8, 0, 2]"),
        replaced(good, b"[8, 4, 2]", b"[8, -4, 2]"),
        replaced(good, b'"kind": "llvm"', b'"kind": "llvm", "kind": "cuda"'),
        replaced(good, b"[64, 64]", b"[-64, 64]"),
        replaced(good, b'["TENSOR"', DEEP + b', ["TENSOR"'),
        replaced(good, tail, tail + b', ["Annotate", ["b1", ' + DEEP + b'], ["x"], []]'),
        replaced(good, b'["matmul", "main"]', b'["matmul", ' + DEEP + b"]"),
        replaced(good, b'["matmul", "main"]', b'["matmul", {"a": 1, "a": 2}]'),
        replaced(good, tail, tail + b', ["Annotate", ["b1", {"a": 1, "a": 2}], ["x"], []]'),
        loglines.dump(loglines.metaschedule(costs=(3e-5,))),
    ]
    loglines.write(tmp_path / "db" / "database_workload.json", loglines.workload())
    loglines.write(tmp_path / "db" / "database_tuning_record.json", *lines)
    if sidecar:
        loglines.write(tmp_path / "db" / "database_trials.jsonl", *[{"elapsed_s": 1.0}] * 11)
    report = ingest(tmp_path / "db" / "database_tuning_record.json", tmp_path / "ds")
    assert counts(report) == (2, 9), report.reasons


BAD = os.fsdecode(b"bad\xff.log")


def test_names_that_are_no_utf8(tmp_path):
    logs = tmp_path / "logs"
    good = loglines.write(logs / "good.log", AUTOTVM[0])
    loglines.write(logs / BAD, AUTOTVM[1])
    with tarfile.open(logs / "x.tar", "w") as archive:
        archive.add(good, "inside/good.log")
        archive.add(good, BAD)
    with zipfile.ZipFile(tmp_path / "y.zip", "w") as archive:
        archive.writestr("näme.log", AUTOTVM[1])
    report = ingest([logs, tmp_path / "y.zip", logs / BAD], tmp_path / "ds", workers=1)
    assert (report.records, report.duplicates) == (2, 1)
    assert [source.reason for source in report.skipped] == ["its name is not UTF-8: rename it"] * 2
    json.dumps(report.to_json()).encode()
    zipped = (tmp_path / "y.zip").read_bytes().replace("näme".encode(), b"n\xff\xffme")
    (tmp_path / "y.zip").write_bytes(zipped)
    (skipped,) = ingest([good, tmp_path / "y.zip"], tmp_path / "ds").skipped
    assert "damaged" in skipped.reason


@pytest.mark.parametrize(
    "options", [("--machine", BAD), ("--dataset", BAD), ("--path-rule", f"(?P<machine>{BAD})")]
)
def test_words_that_are_no_utf8(tmp_path, options):
    loglines.write(tmp_path / "a.log", AUTOTVM[0])
    code, _, told = toolkit("ingest", "a.log", *options, cwd=tmp_path)
    assert "Traceback" not in told
    assert code == (0 if options[0] == "--path-rule" else 1)


def test_a_width_of_no_columns(tmp_path):
    loglines.write(tmp_path / "a.log", AUTOTVM[0])
    code, said, _ = toolkit("ingest", "a.log", cwd=tmp_path, COLUMNS="0")
    assert (code, "1 records added" in said) == (0, True)


def t4(entries):
    result = {"invalidity": "correct", "times": {"runtimes": [1.0], "compilation": 2.0}}
    return {
        "metadata": {"timeunit": "ms"},
        "results": [{**result, "configuration": {"x": n}} for n in range(entries)],
    }


def cache(entries):
    return {
        "kernel_name": "k",
        "problem_size": 8,
        "tune_params_keys": ["x"],
        "tune_params": {"x": list(range(99))},
        "cache": {str(n): {"x": n, "time": 1.0 + n, "y": {"z": {}}} for n in range(entries)},
    }


@pytest.mark.parametrize("document", [t4, cache])
@pytest.mark.parametrize("share", [0.5, 0.6, 0.7, 0.83])
def test_a_document_that_is_cut_off_keeps_what_stands_before(tmp_path, document, share):
    path = tmp_path / "a.json"
    whole = json.dumps(document(40)).encode()
    path.write_bytes(whole[: int(len(whole) * share)])
    report = ingest(path, tmp_path / "ds")
    records, rejected = counts(report)
    assert 40 * share - 7 < records < 40
    assert rejected == 1
    assert report.per_source[0].outcome == "damaged"
    (row,) = open_dataset(tmp_path / "ds").rejected().iter_rows(named=True)
    assert whole[row["byte_offset"] :].startswith(row["content"])
    result = CliRunner().invoke(app, ["ingest", str(path), "--dataset", str(tmp_path / "cli")])
    assert (result.exit_code, "cut off" in result.stderr) == (0, True)
    path.write_bytes(whole)
    assert counts(ingest(path, tmp_path / "ds")) == (40, 0)


def test_a_document_of_which_nothing_is_left_is_an_error(tmp_path):
    path = tmp_path / "a.json"
    path.write_text(json.dumps(cache(3)).replace('["x"]', '["x"}'))
    result = CliRunner().invoke(app, ["ingest", str(path), "--dataset", str(tmp_path / "ds")])
    assert result.exit_code == 1


def test_documents_that_repeat_keys_keep_every_entry(tmp_path):
    text = (
        json.dumps(cache(3)).replace('"1": {', '"0": {').replace('"time": 3.0', '"time":3,"time":4')
    )
    (tmp_path / "a.json").write_text(text)
    report = ingest(tmp_path / "a.json", tmp_path / "ds")
    assert counts(report) == (2, 1)
    assert "twice" in next(iter(report.reasons))


@pytest.mark.parametrize("kib", [300, 5000, 40_000])
@pytest.mark.parametrize("first", ["autotvm", "junk", "comment"])
@pytest.mark.parametrize("packed", [False, True])
def test_a_long_first_line_hides_no_log(tmp_path, kib, first, packed):
    long = loglines.autotvm(extra=[["note", "ot", "x" * kib * 1024]])
    line = {"autotvm": loglines.dump(long), "junk": b'{"' + b"y" * kib * 1024 + b'": 1}'}.get(
        first, b"#" * kib * 1024
    )
    path = loglines.write(tmp_path / "a.log", line, *AUTOTVM)
    if packed:
        with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            archive.write(path, "a.log")
        path = tmp_path / "a.zip"
    read = first == "autotvm" and kib < 32 * 1024
    assert counts(ingest(path, tmp_path / "ds")) == ((3, 0) if read else (2, 1))


def test_what_a_walk_leaves_out_is_named(tmp_path):
    logs = tmp_path / "logs"
    loglines.write(logs / "a.log", AUTOTVM[0])
    loglines.write(logs / ".b.log", AUTOTVM[1])
    loglines.write(logs / ".hidden" / "c.log", AUTOTVM[1])
    loglines.write(tmp_path / "other" / "d.log", AUTOTVM[1])
    (logs / "link").symlink_to(tmp_path / "other")
    (logs / "broken").symlink_to(tmp_path / "absent")
    report = ingest(logs, tmp_path / "ds")
    told = {source.path.rpartition("/")[2]: source.reason for source in report.skipped}
    assert set(told) == {".b.log", ".hidden", "link"}
    assert "begins with a dot" in told[".b.log"] and "not followed" in told["link"]
    assert ingest([logs / ".b.log", logs / "link"], tmp_path / "ds").lines == 2
    (tmp_path / "only").mkdir()
    loglines.write(tmp_path / "only" / ".x.log", AUTOTVM[0])
    with pytest.raises(ToolkitError, match="begins with a dot"):
        ingest(tmp_path / "only", tmp_path / "ds")
