"""Work in several processes that any one of them could have done: order never matters."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import Any, TypeVar

Result = TypeVar("Result")


def in_processes(
    work: Callable[..., Result],
    items: Sequence[tuple[Any, ...]],
    workers: int,
    start: Callable[..., object],
    arguments: tuple[Any, ...],
) -> Iterator[Result]:
    """Yield ``work(*item)`` of every item, as they are done.

    Parameters
    ----------
    work, start
        Functions of a module (processes are spawned, which works on every system).
    start, arguments
        Called once in each process before its first item: what is large is sent once.
    """
    pool = ProcessPoolExecutor(
        min(workers, len(items)),
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_start,
        initargs=(start, arguments),
    )
    try:
        for future in as_completed([pool.submit(work, *item) for item in items]):
            yield future.result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _start(start: Callable[..., object], arguments: tuple[Any, ...]) -> None:
    # An interrupt from the keyboard reaches workers too; what they finished is on disk.
    signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    # Workers share the machine: a library that starts threads of its own would only slow them.
    os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"))
    start(*arguments)
