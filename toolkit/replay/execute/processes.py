"""Work in several processes that any one of them could have done: order never matters."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from multiprocessing.connection import Pipe
from queue import SimpleQueue
from typing import Any, TypeVar

from toolkit import children
from toolkit.errors import ToolkitError

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
        Functions of a module that processes can import.
    start, arguments
        Called once in each process before its first item: what is large is sent once.

    Raises
    ------
    ToolkitError
        When a process ends early, and what ``work`` raises.
    """
    idle: SimpleQueue[_Process] = SimpleQueue()
    processes: list[_Process] = []

    def run(item: tuple[Any, ...]) -> Result:
        process = idle.get()
        try:
            found: Result = process.ask((work, item))
            return found
        finally:
            idle.put(process)

    count = min(workers, len(items))
    with ThreadPoolExecutor(count) as threads:
        try:
            for _ in range(count):
                processes.append(_Process(start, arguments))
                idle.put(processes[-1])
            futures: list[Future[Result]] = [threads.submit(run, item) for item in items]
            for future in as_completed(futures):
                yield future.result()
        finally:
            threads.shutdown(wait=False, cancel_futures=True)
            for process in processes:
                process.close()


class _Process:
    """One worker; what it is asked and answers goes through a pipe as ``multiprocessing`` does."""

    def __init__(self, start: Callable[..., object], arguments: tuple[Any, ...]) -> None:
        self._pipe, theirs = Pipe()
        self._process = children.start(
            children.python("toolkit.replay.execute.worker", str(theirs.fileno())),
            # They share the machine: a library that starts threads of its own would only slow them.
            environment=dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"),
            pass_fds=(theirs.fileno(),),
        )
        theirs.close()
        self._begin: tuple[Any, ...] | None = (sys.path, start, arguments)

    def ask(self, question: tuple[Callable[..., Any], tuple[Any, ...]]) -> Any:
        try:
            if self._begin is not None:
                self._pipe.send(self._begin[0])
                self._pipe.send(self._begin[1:])
                self._begin = None
            self._pipe.send(question)
            answer, error = self._pipe.recv()
        except (EOFError, OSError):
            code = self._process.wait()
            raise ToolkitError(
                f"a working process ended early (exit code {code})",
                cure="what was finished is kept: run the same command again, or with --workers 1",
            ) from None
        if error is not None:
            raise error
        return answer

    def close(self) -> None:
        children.end(self._process)
        self._pipe.close()
