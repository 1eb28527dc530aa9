"""Whatever stands in a file: an answer in bounded time and memory, and nothing good is lost."""

from __future__ import annotations

import errno
import json
import threading

import loglines
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from toolkit.datasets import ingest, open_dataset
from toolkit.datasets.write import open_parts, reading
from toolkit.errors import DatasetError
from toolkit.logs.files import files

GOOD = loglines.dump(loglines.autotvm(timestamp=1))
LAST = loglines.dump(loglines.autotvm(timestamp=2))


def counts(report):
    assert report.lines == report.records + report.duplicates + report.rejected
    return report.lines, report.records, report.rejected


@pytest.mark.parametrize(
    ("odd", "reason"),
    [
        (b"[" * 10_000 + b"]" * 10_000, "not JSON"),
        (b"[" * 900 + b"]" * 900, "nested"),
        (b'{"input":' + b"[" * 900 + b"]" * 900 + b', "config": {}}', "nested"),
        (GOOD.replace(b'"index": 7', b'"index": ' + b"9" * 400), "not JSON"),
        (GOOD.replace(b'"index": 7', b'"index": ' + b"9" * 25), "64-bit integer"),
        (GOOD.replace(b"1.5e-05", b"NaN"), "NaN or Infinity"),
        (GOOD.replace(b"1.5e-05", b"-Infinity"), "NaN or Infinity"),
        (GOOD.replace(b"1.5e-05", b"1e999"), "not JSON"),
        (GOOD.replace(b"llvm", b"ll\xff\xfe"), "not UTF-8"),
        (GOOD.replace(b"llvm", b"\\ud800"), "not JSON"),
        (GOOD[:-40], "not JSON"),
        (GOOD + b" " + LAST, "not JSON"),
        (b"\x00" * 5000, "not JSON"),
        (b'{"i": null, "r": null, "v": null}', "not a tuning record"),
        (b'{"input": 5, "config": 5}', "less than 4"),
        (b'"just a string"', "not a tuning record"),
        (b"null", "not a tuning record"),
    ],
)
def test_an_odd_line_is_rejected_and_its_neighbours_are_kept(tmp_path, odd, reason):
    report = ingest(loglines.write(tmp_path / "a.log", GOOD, odd, LAST), tmp_path / "ds")
    assert counts(report) == (3, 2, 1)
    assert reason in next(iter(report.reasons))
    (row,) = open_dataset(tmp_path / "ds").rejected().iter_rows(named=True)
    assert (row["line"], row["byte_offset"]) == (2, len(GOOD) + 1)
    assert row["content"] == odd[:4096]


def test_arguments_nested_too_deeply_for_writing_are_rejected(tmp_path):
    nested = json.loads("[" * 500 + "]" * 500)
    deep = loglines.autotvm(arguments=[nested])
    report = ingest(loglines.write(tmp_path / "a.log", GOOD, deep), tmp_path / "ds")
    assert counts(report) == (2, 1, 1)
    assert "nested" in next(iter(report.reasons))


@pytest.mark.parametrize("ending", [b"\n", b"\r\n"])
@pytest.mark.parametrize("start", [b"", files.BOM])
@pytest.mark.parametrize("stop", [True, False])
def test_line_ends_and_byte_order_marks(tmp_path, ending, start, stop):
    path = tmp_path / "a.log"
    path.write_bytes(start + ending.join([GOOD, LAST]) + (ending if stop else b""))
    assert counts(ingest(path, tmp_path / "ds")) == (2, 2, 0)
    assert ingest(path, tmp_path / "ds").unchanged == 1


def test_a_line_of_a_gigabyte(tmp_path):
    path = tmp_path / "a.log.zst"
    chunk = b"a" * 2**20
    with path.open("wb") as raw, zstandard.ZstdCompressor().stream_writer(raw) as stream:
        stream.write(GOOD + b"\n")
        for _ in range(1024):
            stream.write(chunk)
        stream.write(b"\n" + LAST + b"\n")
    before = run_peak()
    report = ingest(path, tmp_path / "ds")
    assert counts(report) == (3, 2, 1)
    assert next(iter(report.reasons)) == "the line has more than 32 MiB"
    assert run_peak() - before < 400 * 2**20
    (row,) = open_dataset(tmp_path / "ds").rejected().iter_rows(named=True)
    assert row["content"] == b"a" * 4096


def run_peak() -> int:
    from toolkit.datasets.write.report import peak_rss_bytes

    return peak_rss_bytes()


def test_a_trap_of_a_line_without_end_is_left(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "MAX_LINE_BYTES", 1000)
    monkeypatch.setattr(files, "BLOCK_BYTES", 4096)
    monkeypatch.setattr(files, "HOPELESS_BYTES", 100_000)
    path = loglines.write(tmp_path / "a.log", GOOD, b"a" * 1_000_000, LAST)
    report = ingest(path, tmp_path / "ds")
    assert report.per_source[0].outcome == "damaged"
    assert counts(report) == (1, 1, 0)


def test_a_trap_of_lines_without_records_is_left(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "BARREN_LINES", 1000)
    monkeypatch.setattr(files, "BLOCK_BYTES", 2048)
    path = loglines.write(tmp_path / "a.log", GOOD, b"\n" * 100_000, LAST)
    report = ingest(path, tmp_path / "ds")
    assert report.per_source[0].outcome == "damaged"
    lines, records, _ = counts(report)
    assert records == 1
    assert lines < 10_000
    again = ingest(path, tmp_path / "ds")
    assert (again.lines, again.per_source[0].outcome) == (0, "unchanged")


def test_blocks_hold_few_lines_whatever_their_size(monkeypatch, tmp_path):
    monkeypatch.setattr(files, "BLOCK_LINES", 10)
    path = tmp_path / "a.log"
    path.write_bytes(b"\n" * 995 + b"x" * 500 + b"\n\n\nend")
    with files.open_log(path) as stream:
        blocks = list(files.read_blocks(stream))
    assert b"".join(block.body for block in blocks) == path.read_bytes()
    assert max(len(block.pieces()) for block in blocks) <= 10
    assert [block.number for block in blocks[1:]] == [
        block.number + len(block.pieces()) for block in blocks[:-1]
    ]
    assert [block.offset for block in blocks[1:]] == [block.end for block in blocks[:-1]]


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=300), st.integers(1, 400), st.booleans())
def test_any_bytes_between_good_lines(tmp_path_factory, middle, cut, compress):
    folder = tmp_path_factory.mktemp("any")
    data = GOOD + b"\n" + middle + b"\n" + LAST
    data = data[: len(data) - cut % 40]
    path = folder / "a.log"
    path.write_bytes(zstandard.compress(data) if compress else data)
    report = ingest(path, folder / "ds")
    lines, records, _ = counts(report)
    assert lines == len(data.removesuffix(b"\n").split(b"\n"))
    assert records >= 1
    again = ingest(path, folder / "ds")
    assert again.lines == 0


def test_a_full_disk_is_named_and_costs_nothing_that_was_committed(tmp_path, monkeypatch):
    monkeypatch.setattr(open_parts, "PART_LINES", 50)
    monkeypatch.setattr(files, "BLOCK_BYTES", 8192)
    lines = [loglines.autotvm(index=n, timestamp=n) for n in range(400)]
    path = loglines.write(tmp_path / "a.log", *lines)
    write = pq.ParquetWriter.write_table
    calls = []

    def full(self, *arguments, **options):
        calls.append(1)
        if len(calls) > 4:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(self, *arguments, **options)

    monkeypatch.setattr(pq.ParquetWriter, "write_table", full)
    with pytest.raises(DatasetError, match="No space left"):
        ingest(path, tmp_path / "ds")
    kept = open_dataset(tmp_path / "ds").records().collect().height
    assert 0 < kept < 400
    monkeypatch.setattr(pq.ParquetWriter, "write_table", write)
    report = ingest(path, tmp_path / "ds")
    assert (report.records, report.duplicates) == (400 - kept, 0)
    ingest(path, tmp_path / "whole")
    assert (
        open_dataset(tmp_path / "ds").fingerprint()
        == open_dataset(tmp_path / "whole").fingerprint()
    )


def test_two_ingests_at_once_wait_for_each_other(tmp_path):
    for name in ("a", "b", "c"):
        start = ord(name) * 1000
        lines = [loglines.autotvm(index=n, timestamp=start + n) for n in range(300)]
        loglines.write(tmp_path / "logs" / f"{name}.log", *lines)
    failures = []

    def work():
        try:
            ingest(tmp_path / "logs", tmp_path / "ds", workers=0)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    records = open_dataset(tmp_path / "ds").records().collect()
    assert records.height == 900
    assert records["record_id"].n_unique() == 900


def test_a_log_that_is_rewritten_while_it_is_read_is_read_again(tmp_path, monkeypatch):
    lines = [loglines.autotvm(index=n, timestamp=n) for n in range(300)]
    path = loglines.write(tmp_path / "a.log", *lines)
    monkeypatch.setattr(files, "BLOCK_BYTES", 8192)
    original = reading.read_blocks

    def meddling(stream, **options):
        for number, block in enumerate(original(stream, **options)):
            yield block
            if number == 2:
                loglines.write(path, *(loglines.autotvm(timestamp=n) for n in range(1000, 1040)))

    monkeypatch.setattr(reading, "read_blocks", meddling)
    ingest(path, tmp_path / "ds")
    monkeypatch.setattr(reading, "read_blocks", original)
    ingest(path, tmp_path / "ds")
    ingest(path, tmp_path / "fresh")
    assert (
        open_dataset(tmp_path / "ds").fingerprint()
        == open_dataset(tmp_path / "fresh").fingerprint()
    )
