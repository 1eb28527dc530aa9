"""Reading MetaSchedule records many at a time gives what reading them one by one gives."""

from __future__ import annotations

import gzip
import json

import loglines
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolkit.logs.files.files import LineBlock
from toolkit.logs.files.places import Place
from toolkit.logs.formats.metaschedule.format import read_database, workload_file
from toolkit.logs.formats.metaschedule.reader import Database
from toolkit.logs.formats.metaschedule.workload import read_workload
from toolkit.logs.read.reader import BlockReader

WORKLOADS = [
    read_workload(loglines.dump(loglines.workload("1", 64))),
    None,
    read_workload(loglines.dump(loglines.workload("2", 128, new=True))),
]


def assert_same(lines: list[bytes], database: Database):
    block = LineBlock(b"".join(line + b"\n" for line in lines), 0, 0, 0)
    together = BlockReader("metaschedule", "m", database)
    single = BlockReader("metaschedule", "m", database)
    single._together = None
    fast, slow = together.read(block, 0), single.read(block, 0)
    assert fast.rows.to_pylist() == slow.rows.to_pylist()
    assert fast.rejected == slow.rejected
    assert (fast.lines, fast.counted) == (slow.lines, slow.counted)
    assert {t.task_id: t for t in fast.tasks} == {t.task_id: t for t in slow.tasks}
    assert {s.sketch_id: s for s in fast.sketches} == {s.sketch_id: s for s in slow.sketches}
    assert fast.space_sizes == slow.space_sizes
    return fast


def compact(entry) -> bytes:
    return json.dumps(entry, separators=(",", ":")).encode()


schedules = st.builds(
    loglines.trace,
    tile=st.sampled_from([(8, 4, 2), (1, 1, 64), (1, 2), (1, 2, 2.5), (1, 2, 10**19), "x"]),
    unroll=st.sampled_from([0, 1, 3, 4, -1, "x", None]),
    location=st.sampled_from([-2, -1, 0, 5, 10**20]),
    parallel=st.sampled_from([64, 128]),
)


@st.composite
def odd_schedules(draw):
    instructions, decisions = draw(schedules)
    change = draw(st.integers(0, 6))
    if change == 0:
        instructions = instructions[:11]  # no postprocessors
    elif change == 1:
        instructions = [*instructions, ["Annotate", ["b1", [[1, 2]]], ["k]],[[3"], []]]
    elif change == 2:
        decisions = decisions[::-1]
    elif change == 3:
        decisions = []
    elif change == 4:
        instructions = [*instructions, ["Broken"]]
    elif change == 5:
        instructions = [["GetBlock", [], ['a"],{"', "main"], ["b9"]], *instructions]
        decisions = [[at + 1, value] for at, value in decisions]
    else:
        instructions = [*instructions, ["X", [], [0.1, 1e-7], ["é\n"]]]
    return [instructions, decisions]


entries = st.builds(
    loglines.metaschedule,
    st.sampled_from([0, 0, 0, 1, 2, 3, -1, True, "0", 10**20]),
    st.one_of(schedules, odd_schedules()),
    st.sampled_from([(1e-5,), (1e-5, 2e-5), [1e10], [10000000000], [], None, ["x"], [True], 3]),
)
dumped = st.one_of(entries.map(compact), entries.map(compact), entries.map(loglines.dump))


@st.composite
def damaged(draw):
    line = bytearray(draw(dumped))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(line) - 1))
        if draw(st.booleans()):
            line[at] = draw(st.sampled_from(b'0123456789 ,[]"-.e\\\xff{'))
        else:
            del line[at]
    return bytes(line).replace(b"\n", b"")


@settings(max_examples=200)
@given(st.lists(st.one_of(dumped, dumped, damaged()), max_size=15))
def test_any_lines(lines):
    assert_same(lines, Database(workloads=WORKLOADS))


@pytest.mark.parametrize("byte", [*b'0],"x{- '])
def test_a_line_with_any_one_byte_damaged(byte):
    line = compact(loglines.metaschedule(0, loglines.trace()))
    damaged = [line[:at] + bytes([byte]) + line[at + 1 :] for at in range(len(line))]
    shorter = [line[:at] + line[at + 1 :] for at in range(len(line))]
    assert_same([line, *damaged, *shorter], Database(workloads=WORKLOADS))


def test_plain_lines_are_all_read_together():
    lines = [
        compact(loglines.metaschedule(n % 2 * 2, loglines.trace(tile=(n, 2, 2), unroll=n % 4)))
        for n in range(1, 200)
    ]
    reader = BlockReader("metaschedule", None, Database(workloads=WORKLOADS))
    left = []
    original = reader._together.read
    reader._together.read = lambda *arguments: left.extend(original(*arguments)) or left
    reader.read(LineBlock(b"".join(line + b"\n" for line in lines), 0, 0, 0), 0)
    assert left == []
    assert assert_same(lines, Database(workloads=WORKLOADS)).rows.num_rows == 199


@pytest.mark.real_logs
@pytest.mark.parametrize(
    "name",
    [
        "metaschedule-a100-resnet34/database_tuning_record.json.gz",
        "odd/metaschedule-0.9/database_tuning_record.json",
        "odd/metaschedule-rvv-all-failed/database_tuning_record.json",
    ],
)
def test_real_records(real_logs, name):
    path = real_logs / name
    place = Place(path)
    database = read_database(place, workload_file(place))
    data = path.read_bytes()
    if path.suffix == ".gz":
        data = gzip.decompress(data)
    assert_same(data.splitlines()[:1500], database)
