"""Kills an ingest with SIGKILL at random moments and checks the dataset after each.

A program of its own, run by ``test_kill.py``: it forks before any threads are started, so that
fifty attempts need one import. ``python kill_ingest.py LOGS DATASET ATTEMPTS SEED``
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import toolkit.datasets
import toolkit.datasets.write.open_parts
import toolkit.logs.files.files


def work(logs: str, dataset: str) -> None:
    """Ingest with small blocks and parts, so that there is much to interrupt."""
    toolkit.datasets.write.open_parts.PART_LINES = 40
    toolkit.logs.files.files.BLOCK_BYTES = 6000
    toolkit.datasets.ingest(logs, dataset, workers=0)


def check(dataset: str) -> None:
    """What was committed is whole: nothing torn, doubled or miscounted."""
    if not Path(dataset, "dataset.json").exists():
        return
    opened = toolkit.datasets.open_dataset(dataset)
    records = opened.records().collect()
    sources = opened.sources()
    assert records["record_id"].n_unique() == records.height
    assert sources["records"].sum() == records.height
    assert sources["rejected"].sum() == opened.rejected().height
    for row in sources.iter_rows(named=True):
        assert row["lines"] == row["records"] + row["duplicates"] + row["rejected"]
    assert set(records["task_id"]) <= set(opened.tasks())
    assert set(records["sketch_id"]) <= set(opened.sketches())


def child(action: Callable[[], None]) -> int:
    """Run an action in a forked process; return its id."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        action()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def finished(pid: int) -> None:
    """Wait for a process that must succeed."""
    _, status = os.waitpid(pid, 0)
    if status:
        sys.exit(f"a check failed with status {status}")


def main() -> None:
    """Time one whole ingest, then kill others at random moments of that time."""
    logs, dataset, attempts, seed = sys.argv[1:5]
    rng = random.Random(int(seed))
    begun = time.monotonic()
    finished(child(lambda: work(logs, f"{dataset}-timed")))
    whole = time.monotonic() - begun
    killed = number = 0
    while killed < int(attempts) and number < 4 * int(attempts):
        target = f"{dataset}-{number}"  # killed again and again until it comes to its end
        pid = child(lambda target=target: work(logs, target))
        time.sleep(rng.uniform(0, whole))
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        if os.WIFSIGNALED(status):
            killed += 1
            finished(child(lambda target=target: check(target)))
        else:
            number += 1
    for each in range(number + 1):
        target = f"{dataset}-{each}"
        finished(child(lambda target=target: work(logs, target)))
        finished(child(lambda target=target: check(target)))
    print(killed, number + 1)  # noqa: T201


if __name__ == "__main__":
    main()
