"""What holds for every input of a reader, good or damaged; and inputs that are nearly good.

``check`` is the entry point of the fuzzing harness (``fuzz_readers.py``) and of the short default
test (``test_fuzz_invariants.py``). It raises ``AssertionError``, or whatever a reader should not
have raised.
"""

from __future__ import annotations

import base64
import io
import json
import random
import tempfile
from pathlib import Path
from typing import Any

import loglines
import orjson

from toolkit.datasets import ingest
from toolkit.errors import ToolkitError
from toolkit.logs.files.files import read_blocks
from toolkit.logs.formats import format_named
from toolkit.logs.formats.ansor.format import ansor_line
from toolkit.logs.formats.autotvm.format import autotvm_line
from toolkit.logs.formats.metaschedule.format import metaschedule_line
from toolkit.logs.formats.metaschedule.reader import Database
from toolkit.logs.formats.metaschedule.workload import LoggedWorkload, read_workload
from toolkit.logs.read.detect import detect
from toolkit.logs.read.reader import BlockReader, LineReader
from toolkit.logs.read.worker import decode_result, encode_result
from toolkit.logs.rows.base import LONGEST_S, SHORTEST_S, BadLine
from toolkit.logs.rows.results import BlockResult
from toolkit.logs.rows.rows import Rows

FORMATS = ("autotvm", "ansor", "metaschedule", "t4", "kernel-tuner")

APART = b"\x00"
"""Stands between the workloads and the records of a MetaSchedule input."""


def check(name: str, data: bytes) -> None:
    """Read an input as a format in every way that there is; all must agree on what it says."""
    detect(data)
    if name in ("t4", "kernel-tuner"):
        try:
            result = format_named(name).read(data, "name", None)
        except BadLine:
            return
        _check_result(result)
        return
    database, records = Database(), data
    if name == "metaschedule":
        before, apart, behind = data.partition(APART)
        workloads = before if apart else b"\n".join(map(loglines.dump, _WORKLOADS))
        database = Database(workloads=[_workload(line) for line in workloads.split(b"\n")])
        records = behind if apart else before
    reader = BlockReader(name, None, database)
    index = 0
    for block in read_blocks(io.BytesIO(records)):
        result = reader.read(block, index)
        assert result.lines == len(block.pieces())
        _check_result(result)
        pieces = [piece.removesuffix(b"\n") for piece in block.pieces()]
        alone = _one_by_one(LineReader(name, None, database), pieces, index, block.number)
        assert result.rows.to_pylist() == alone.to_pylist(), "read together and one by one differ"
        index += result.counted
        _check_way_back(name, result, database)


def check_ingest(data: bytes) -> None:
    """Ingest an input as a file: the toolkit's own errors or a report whose numbers agree."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "log.json")
        path.write_bytes(data)
        try:
            report = ingest(path, Path(folder, "ds"), workers=0)
        except ToolkitError:
            return
        assert report.lines == report.records + report.duplicates + report.rejected
        again = ingest(path, Path(folder, "ds"), workers=0)
        assert again.total_records == report.total_records
        assert again.records == 0


def _workload(line: bytes) -> LoggedWorkload | None:
    try:
        return read_workload(line)
    except BadLine:
        return None


def _check_result(result: BlockResult) -> None:
    assert result.lines == len(result.rows) + len(result.rejected)
    assert len({rejected.line for rejected in result.rejected}) == len(result.rejected)
    assert all(rejected.reason for rejected in result.rejected)
    result.rows.validate(full=True)
    sketches = {sketch.sketch_id: sketch for sketch in result.sketches}
    tasks = {task.task_id for task in result.tasks}
    for row in result.rows.to_pylist():
        assert row["task_id"] in tasks
        assert len(row["decisions"]) == sketches[row["sketch_id"]].width
        assert (row["state"] == "ok") == (row["latency_s"] is not None)
        assert row["latency_s"] is None or SHORTEST_S <= row["latency_s"] <= LONGEST_S
        json.loads(row["schedule"])
    told = decode_result(*_sent(result))
    assert told.rows.equals(result.rows)
    assert (told.lines, told.rejected) == (result.lines, result.rejected)
    # JSON knows no tuples: what is inside a task's arguments may come back as lists.
    assert {task.task_id for task in told.tasks} == tasks
    assert {sketch.sketch_id: sketch for sketch in told.sketches} == sketches


def _sent(result: BlockResult) -> tuple[Any, bytes]:
    head, body = encode_result(result)
    return orjson.loads(orjson.dumps(head)), bytes(body)


def _one_by_one(reader: LineReader, pieces: list[bytes], index: int, number: int) -> Any:
    rows = Rows()
    for line, piece in enumerate(pieces, start=number + 1):
        try:
            rows.add(reader.read(piece, index), line)
        except BadLine:
            pass
        else:
            index += 1
    return rows.table()


def _check_way_back(name: str, result: BlockResult, database: Database) -> None:
    """What is exported of the records and read again are the same records."""
    tasks = {task.task_id: task for task in result.tasks}
    reader = LineReader(name, None, database)
    places = {known.line: place for place, known in enumerate(database.workloads) if known}
    for row in result.rows.to_pylist():
        task = tasks[row["task_id"]]
        if name == "metaschedule":
            line = metaschedule_line(row, task, places[task.blob])
        elif row["format"] == "autotvm":
            line = autotvm_line(row, task)
        else:
            line = ansor_line(row, task)
        (again,) = _one_by_one(reader, [line], 0, 0).to_pylist()
        for column in ("task_id", "candidate_id", "schedule"):
            assert again[column] == row[column]
        told = row["elapsed_s"] is not None and row["timestamp"] is not None
        if told and row["error_number"] is not None and row["timestamp"] != 0:
            assert again["record_id"] == row["record_id"]


_WORKLOADS = [loglines.workload("1", 64), loglines.workload("2", 128, new=True)]


def seeds(name: str) -> list[bytes]:
    """Good inputs of a format."""
    if name == "autotvm":
        old = loglines.autotvm_old(template="winograd")
        extra = [["ann", "an", ["vec"]], ["re", "re", [1, 0]]]
        lines = [loglines.autotvm(), loglines.autotvm(extra=extra), old]
        return [loglines.dump(line) for line in lines] + [_joined(lines)]
    if name == "ansor":
        versions = [loglines.ansor(version=v) for v in ("v0.2", "v0.3", "v0.5", "v0.6")]
        variants = [
            loglines.ansor(loglines.ansor_steps(tile=(a, 2, 4), unroll=u, fused=f), key='["bare"]')
            for a, u, f in ((1, 0, 2), (2, 16, 2), (16, 64, 3))
        ]
        return [loglines.dump(line) for line in versions] + [_joined(variants)]
    if name == "metaschedule":
        records = [loglines.metaschedule(which, costs=[1e-3 + which]) for which in (0, 1, 0)]
        return [loglines.dump(records[0]), _joined(_WORKLOADS) + APART + _joined(records)]
    if name == "t4":
        result = {
            "timestamp": "2023-12-22 09:53:48.691683+00:00",
            "configuration": {"block": 16, "word": "a", "f": 0.5, "on": True},
            "times": {"compilation": 10.1, "runtimes": [1.1, 2.3]},
            "invalidity": "correct",
            "measurements": [{"name": "time", "value": 3.0, "unit": ""}],
        }
        failed = {**result, "invalidity": "runtime", "times": {}}
        about = {"timeunit": "miliseconds"}
        return [loglines.dump({"metadata": about, "results": [result, failed, {}]})]
    entry = {"x": 1, "y": "a", "time": 2.0, "times": [1.5, 2.5], "compile_time": 10.0}
    document = {
        "device_name": "GPU 1",
        "kernel_name": "conv",
        "problem_size": [64, 64],
        "tune_params_keys": ["x", "y"],
        "tune_params": {"x": [1, 2], "y": ["a", "b"]},
        "cache": {"1,a": entry, "2,a": {**entry, "x": 2, "time": "InvalidConfig", "times": None}},
    }
    return [loglines.dump(document), loglines.dump(document)[:-2] + b","]


def _joined(entries: list[Any]) -> bytes:
    return b"\n".join(map(loglines.dump, entries))


_ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 8, 9, 2**31, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), 2**64, 10**30,
    0.0, -0.0, 0.5, 1e-320, 1e9, 1e10, 1e300, "", "a", "0", "1e3", "llvm", "é\u2028", "\ud800",
    "\\", '"', "auto_unroll_max_step$7", "a$-1", "$18446744073709551616", [], [[]], {}, {"": 0},
    [0], [1, 2, 3], [None], ["SP"], ["PR", 0, 0, "a$1"], [-1, 4], {"kind": "cuda"},
)  # fmt: skip
"""Values that stand where readers expect others."""


def mutate(data: bytes, rng: random.Random) -> bytes:
    """Change one value somewhere in an input's JSON, or its bytes where it is none."""
    before, apart, behind = data.partition(APART)
    if apart and rng.random() < 0.3:
        return mutate(before, rng) + apart + behind
    lines = (behind if apart else before).split(b"\n")
    at = rng.randrange(len(lines))
    try:
        entry = json.loads(lines[at])
        text = json.dumps(_changed(entry, rng), separators=rng.choice([(", ", ": "), (",", ":")]))
        lines[at] = text.encode()
    except (ValueError, RecursionError):
        lines[at] = _bytes_changed(lines[at], rng)
    if rng.random() < 0.2:
        lines.insert(rng.randrange(len(lines) + 1), rng.choice(lines))
    if rng.random() < 0.1:
        lines[at] = _bytes_changed(lines[at], rng)
    return before * bool(apart) + apart + b"\n".join(lines)


def _bytes_changed(line: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(line) + 1)
    piece = rng.choice(
        [b"", b"\x00", b"\xff", b"0", b"-", b" ", b"\r", b'"', b"[", b"]", b"e", b","]
    )
    return line[:at] + piece + line[at + rng.randrange(3) :]


def _changed(entry: Any, rng: random.Random) -> Any:
    if isinstance(entry, dict) and entry and rng.random() < 0.9:
        key = rng.choice(list(entry))
        if rng.random() < 0.1:
            return {k: v for k, v in entry.items() if k != key}
        return {**entry, key: _changed(entry[key], rng)}
    if isinstance(entry, list) and entry and rng.random() < 0.9:
        at = rng.randrange(len(entry))
        choice = rng.random()
        if choice < 0.05:
            return entry[:at] + entry[at + 1 :]
        if choice < 0.1:
            return [*entry[:at], entry[at], *entry[at:]]
        return [*entry[:at], _changed(entry[at], rng), *entry[at + 1 :]]
    if isinstance(entry, str) and len(entry) > 40:
        try:  # a workload's graph
            text = base64.b64decode(entry, validate=True)
            graph = json.dumps(_changed(json.loads(text[8:]), rng)).encode()
            return base64.b64encode(len(graph).to_bytes(8, "little") + graph).decode()
        except (ValueError, RecursionError):
            pass
    if type(entry) is int and rng.random() < 0.5:
        return entry + rng.choice([-1, 1, 2, -entry, entry])
    return rng.choice(_ODD)
