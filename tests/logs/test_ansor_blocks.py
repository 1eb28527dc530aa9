"""Reading Ansor lines many at a time gives what reading them one by one gives."""

from __future__ import annotations

import gzip
import json
import re
from dataclasses import replace

import loglines
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolkit.logs.files.files import LineBlock
from toolkit.logs.read.reader import BlockReader
from toolkit.logs.rows.number_runs import RUN, Pattern, Runs


def both(lines: list[bytes]):
    block = LineBlock(b"".join(line + b"\n" for line in lines), 0, 0, 0)
    fast = BlockReader("ansor", "m")
    slow = BlockReader("ansor", "m")
    slow._together = None
    return fast.read(block, 0), slow.read(block, 0)


def plain_tasks(result):
    """Tasks without what depends on which line of a task comes first."""
    return {t.task_id: replace(t, blob=None) for t in result.tasks}


def assert_same(lines: list[bytes]):
    fast, slow = both(lines)
    assert fast.rows.to_pylist() == slow.rows.to_pylist()
    assert fast.rejected == slow.rejected
    assert (fast.lines, fast.counted) == (slow.lines, slow.counted)
    assert plain_tasks(fast) == plain_tasks(slow)
    assert {s.sketch_id: s for s in fast.sketches} == {s.sketch_id: s for s in slow.sketches}
    return fast


def taken_fast(lines: list[bytes]) -> int:
    """How many lines the fast reader did not leave to the other."""
    reader = BlockReader("ansor", "m")
    left = []
    original = reader._together.read
    reader._together.read = lambda *args: left.extend(original(*args)) or left
    reader.read(LineBlock(b"".join(line + b"\n" for line in lines), 0, 0, 0), 0)
    return len(lines) - len(left)


costs = st.one_of(
    st.lists(st.floats(1e-7, 20.0), min_size=1, max_size=3),
    st.sampled_from([[1e10], [10000000000], [], [0.0], [-1], ["x"], 3, None, [1, 2.5], [True]]),
)
results = st.tuples(
    costs,
    st.sampled_from([0, 0, 0, 1, 4, 8, 9, -1, 0.0, "0", None, True]),
    st.sampled_from([0.25, 15, 1e-3, None, "x", 10**25, True]),
    st.sampled_from([1607112214, 1.6e9, 0, None, -5]),
)
steps = st.builds(
    loglines.ansor_steps,
    rows=st.sampled_from([64, 128, 100]),
    tile=st.tuples(*[st.sampled_from([1, 2, 4, 12, 333])] * 3),
    unroll=st.sampled_from([0, 16, 512]),
    fused=st.integers(1, 4),
)
odd_steps = st.sampled_from(
    [
        [],
        [["SP", 2, 0, -64, [2, -1, 4], 1]],
        [["SP", 2, 0, 64, [2, 0, 4], 1]],
        [["SP", 2, 0, None, [None, 4], 1]],
        [["SP", 2, 0, 10**18, [10**17, 10**17, 7], 1]],
        [["SP", 2, 0, 10**19, [1], 1]],
        [["SP", 2, 0, 64, [8], 0]],
        [["SP", 2, 0, 64, [2.0], 1]],
        [["FU", 4, [0, 1]], ["AN", 4, 0, 3], ["CA", 2, 4, 3], ["AN", 4, 2, 2]],
        [["PR", 2, 0, "a b c$8"]],
        [["PR", 2, 0, "a-1$007"]],
        [["PR", 2, 0, "x1$y2$16"]],
        [["PR", 2, 0, 'quoted"$16']],
        [["CHR", 2, "shared 1", [3, 4]], ["CR", -0]],
        [["XX", 1]],
        [["RE", 2, [0, 1, True]]],
    ]
)
keys = st.sampled_from(
    ['["matmul_add", 64, 96, 32, "float32"]', '["conv2d_1"]', "conv2d_1", '["a", [[], [1]]]', "[]"]
)
entries = st.builds(
    lambda s, r, key, version: {
        **loglines.ansor(s, key=key, version=version),
        "r": list(r),
    },
    st.one_of(steps, steps, odd_steps),
    results,
    keys,
    st.sampled_from(["v0.2", "v0.3", "v0.5", "v0.6"]),
)
dumped = st.one_of(
    entries.map(loglines.dump),
    entries.map(loglines.dump),
    entries.map(lambda entry: json.dumps(entry, separators=(",", ":")).encode()),
    entries.map(lambda entry: json.dumps(dict(reversed(entry.items()))).encode()),
)


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


@settings(max_examples=300)
@given(st.lists(st.one_of(dumped, dumped, damaged()), max_size=25))
def test_any_lines(lines):
    assert_same(lines)


@pytest.mark.parametrize("byte", [*b'0],"x{- '])
@pytest.mark.parametrize("separators", [None, (",", ":")])
def test_a_line_with_any_one_byte_damaged(byte, separators):
    line = json.dumps(loglines.ansor(loglines.ansor_steps()), separators=separators).encode()
    damaged = [line[:at] + bytes([byte]) + line[at + 1 :] for at in range(len(line))]
    shorter = [line[:at] + line[at + 1 :] for at in range(len(line))]
    assert_same([line, *damaged, *shorter])


def test_plain_lines_are_all_read_together():
    lines = [
        loglines.dump(
            loglines.ansor(
                loglines.ansor_steps(tile=(1 + n % 7, 2, 4), fused=1 + n % 4, unroll=8 * (n % 3)),
                costs=[1e-3, 2e-3 + n * 1e-6],
                timestamp=n,
                version="v0.6",
            )
        )
        for n in range(1000)
    ]
    assert taken_fast(lines) == 1000
    assert assert_same(lines).rows.num_rows == 1000


def found(text: bytes, free: list[int], texts: list[bytes]) -> list[list[int] | None]:
    """Values of free runs, ``None`` for texts that do not fit or are not understood."""
    pattern, runs = Pattern(text, free), Runs(texts)
    rows = np.flatnonzero(runs.counts == len(RUN.findall(text)))
    mask, starts, stops = pattern.find(runs, rows)
    values, good = pattern.numbers(*runs.values(starts, stops))
    told: list[list[int] | None] = [None] * len(texts)
    for row, numbers, fine in zip(rows[mask].tolist(), values.tolist(), good.tolist(), strict=True):
        told[row] = numbers if fine else None
    return told


def followed(text: bytes, free: list[int], texts: list[bytes]) -> list[list[int] | None]:
    """What is found where each text is taken for one of the pattern from the start."""
    mask, values, good = Pattern(text, free).follow(Runs(texts))
    assert len(values) == len(good) == mask.sum()
    told: list[list[int] | None] = [None] * len(texts)
    for row, numbers, fine in zip(np.flatnonzero(mask), values.tolist(), good, strict=True):
        told[row] = numbers if fine else None
    return told


LONG = b"[12, " + b"-" * 70 + b"3], x1y"


@pytest.mark.parametrize(
    ("text", "free", "texts", "expected"),
    [
        (b"a1b22", [0, 1], [b"a1b22", b"a333b4"], [[1, 22], [333, 4]]),
        (b"a1b22", [1], [b"a1b4", b"a2b4", b"a11b4"], [[4], None, None]),
        (b"a1b22", [0], [b"a7b22", b"a7b23", b"a7b222", b"a7c22"], [[7], None, None, None]),
        (b"1", [0], [b"1", b"23", b"", b"x"], [[1], [23], None, None]),
        (b"", [], [b"", b"x", b"1"], [[], None, None]),
        (b"x1", [], [b"x1", b"x2"], [[], None]),
        (b"[1, 2]", [0, 1], [b"[3, 4]", b"[1, ]2", b"[, 12]"], [[3, 4], None, None]),
        (b"[1, 2]", [0, 1], [b"[01, 2]", b"[0, 0]", b"[00, 1]"], [None, [0, 0], None]),
        (b"-1", [0], [b"-0", b"-7", b"7"], [None, [-7], None]),
        (b"9", [0], [b"12345678", b"123456789"], [[12345678], [123456789]]),
        (b"9", [0], [b"8" * 18, b"9" * 19], [[int("8" * 18)], None]),
        (LONG, [0], [LONG, LONG.replace(b"12", b"7")], [[12], [7]]),
        (LONG, [0], [LONG.replace(b"x1", b"x2"), LONG.replace(b"--3", b"-.3")], [None, None]),
    ],
)
def test_texts_of_a_pattern(text, free, texts, expected):
    assert found(text, free, texts) == expected
    long = [bool(numbers) and max(map(abs, numbers)) > 9_999_999 for numbers in expected]
    short = [None if one else numbers for one, numbers in zip(long, expected, strict=True)]
    assert followed(text, free, texts) == short


@given(st.lists(st.text("0123-,ax", max_size=24), min_size=1, max_size=20), st.data())
def test_texts_that_are_followed_are_those_that_are_found(words, data):
    texts = [word.encode() for word in words]
    text = data.draw(st.sampled_from(texts))
    count = len(re.findall(rb"[0-9]+", text))
    free = sorted(data.draw(st.sets(st.integers(0, count - 1)))) if count else []
    for told, known in zip(followed(text, free, texts), found(text, free, texts), strict=True):
        long = known is not None and any(abs(number) > 9_999_999 for number in known)
        assert told == known or (told is None and long)


def result(text: str) -> bytes:
    """A line with any text behind its steps."""
    line = loglines.dump(loglines.ansor(loglines.ansor_steps()))
    return line[: line.find(b'"r": ') + 5] + text.encode() + b"}"


def test_results_that_only_fit_together():
    """One is not closed, another closes it, a third is three: as many as there are lines."""
    good = '[[0.5], 0, 1.0, 2.0], "v": "v0.6"'
    lines = [
        result("[[0.25], 0, 1.0, 2.0"),
        result('[[0.5], 0, 1.0, 2.0]], "v": "v0.6"'),
        result('[[1.0], 0, 1.0, 2.0], [[2.0], 0, 1.0, 2.0], [[3.0], 0, 1.0, 2.0], "v": "v0.6"'),
        result(good),
    ]
    for turned in (lines, lines[::-1], [*lines[3:], *lines[:3]]):
        assert assert_same(turned).rows["latency_s"].to_pylist() == [0.5]


def test_versions_that_change_within_a_log_are_read_together():
    lines = [
        loglines.dump(
            loglines.ansor(loglines.ansor_steps(), timestamp=n, version=f"v0.{5 + n // 9}")
        )
        for n in range(18)
    ]
    assert taken_fast(lines) == 18
    assert assert_same(lines).rows["format_version"].to_pylist() == ["v0.5"] * 9 + ["v0.6"] * 9


@pytest.mark.real_logs
@pytest.mark.parametrize(
    "name",
    [
        "odd/ansor-many-errors/cpu_matmul_20k-all-failed.json.gz",
        "odd/ansor-many-errors/inceptionBlock-NCHW-B1-cuda-iso-IOS.json.gz",
        "odd/ansor-many-errors/inception_v3-NHWC-B1-cuda-raw.json.gz",
        "odd/ansor-ci-logs/resnet-50-NHWC-B1-llvm.json",
        "odd/ansor-ci-logs-older/sparse_dense.json",
    ],
)
def test_real_lines(real_logs, name):
    path = real_logs / name
    data = path.read_bytes()
    if path.suffix == ".gz":
        data = gzip.decompress(data)
    assert_same(data.splitlines()[:2500])
