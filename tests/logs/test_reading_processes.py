"""Blocks of lines read by other processes: the same rows, in order, and a process that ends."""

from __future__ import annotations

import io
import os
import signal
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import loglines
import pytest

from toolkit.datasets.write.run import discover
from toolkit.errors import ToolkitError
from toolkit.logs.files.files import LineBlock, read_blocks
from toolkit.logs.formats import format_named
from toolkit.logs.read import pool as pools
from toolkit.logs.read.pool import InProcess, SourceSettings, WorkerPool
from toolkit.logs.rows.format import Beside

SETTINGS = SourceSettings("ansor", "a machine", Beside())


def blocks(count: int) -> list[LineBlock]:
    """Blocks of some lines each, no two lines alike."""
    lines = [
        loglines.dump(loglines.ansor(loglines.ansor_steps(tile=(1, 2, 4)), costs=[1e-3 + n * 1e-6]))
        for n in range(40 * count)
    ]
    found = []
    for number in range(count):
        stream = io.BytesIO(b"".join(line + b"\n" for line in lines[40 * number :][:40]))
        found += list(read_blocks(stream, number=40 * number, offset=0, tap=lambda _: None))
    return found


@pytest.fixture
def pool() -> Iterator[WorkerPool]:
    """A pool of one process that is ready."""
    pool = WorkerPool(1)
    try:
        [process] = pool._processes
        until = time.monotonic() + 60
        while not process.ready and time.monotonic() < until:
            time.sleep(0.01)
        assert process.ready
        yield pool
    finally:
        pool.close()


def test_answers_come_in_the_order_of_blocks_and_are_what_this_process_reads(
    pool: WorkerPool,
) -> None:
    given = blocks(pools.EACH)
    futures = [pool.submit(SETTINGS, block, 0) for block in given]
    here = InProcess()
    for block, future in zip(given, futures, strict=True):
        assert future.result(60).rows.equals(here.submit(SETTINGS, block, 0).result().rows)
    assert pool._local._settings is None  # this process read none of them
    first, *others = [future.result() for future in futures]
    assert first.tasks
    assert first.sketches
    assert not any(result.tasks or result.sketches for result in others)


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="no such signal here")
def test_this_process_reads_what_the_other_has_no_room_for(pool: WorkerPool) -> None:
    other = pool._processes[0]._process.pid
    given = blocks(pools.EACH + pools.WAITING + 1)
    os.kill(other, signal.SIGSTOP)
    try:
        futures = [pool.submit(SETTINGS, block, 0) for block in given[: pools.EACH]]
        until = time.monotonic() + 60
        while pool._jobs.qsize() and time.monotonic() < until:
            time.sleep(0.01)
        futures += [pool.submit(SETTINGS, block, 0) for block in given[pools.EACH :]]
        done = [future.done() for future in futures]
        assert done == pools.EACH * [False] + [True] + pools.WAITING * [False]
        while pool.help():
            pass
        assert all(future.done() for future in futures[pools.EACH :])
    finally:
        os.kill(other, signal.SIGCONT)
    assert [len(future.result(60).rows) for future in futures] == len(given) * [40]


@pytest.mark.parametrize("given", [0, 9])
def test_several_processes_end_together_whatever_waits(given: int) -> None:
    pool = WorkerPool(3)
    until = time.monotonic() + 60
    while not all(process.ready for process in pool._processes) and time.monotonic() < until:
        time.sleep(0.01)
    for block in blocks(given):
        pool.submit(SETTINGS, block, 0)
    closing = Thread(target=pool.close, daemon=True)
    closing.start()
    closing.join(60)
    assert not closing.is_alive()


def test_a_process_that_ends_is_an_error_with_its_cure(pool: WorkerPool) -> None:
    [process] = pool._processes
    process.kill()
    futures = [pool.submit(SETTINGS, block, 0) for block in blocks(2)]
    for future in futures:
        with pytest.raises(ToolkitError, match="ended early") as caught:
            future.result(60)
        assert "--workers 0" in str(caught.value.cure)


def test_what_a_collector_said_of_tasks_is_known_where_their_workloads_are_lost(
    pool: WorkerPool, tmp_path: Path
) -> None:
    """Other processes read it beside the records; from an archive this one does."""
    db = tmp_path / "db"
    records = loglines.write(db / "database_tuning_record.json", loglines.metaschedule())
    tasks = [{"workload_index": 0, "name": "GMM", "space_size": 9}]
    loglines.write(db / "collection.json", {"tasks": tasks})
    with tarfile.open(tmp_path / "db.tar", "w") as archive:
        archive.add(db, "db")
    [block] = read_blocks(io.BytesIO(records.read_bytes()))
    for place, here in ((db, False), (tmp_path / "db.tar", True)):
        [file] = [file for file in discover([place], None, None) if file.kind == "metaschedule"]
        beside = format_named(file.kind).beside(file.place, [])
        result = pool.submit(SourceSettings(file.kind, None, beside), block, 0).result(60)
        assert (pool._local._settings is not None) == here
        assert [task.workload for task in result.tasks] == ["GMM"]
        assert list(result.space_sizes.values()) == [9]
